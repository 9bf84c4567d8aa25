//! Rules about `Cargo.toml`: which crate may depend on which, and that each dependency says why it is here.

use super::Finding;
use toml::{Table, Value};

/// design §3, row by row: package, then what its `[dependencies]` may name.
const ALLOWED: [(&str, &[&str]); 7] = [
    (
        "weir-proto",
        &[
            "memchr",
            "wide",
            "blake3",
            "sha2",
            "hmac",
            "constant_time_eq",
            "base64-simd",
        ],
    ),
    (
        "weir-core",
        &["weir-proto", "blake3", "siphasher", "hashbrown", "sha1"],
    ),
    (
        "weir-io",
        &[
            "weir-core",
            "io-uring",
            "monoio",
            "glommio",
            "futures-lite",
            "crossbeam-queue",
            "libc",
            "bytes",
            "rustls",
        ],
    ),
    // memchr: the strict reader of answers looks for line ends as proto does.
    (
        "weir-bench",
        &[
            "weir-io",
            "weir-core",
            "weir-proto",
            "hdrhistogram",
            "serde",
            "memchr",
        ],
    ),
    // What is measured, its peers, and what runs the timed benches.
    (
        "weir-micro",
        &[
            "weir-proto",
            "weir-core",
            "blake3",
            "httparse",
            "governor",
            "jsonwebtoken",
            "signature",
            "serde",
            "criterion",
        ],
    ),
    (
        "weir",
        &[
            "weir-proto",
            "weir-core",
            "weir-io",
            "weir-bench",
            "blake3",
            "clap",
            "serde",
            "serde_json",
            "toml",
            "tokio",
            "sqlx",
            "rusqlite",
            "getrandom",
            "mlua",
            "sha1",
        ],
    ),
    // The fuzz targets: other readers to hold ours against.
    (
        "weir-fuzz",
        &[
            "weir",
            "weir-proto",
            "libfuzzer-sys",
            "httparse",
            "serde",
            "serde_json",
            "toml",
            "blake3",
            "redis-protocol",
        ],
    ),
];

/// What tests of any crate may add.
const ALLOWED_IN_TESTS: [&str; 11] = [
    "serde_json",
    "proptest",
    "stateright",
    "loom",
    "socket2",
    "httparse",
    "redis-protocol",
    "libc",
    "toml",
    "rusqlite",
    "rcgen",
];

/// Everything that is wrong with one package's manifest.
pub fn check_package(path: &str, text: &str) -> Vec<Finding> {
    let at = |message: String| Finding {
        path: path.to_string(),
        line: 0,
        message,
    };
    let Ok(manifest) = text.parse::<Table>() else {
        return vec![at("is no TOML".to_string())];
    };
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(Value::as_str)
        .unwrap_or("");
    let Some((_, allowed)) = ALLOWED.iter().find(|(package, _)| *package == name) else {
        return vec![at(format!(
            "package `{name}` is not in the table of layers (tests/tidy/manifest.rs)"
        ))];
    };
    let mut findings = Vec::new();
    let mut layers = vec![&manifest];
    let targets = manifest.get("target").and_then(Value::as_table);
    layers.extend(
        targets
            .into_iter()
            .flat_map(Table::values)
            .filter_map(Value::as_table),
    );
    for layer in layers {
        let named = |section: &str| {
            layer
                .get(section)
                .and_then(Value::as_table)
                .into_iter()
                .flat_map(Table::keys)
        };
        for dependency in
            named("dependencies").filter(|dependency| !allowed.contains(&dependency.as_str()))
        {
            findings.push(at(format!(
                "`{name}` may not depend on `{dependency}` (design §3)"
            )));
        }
        for dependency in named("dev-dependencies") {
            if !allowed.contains(&dependency.as_str())
                && !ALLOWED_IN_TESTS.contains(&dependency.as_str())
            {
                findings.push(at(format!(
                    "tests of `{name}` may not depend on `{dependency}`"
                )));
            }
        }
        for dependency in named("build-dependencies") {
            findings.push(at(format!(
                "`{name}` has a build dependency, `{dependency}`: builds run no code of ours"
            )));
        }
    }
    if manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"))
        != Some(&Value::Boolean(true))
    {
        findings.push(at("does not take the workspace's lints".to_string()));
    }
    findings
}

/// Each line of `[workspace.dependencies]` that brings in foreign code says why.
pub fn check_reasons(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut inside = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
        } else if inside
            && line.contains('=')
            && !line.starts_with('#')
            && !line.starts_with("weir-")
        {
            let reason = line
                .rsplit_once('#')
                .map_or("", |(_, reason)| reason.trim());
            if reason.len() < 8 {
                let message = "a dependency without a comment that says why it is here".to_string();
                findings.push(Finding {
                    path: path.to_string(),
                    line: at + 1,
                    message,
                });
            }
        }
    }
    findings
}

/// The lints that stand in for rules of ours are on in the workspace (`tests/all.sh` makes warnings errors).
pub fn check_lints(path: &str, text: &str) -> Vec<Finding> {
    let manifest = text.parse::<Table>().unwrap_or_default();
    let lints = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("lints"));
    let is_on = |tool: &str, lint: &str| {
        let level = lints
            .and_then(|lints| lints.get(tool))
            .and_then(|tool| tool.get(lint))
            .and_then(Value::as_str);
        matches!(level, Some("warn" | "deny" | "forbid"))
    };
    let wanted = [
        ("rust", "missing_docs"),
        ("rust", "unsafe_op_in_unsafe_fn"),
        ("rust", "unused_must_use"),
        ("clippy", "unwrap_used"),
        ("clippy", "undocumented_unsafe_blocks"),
    ];
    let missing = wanted.iter().filter(|(tool, lint)| !is_on(tool, lint));
    missing
        .map(|(tool, lint)| Finding {
            path: path.to_string(),
            line: 0,
            message: format!("the lint {tool}::{lint} is off"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_outside_its_layer_is_found() {
        let text = "[package]\nname = 'weir-core'\n[lints]\nworkspace = true\n[dependencies]\nweir-proto.workspace = true\n";
        assert_eq!(check_package("c", text), []);
        assert_eq!(check_package("c", &format!("{text}tokio = '1'\n")).len(), 1);
        assert_eq!(
            check_package(
                "c",
                &format!("{text}[target.'cfg(unix)'.dependencies]\nlibc = '1'\n")
            )
            .len(),
            1
        );
        assert_eq!(
            check_package("c", &format!("{text}[dev-dependencies]\nweir-io = '1'\n")).len(),
            1
        );
        assert_eq!(
            check_package("c", &format!("{text}[build-dependencies]\ncc = '1'\n")).len(),
            1
        );
        assert_eq!(
            check_package("c", &text.replace("workspace = true\n[dep", "\n[dep")).len(),
            1
        );
        assert_eq!(
            check_package("c", &text.replace("weir-core", "weir-new")).len(),
            1
        );
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let text = "[workspace.dependencies]\nweir-io = { path = 'io' }\na = '1' # finds line ends\nb = '2'\n[profile.dev]\nopt-level = 1\n";
        let found = check_reasons("Cargo.toml", text);
        assert_eq!(
            found.iter().map(|finding| finding.line).collect::<Vec<_>>(),
            [4]
        );
    }

    #[test]
    fn a_lint_switched_off_is_found() {
        assert_eq!(
            check_lints(
                "Cargo.toml",
                "[workspace.lints.rust]\nmissing_docs = 'allow'\n"
            )
            .len(),
            5
        );
        assert_eq!(
            check_lints(
                "Cargo.toml",
                "[workspace.lints.rust]\nmissing_docs = 'warn'\n"
            )
            .len(),
            4
        );
    }
}
