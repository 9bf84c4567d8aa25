//! The configuration against the toml crate's plain reader, and what every message owes the operator.
//!
//! Any text: no panic; each problem names a line or a key and is one printable line; what weir takes, toml takes, and the
//! plan holds the numbers that toml reads. Key files are those of a directory made at the first call.

use super::{Checked, same};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use toml::{Table, Value};
use weir::config::{Host, Plan, Problem, read};
use weir::keys;

/// A sale's directory with the two keys of `weir init`; the file itself is never written.
fn file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("weir-fuzz-{}", std::process::id()));
        let _ = std::fs::create_dir_all(dir.join("keys"));
        for name in ["ticket-1.key", "payment.key"] {
            let _ = keys::create(&dir.join("keys").join(name)); // an old one of the same process id serves as well
        }
        dir.join("weir.toml")
    })
}

/// Takes the keys away again; for callers that end in order.
pub fn clean_up() {
    if let Some(dir) = file().parent() {
        let _ = std::fs::remove_dir_all(dir);
    }
}

const HOST: Host = Host {
    cpus_count: 3,
    memory_bytes: None,
    descriptors_max: None,
    wall_ms: 1_796_040_000_000,
};

/// Checks `data` as a configuration file.
pub fn check(data: &[u8]) -> Checked {
    let Ok(text) = std::str::from_utf8(data) else {
        return Ok(());
    };
    let reference = text.parse::<Table>();
    match read(text, file(), &HOST) {
        Ok(plan) => match reference {
            Ok(table) => agrees(&plan, &table),
            Err(error) => Err(format!("weir accepts, toml says {error}")),
        },
        Err(problems) => {
            if problems.list.is_empty() {
                return Err("refused without a problem".to_owned());
            }
            for problem in &problems.list {
                is_of_use(problem, text)?;
            }
            let no_toml = problems
                .list
                .iter()
                .any(|problem| problem.message.starts_with("not valid TOML"));
            if no_toml && reference.is_ok() {
                return Err(format!("toml accepts, weir says {problems}"));
            }
            Ok(())
        }
    }
}

/// A problem can be found in the file and printed on a terminal.
fn is_of_use(problem: &Problem, text: &str) -> Checked {
    let lines = text.split('\n').count();
    let in_file = problem.line.is_none_or(|line| (1..=lines).contains(&line));
    let named = problem.line.is_some() || !problem.key.is_empty();
    let shown = problem.to_string();
    if !in_file || !named || problem.message.is_empty() || shown.chars().any(char::is_control) {
        return Err(format!("a problem that is of no use: {problem:?}"));
    }
    Ok(())
}

fn at<'t>(table: &'t Table, path: &[&str]) -> Option<&'t Value> {
    let (first, rest) = path.split_first()?;
    let value = table.get(*first)?;
    match rest {
        [] => Some(value),
        _ => at(value.as_table()?, rest),
    }
}

/// The plan holds what the toml crate reads.
fn agrees(plan: &Plan, table: &Table) -> Checked {
    if let Some(listen) = at(table, &["server", "listen"]).and_then(Value::as_str) {
        same("listen", &Ok(plan.listen), &listen.parse())?;
    }
    if let Some(shards) = at(table, &["server", "shards"]).and_then(Value::as_integer) {
        same("shards", &i64::from(plan.shards_count), &shards)?;
    }
    let tables = |value: Option<&Value>| -> Vec<Table> {
        let items = value.and_then(Value::as_array).cloned().unwrap_or_default();
        items
            .into_iter()
            .filter_map(|item| item.try_into().ok())
            .collect()
    };
    let number = |table: &Table, name: &str| at(table, &[name]).and_then(Value::as_integer);
    let activities = tables(table.get("activity"));
    same("activities", &plan.sale.activities.len(), &activities.len())?;
    for (ours, theirs) in plan.sale.activities.iter().zip(&activities) {
        same(
            "activity",
            &i64::try_from(ours.id.0).ok(),
            &number(theirs, "id"),
        )?;
        let skus = tables(theirs.get("sku"));
        same("skus", &ours.skus.len(), &skus.len())?;
        for (ours, theirs) in ours.skus.iter().zip(&skus) {
            same("sku", &i64::try_from(ours.id.0).ok(), &number(theirs, "id"))?;
            let stock = number(theirs, "stock");
            same("stock", &i64::try_from(ours.first_stock).ok(), &stock)?;
        }
    }
    Ok(())
}
