//! `weir config explain`: the table of keys as text.

use super::ceilings::SHARDS_MAX;
use super::nearest::nearest;
use super::table::{self, Default, KEYS, Key, SECTIONS, Section};
use std::fmt::Write;

const WIDTH: usize = 96;
const _: () = assert!(SHARDS_MAX < 100, "columns are made for short numbers");

/// Explains everything, a section, or a key (`server.listen`; `listen` alone when only one section has it).
/// # Errors
/// A message with the nearest known name.
pub fn explain(topic: Option<&str>) -> Result<String, String> {
    let mut out = String::new();
    let Some(topic) = topic else {
        for section in SECTIONS {
            put_section(&mut out, section);
        }
        return Ok(out);
    };
    // `[[activity]]` and `activity[0].sku[1].stock`, as messages write it, mean the same.
    let mut plain: String = topic.chars().filter(|c| !"[]".contains(*c)).collect();
    if topic.contains('[') && topic.contains('.') {
        plain.retain(|c| !c.is_ascii_digit());
    }
    let full = |key: &Key| format!("{}.{}", key.section, key.name);
    if let Some(section) = SECTIONS.iter().find(|section| section.name == plain) {
        put_section(&mut out, section);
        return Ok(out);
    }
    let found: Vec<_> = KEYS
        .iter()
        .filter(|key| full(key) == plain || key.name == plain)
        .collect();
    if found.is_empty() {
        let sections = SECTIONS
            .iter()
            .map(|section| (section.name, section.name.to_owned()));
        let names: Vec<(&str, String)> = sections
            .chain(KEYS.iter().map(|key| (key.name, full(key))))
            .collect();
        let words = |(short, full): &'_ (&'static str, String)| [short.to_string(), full.clone()];
        let all: Vec<String> = names.iter().flat_map(words).collect();
        let near = nearest(&plain, all.iter().map(String::as_str)).unwrap_or_default();
        let near = names
            .iter()
            .find(|(short, full)| *short == near || full == near)
            .map_or("", |(_, full)| full);
        return Err(format!(
            "no key or section is called {topic:?}; did you mean {near}? `weir config explain` lists all"
        ));
    }
    for key in found {
        put_key(&mut out, key);
    }
    Ok(out)
}

/// A section's header as it stands in the file.
pub(super) fn header(section: &Section) -> String {
    if section.is_list {
        format!("[[{}]]", section.name)
    } else {
        format!("[{}]", section.name)
    }
}

fn put_section(out: &mut String, section: &Section) {
    put(
        out,
        &format!("{}\n{}\n", header(section), wrapped(section.doc, "")),
    );
    for key in table::keys_of(section.name) {
        put_key(out, key);
    }
}

fn put_key(out: &mut String, key: &Key) {
    let default = match key.default {
        Default::Required => "required".to_owned(),
        Default::Absent => "optional".to_owned(),
        Default::Is(literal) => format!("default {literal}"),
    };
    put(
        out,
        &format!("{}.{}   ({default})\n", key.section, key.name),
    );
    put(out, &wrapped(key.doc, "    "));
    put(
        out,
        &wrapped(&format!("Allowed: {}.", key.kind.allowed()), "    "),
    );
    put(
        out,
        &format!("    Example: {} = {}\n\n", key.name, key.example),
    );
}

fn put(out: &mut String, text: &str) {
    write!(out, "{text}").expect("a String takes any text");
}

/// `text` in lines of at most [`WIDTH`] characters, each after `indent`.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut line = String::from(indent);
    for word in text.split_whitespace() {
        if line.len() > indent.len() && line.len() + 1 + word.len() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = String::from(indent);
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_explained_by_any_of_its_names() {
        let all = explain(None).unwrap();
        for key in KEYS {
            let full = format!("{}.{}", key.section, key.name);
            assert!(all.contains(&format!("{full}   (")), "{full}");
            for name in [full.as_str(), key.name, key.section] {
                assert!(explain(Some(name)).unwrap().contains(key.name), "{name}");
            }
        }
        assert!(
            explain(Some("activity[0].sku[12].stock"))
                .unwrap()
                .contains("activity.sku.stock")
        );
        assert!(
            all.lines().all(|line| line.len() <= 140),
            "lines stay readable"
        );
    }

    #[test]
    fn unknown_topics_name_the_nearest() {
        assert!(
            explain(Some("lisen"))
                .unwrap_err()
                .contains("server.listen")
        );
        assert!(
            explain(Some("limits.ip_rat"))
                .unwrap_err()
                .contains("limits.ip_rate")
        );
        assert!(explain(Some("limit")).unwrap_err().contains("mean limits?"));
    }
}
