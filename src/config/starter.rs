//! The starter file of `weir init`, and any file that a program writes: every key with its meaning, from the table of keys.

use super::explain::{header, wrapped};
use super::instant::instant_text;
use super::table::{self, Default, SECTIONS};
use crate::keys;
use std::io;
use weir_core::time::WallMs;

/// How long the starter's sale is open.
const OPEN_MS: u64 = 24 * 60 * 60 * 1000;

/// A key to set: section, name, TOML literal.
pub type Setting<'a> = (&'a str, &'a str, String);

/// What `weir init` sets: a sale that opens at `now` for 24 hours, with a path and a device salt of its own.
/// # Errors
/// When the system gives no random bytes.
pub fn fresh_sale(now: WallMs) -> io::Result<Vec<Setting<'static>>> {
    let path = keys::encode_hex(&keys::random::<4>()?);
    let salt = keys::encode_hex(&keys::random::<32>()?);
    let whole_second = WallMs(now.0 / 1000 * 1000);
    Ok(vec![
        ("keys", "payment", "\"keys/payment.key\"".to_owned()),
        ("activity", "path_id", format!("\"{path}\"")),
        ("activity", "opens_at", instant_text(whole_second)),
        (
            "activity",
            "closes_at",
            instant_text(whole_second.plus_ms(OPEN_MS)),
        ),
        ("activity", "device_salt", format!("\"{salt}\"")),
    ])
}

/// Writes a file with every section once and every key: those in `settings` as given, required others as their example,
/// the rest as a comment with its default.
pub fn starter(settings: &[Setting<'_>]) -> String {
    let mut out = String::from(
        "# weir's configuration. A line that starts with \"# name = \" shows what holds without it.\n# `weir config explain [KEY]` says more, `weir config check --config FILE` looks for mistakes.\n",
    );
    for section in SECTIONS {
        out += "\n";
        out += &wrapped(section.doc, "# ");
        out += &format!("{}\n", header(section));
        for key in table::keys_of(section.name) {
            let set = settings
                .iter()
                .find(|(of, name, _)| (*of, *name) == (key.section, key.name));
            let (mark, literal) = match (set, key.default) {
                (Some((_, _, literal)), _) => ("", literal.as_str()),
                (None, Default::Required) => ("", key.example),
                (None, Default::Is(literal)) => ("# ", literal),
                (None, Default::Absent) => ("# ", key.example),
            };
            out += "\n";
            out += &wrapped(key.doc, "# ");
            out += &format!("{mark}{} = {literal}\n", key.name);
        }
    }
    out
}
