//! The file as TOML with line numbers, read section by section against the table of keys.
//!
//! Called by [`super::build`]. Every problem is collected; a key that is wrong reads as its example, so that the rest of
//! the file can still be checked. A [`Section`] remembers whether anything of it was wrong.

use super::nearest::nearest;
use super::problem::Problem;
use super::table::{self, Default, Key, SECTIONS};
use super::value::{KeyFile, Value};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use toml::de::{DeTable, DeValue};
use weir_core::limit::deny::DenySubject;
use weir_core::limit::gcra::Rate;
use weir_core::order::contract::Money;
use weir_core::redis::endpoint::Endpoint;
use weir_core::time::WallMs;
use weir_proto::addr::Cidr;
use weir_proto::ids::PathId;

/// Collects problems and knows which byte is on which line.
pub struct Reader<'t> {
    text: &'t str,
    problems: RefCell<Vec<Problem>>,
}

impl<'t> Reader<'t> {
    /// For the text of one file.
    pub fn new(text: &'t str) -> Self {
        Self {
            text,
            problems: RefCell::new(Vec::new()),
        }
    }

    /// The file as TOML; `None` (and a problem) when it is none.
    pub fn parse(&self) -> Option<DeTable<'t>> {
        match DeTable::parse(self.text) {
            Ok(table) => Some(table.into_inner()),
            Err(error) => {
                let line = error.span().map(|span| self.line_of(span.start));
                self.report(
                    line,
                    "",
                    format!("not valid TOML: {}", error.message().replace('\n', ", ")),
                );
                None
            }
        }
    }

    fn line_of(&self, byte: usize) -> usize {
        let before = self.text.as_bytes().iter().take(byte);
        before.filter(|&&b| b == b'\n').count() + 1
    }

    /// Adds a problem.
    pub fn report(&self, line: Option<usize>, key: &str, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem {
            line,
            key: printable(key),
            message: printable(&message.into()),
        });
    }

    /// All problems, by line; those without a line last.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        problems
    }

    /// Reports top-level names that are no section.
    pub fn check_sections(&self, root: &DeTable<'_>) {
        let names = || {
            SECTIONS
                .iter()
                .map(|s| s.name)
                .filter(|name| !name.contains('.'))
        };
        for (name, _) in root {
            if names().any(|known| known == name.get_ref()) {
                continue;
            }
            let line = Some(self.line_of(name.span().start));
            let key = name.get_ref();
            let message = match table::KEYS.iter().find(|known| known.name == key) {
                Some(known) => format!(
                    "unknown section; the key {key} belongs in [{}]",
                    known.section
                ),
                None => {
                    let near = nearest(key, names()).unwrap_or_default();
                    let all: Vec<_> = names().collect();
                    format!(
                        "unknown section; did you mean {near}? Sections are {}",
                        all.join(", ")
                    )
                }
            };
            self.report(line, key, message);
        }
    }

    /// The section `[name]`; an absent one has defaults only.
    pub fn section<'r>(&'r self, root: &'r DeTable<'t>, name: &'static str) -> Section<'r, 't> {
        let found = root.get(name);
        let table = found.and_then(|value| value.get_ref().as_table());
        let line = found.map(|value| self.line_of(value.span().start));
        if found.is_some() && table.is_none() {
            self.report(
                line,
                name,
                format!("must be a section: write [{name}] and its keys below"),
            );
        }
        Section::new(self, name, name.to_owned(), table, line)
    }

    /// The sections `[[name]]` within `parent` (a table), each called `at[i]`.
    pub fn sections<'r>(
        &'r self,
        parent: &'r DeTable<'t>,
        name: &'static str,
        at: &str,
    ) -> Vec<Section<'r, 't>> {
        let leaf = name.rsplit('.').next().unwrap_or(name);
        let Some(found) = parent.get(leaf) else {
            return Vec::new();
        };
        let line = Some(self.line_of(found.span().start));
        let items = found.get_ref().as_array();
        let tables = items.and_then(|items| {
            let table = |item: &'r toml::Spanned<DeValue<'t>>| {
                let line = Some(self.line_of(item.span().start));
                item.get_ref().as_table().map(|table| (table, line))
            };
            items.iter().map(table).collect::<Option<Vec<_>>>()
        });
        let Some(tables) = tables else {
            self.report(
                line,
                at,
                format!("must be a list of sections: write [[{name}]]"),
            );
            return Vec::new();
        };
        let section =
            |(i, (table, line))| Section::new(self, name, format!("{at}[{i}]"), Some(table), line);
        tables.into_iter().enumerate().map(section).collect()
    }
}

/// A problem is one line on a terminal, whatever the file put into a quoted key: control characters are escaped.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// One section of the file.
pub struct Section<'r, 't> {
    reader: &'r Reader<'t>,
    name: &'static str,
    at: String,
    /// The section's content; `None` when the file does not have it.
    pub table: Option<&'r DeTable<'t>>,
    line: Option<usize>,
    is_wrong: Cell<bool>,
}

impl<'r, 't> Section<'r, 't> {
    fn new(
        reader: &'r Reader<'t>,
        name: &'static str,
        at: String,
        table: Option<&'r DeTable<'t>>,
        line: Option<usize>,
    ) -> Self {
        let section = Self {
            reader,
            name,
            at,
            table,
            line,
            is_wrong: Cell::new(false),
        };
        section.check_names();
        section
    }

    /// How messages call it, such as `activity[0]`.
    pub fn at(&self) -> &str {
        &self.at
    }

    /// True once a problem of this section was reported.
    pub fn is_wrong(&self) -> bool {
        self.is_wrong.get()
    }

    /// Reports a problem of key `name`.
    pub fn wrong(&self, name: &str, message: impl Into<String>) {
        self.is_wrong.set(true);
        let line = self.table.and_then(|table| table.get_key_value(name));
        let line = line.map(|(key, _)| self.reader.line_of(key.span().start));
        let key = format!("{}.{name}", self.at);
        self.reader.report(line.or(self.line), &key, message);
    }

    fn check_names(&self) {
        let is_part = |name: &str| {
            let mut parts = SECTIONS
                .iter()
                .filter_map(|s| s.name.strip_prefix(self.name));
            parts.any(|part| part.strip_prefix('.') == Some(name))
        };
        for (name, _) in self.table.into_iter().flatten() {
            let name: &str = name.get_ref();
            if table::find(self.name, name).is_none() && !is_part(name) {
                self.wrong(name, unknown_key(self.name, name));
            }
        }
    }

    /// The key's value: the file's, else the default; `None` when absent is allowed. Wrong and missing ones are
    /// reported and read as the example.
    fn value(&self, name: &str) -> Option<Value> {
        let key: &Key =
            table::find(self.name, name).expect("the program asks for keys of the table");
        let literal = match (self.table.and_then(|table| table.get(name)), key.default) {
            (Some(raw), _) => match key.kind.read(raw.get_ref()) {
                Ok(value) => return Some(value),
                Err(message) => {
                    self.wrong(name, message);
                    key.example
                }
            },
            (None, Default::Is(literal)) => literal,
            (None, Default::Absent) => return None,
            (None, Default::Required) => {
                let (allowed, example) = (key.kind.allowed(), key.example);
                self.wrong(
                    name,
                    format!("is missing; must be {allowed}. Example: {name} = {example}"),
                );
                key.example
            }
        };
        let raw = DeValue::parse(literal).expect("the table's literals are TOML");
        let value = key.kind.read(raw.get_ref());
        Some(value.expect("the table's literals are valid"))
    }

    fn given(&self, name: &str) -> Value {
        self.value(name)
            .expect("the key is required or has a default")
    }
}

/// Why an unknown key is refused, with the nearest known one.
fn unknown_key(section: &str, name: &str) -> String {
    if let Some(other) = table::KEYS.iter().find(|key| key.name == name) {
        return format!("unknown key here; {name} belongs in [{}]", other.section);
    }
    let near = nearest(name, table::keys_of(section).map(|key| key.name)).unwrap_or_default();
    format!("unknown key; did you mean {near}? `weir config explain {section}` lists all")
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident, $variant:ident -> $type:ty;)*) => {
        impl Section<'_, '_> {
            $($(#[$doc])*
            pub fn $name(&self, name: &str) -> $type {
                match self.given(name) {
                    Value::$variant(value) => value,
                    _ => unreachable!("the program asks {name} for the kind that the table gives it"),
                }
            })*
        }
    };
}

getters! {
    /// A number or a duration's milliseconds.
    number, Number -> u64;
    /// A rate.
    rate, Rate -> Rate;
    /// A word or a path.
    text, Text -> String;
    /// Yes or no.
    flag, Bool -> bool;
    /// An address.
    address, Address -> SocketAddr;
    /// Networks.
    networks, Networks -> Vec<Cidr>;
    /// Who is denied.
    denied, Denied -> Vec<DenySubject>;
    /// Origins.
    origins, Origins -> Vec<Vec<u8>>;
    /// Servers.
    endpoints, Endpoints -> Vec<Endpoint>;
    /// Key files.
    key_files, KeyFiles -> Vec<KeyFile>;
    /// A time.
    instant, Instant -> WallMs;
    /// A price.
    price, Price -> Money;
    /// A path id.
    path_id, PathId -> PathId;
}

impl Section<'_, '_> {
    /// A number, or `None` for `"auto"`.
    pub fn number_or_auto(&self, name: &str) -> Option<u64> {
        match self.given(name) {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// A path that may be absent.
    pub fn optional_text(&self, name: &str) -> Option<String> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A rate that may be absent.
    pub fn optional_rate(&self, name: &str) -> Option<Rate> {
        match self.value(name) {
            Some(Value::Rate(rate)) => Some(rate),
            _ => None,
        }
    }

    /// A number that may be absent.
    pub fn optional_number(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// Servers that may be absent.
    pub fn optional_endpoints(&self, name: &str) -> Option<Vec<Endpoint>> {
        match self.value(name) {
            Some(Value::Endpoints(servers)) => Some(servers),
            _ => None,
        }
    }

    /// Key files that may be absent: then there are none.
    pub fn optional_key_files(&self, name: &str) -> Vec<KeyFile> {
        match self.value(name) {
            Some(Value::KeyFiles(files)) => files,
            _ => Vec::new(),
        }
    }

    /// 32 bytes that may be absent.
    pub fn optional_hex32(&self, name: &str) -> Option<[u8; 32]> {
        match self.value(name) {
            Some(Value::Hex32(bytes)) => Some(bytes),
            _ => None,
        }
    }
}
