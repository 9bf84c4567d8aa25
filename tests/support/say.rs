//! Lines of a test that a reader must see although the test passes: not by `println!`, which the harness keeps then.
#![allow(dead_code, clippy::unwrap_used)] // each test binary uses what it needs; a test that meets one has failed

use std::io::Write;

/// Prints a line of its own.
pub fn say(line: &str) {
    // The harness may have begun a line: `test name ...`.
    let line = format!("\n{line}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

/// Says that a test cannot run here, and why; with CI=true that is a failure.
pub fn skip(reason: &str) {
    say(&format!("SKIPPED: {reason}"));
    assert_ne!(
        std::env::var("CI").as_deref(),
        Ok("true"),
        "nothing may be skipped here: {reason}"
    );
}
