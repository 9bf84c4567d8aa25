//! The configuration: one TOML file in the operator's words, checked as a whole, turned into the core's words.
//!
//! Called by every command that needs a sale. `table` lists all keys once; `document` reads the file against it, `build`
//! makes the [`Plan`] and cross-checks, `host` compares it with the machine. Invariants: an unknown key is refused with the
//! nearest known one; all problems of a file come together; no hard ceiling is exceeded; no message shows a secret.

mod build;
pub mod ceilings;
mod document;
mod explain;
mod host;
mod instant;
mod limiter;
mod nearest;
mod plan;
mod problem;
mod redis;
mod sale;
mod secrets;
mod starter;
mod table;
mod tls;
pub mod units;
mod value;

pub use explain::explain;
pub use host::{Footprint, Host, check};
pub use instant::{instant, instant_text};
pub use plan::{DenyPlan, LeasePlan, LogTarget, OpsPlan, Plan, RedisPlan, StorePlan};
pub use problem::{Problem, Problems};
pub(crate) use redis::steps as redis_steps;
pub use starter::{Setting, fresh_sale, starter};

use self::document::Reader;
use std::io::Read;
use std::path::Path;

/// Reads, checks and plans the file; key files are read, the machine is not looked at (see [`check`]).
/// # Errors
/// All problems found.
pub fn load(file: &Path, host: &Host) -> Result<Plan, Problems> {
    read(&read_text(file)?, file, host)
}

/// [`load`] of a text that is at hand already; `file` gives the directory for relative paths and the name in messages.
/// # Errors
/// All problems found.
pub fn read(text: &str, file: &Path, host: &Host) -> Result<Plan, Problems> {
    let reader = Reader::new(text);
    let plan = match reader.parse() {
        Some(root) => build::plan(&reader, &root, file, host),
        None => None,
    };
    let list = reader.into_problems();
    match plan {
        Some(plan) if list.is_empty() => Ok(plan),
        _ => Err(Problems {
            file: file.to_owned(),
            list,
        }),
    }
}

/// [`load`], then [`check`]: what a server must pass before it starts.
/// # Errors
/// All problems of the file, or else all of the machine.
pub fn load_for_this_host(file: &Path) -> Result<Plan, Problems> {
    let host = Host::read();
    let plan = load(file, &host)?;
    let list = check(&plan, &host);
    if list.is_empty() {
        return Ok(plan);
    }
    Err(Problems {
        file: file.to_owned(),
        list,
    })
}

fn read_text(file: &Path) -> Result<String, Problems> {
    let fail = |message: String| Problems::of_file(file, message);
    let of_io = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            fail("does not exist; `weir init DIR` makes a starter file DIR/weir.toml".to_owned())
        }
        kind => fail(format!("cannot be read: {kind}")),
    };
    if !file.metadata().map_err(of_io)?.is_file() {
        return Err(fail(
            "is not an ordinary file; name the file itself, such as DIR/weir.toml".to_owned(),
        ));
    }
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(of_io)?;
    let mut limited = opened.take(ceilings::FILE_BYTES_MAX + 1);
    limited.read_to_end(&mut bytes).map_err(of_io)?;
    if bytes.len() as u64 > ceilings::FILE_BYTES_MAX {
        return Err(fail(format!(
            "has more than {} bytes",
            ceilings::FILE_BYTES_MAX
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        fail(format!("is not UTF-8 text at byte {at}"))
    })
}
