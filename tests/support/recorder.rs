//! Starts a child whose file operations are recorded by `tests/recorder/recorder.c`.
//!
//! For crash tests of the store, the order store and the whole server: build the library once with
//! [`Recorder::build`], then [`Recorder::watch`] a command, run it, kill it, and hand the log to `cutback`. The child
//! is the shipped program, unchanged; it only has to be linked dynamically, as on every glibc target.
#![allow(dead_code)] // each test binary uses what it needs

#[path = "compiler.rs"]
pub mod compiler;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The built library.
pub struct Recorder {
    library: PathBuf,
}

/// A sync that fails once.
pub struct FailSync<'a> {
    /// Which sync of such files, from 1.
    pub nth: u32,
    /// The end of the file's name, for example `-wal`.
    pub suffix: &'a str,
}

impl Recorder {
    /// Compiles the library.
    pub fn build() -> Self {
        let process = std::process::id();
        let thread = format!("{:?}", std::thread::current().id());
        let unique: String = thread.chars().filter(char::is_ascii_digit).collect();
        let library =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recorder-{process}-{unique}.so"));
        let flags = ["-shared", "-fPIC", "-ldl"];
        compiler::compile("tests/recorder/recorder.c", &library, &flags);
        Self { library }
    }

    /// Makes `command` record what it does below `dir` into `log`, which must lie elsewhere.
    pub fn watch(&self, command: &mut Command, dir: &Path, log: &Path) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("WEIR_RECORD_DIR", dir.canonicalize().unwrap())
            .env("WEIR_RECORD_LOG", log);
    }

    /// Lets one sync of the watched `command` fail with EIO; the next one succeeds, as the kernel's does (R55).
    pub fn fail_sync(command: &mut Command, fail: &FailSync<'_>) {
        command.env(
            "WEIR_RECORD_FAIL_SYNC",
            format!("{} {}", fail.nth, fail.suffix),
        );
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.library);
    }
}
