//! Compiles the C files of tests with the compiler that SQLite needs too (`CC`, else `cc`).

use std::path::Path;
use std::process::Command;

/// Makes `made` from `source` (below the package's root); `flags` come last, as linkers want it.
pub fn compile(source: &str, made: &Path, flags: &[&str]) {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(compiler)
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .arg(made)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .args(flags)
        .output()
        .expect("a C compiler runs: SQLite was built with it");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
}
