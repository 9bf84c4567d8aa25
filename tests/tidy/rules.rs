//! Rules about one Rust file. Each takes a [`Source`] and says what is wrong, line by line.

use super::Finding;
use super::source::{Source, words};

const FILE_LINES_MAX: usize = 450;
const FUNCTION_LINES_MAX: usize = 70;
const HEADER_LINES_MAX: usize = 15;
/// A SAFETY comment stands at most so many lines above its `unsafe`.
const SAFETY_LINES_ABOVE_MAX: usize = 8;

/// Files that are mostly one table: read by looking up, not from top to bottom, so their length costs nobody.
const TABLES: [(&str, &str); 2] = [
    (
        "proto/src/answer/reason.rs",
        "every refusal's status, code, message and metric: one row each",
    ),
    (
        "src/config/table.rs",
        "every key of the configuration: one row each",
    ),
];

/// Functions that are one list, with the reason: read by looking up, like the tables above.
const TABLE_FUNCTIONS: [(&str, &str, &str); 1] = [(
    "src/core/src/shard/counters.rs",
    "stats",
    "every metric of a shard: one entry each, no decision",
)];

/// The ring: memory shared with the kernel.
const UNSAFE_RING_FILES: [&str; 3] = [
    "io/src/uring/ring.rs",
    "io/src/uring/buffers.rs",
    "io/src/uring/setup.rs",
];

/// What io may see of core: the seam's data types.
const SEAM: [&str; 6] = ["port", "time", "mail", "rng", "tls", "limit::lease"];

/// Words that mean a clock, a socket, a thread, a file or entropy; nothing of it exists in proto and core.
const OUTSIDE_WORLD: [&str; 15] = [
    "std",
    "Instant",
    "SystemTime",
    "getrandom",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "RandomState",
    "thread_rng",
    "OsRng",
    "libc",
    "File",
    "async",
    "await",
];

/// Runs every rule that applies to this file.
pub fn check(source: &Source) -> Vec<Finding> {
    let rules: [fn(&Source, &mut Vec<Finding>); 12] = [
        file_length,
        function_lengths,
        module_header,
        no_unwrap,
        no_leftovers,
        names,
        unsafe_places,
        lints_stay_on,
        pure_layers,
        seam,
        no_sleeps_in_tests,
        limits_documented,
    ];
    let mut findings = Vec::new();
    for rule in rules {
        rule(source, &mut findings);
    }
    findings
}

fn say(findings: &mut Vec<Finding>, source: &Source, line: usize, message: String) {
    findings.push(Finding {
        path: source.path.clone(),
        line,
        message,
    });
}

fn file_length(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source.code_lines();
    if lines > FILE_LINES_MAX && !TABLES.iter().any(|(path, _)| *path == source.path) {
        say(
            findings,
            source,
            0,
            format!("{lines} lines of code; {FILE_LINES_MAX} at most: split it by idea"),
        );
    }
}

fn function_lengths(source: &Source, findings: &mut Vec<Finding>) {
    for function in source.functions() {
        let is_table = TABLE_FUNCTIONS
            .iter()
            .any(|(path, name, _)| *path == source.path && *name == function.name);
        if function.body_lines > FUNCTION_LINES_MAX
            && !is_table
            && !source.is_test[function.line - 1]
        {
            let (name, lines) = (function.name, function.body_lines);
            let message =
                format!("`{name}` has {lines} lines of code; {FUNCTION_LINES_MAX} at most");
            say(findings, source, function.line, message);
        }
    }
}

fn module_header(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source
        .comments
        .iter()
        .filter(|line| line.trim_start().starts_with("//!"))
        .count();
    if lines == 0 {
        say(
            findings,
            source,
            1,
            "no `//!` header that says what this module is".to_string(),
        );
    } else if lines > HEADER_LINES_MAX {
        say(
            findings,
            source,
            1,
            format!("a header of {lines} lines; {HEADER_LINES_MAX} at most"),
        );
    }
}

fn no_unwrap(source: &Source, findings: &mut Vec<Finding>) {
    for (line, text) in source
        .shipped()
        .filter(|(_, text)| text.contains(".unwrap()"))
    {
        let _ = text;
        let message =
            "`unwrap`: use an error, or `expect` with the invariant that holds".to_string();
        say(findings, source, line, message);
    }
}

fn no_leftovers(source: &Source, findings: &mut Vec<Finding>) {
    for (line, text) in source.every() {
        let squeezed: String = text.split_whitespace().collect();
        for left in ["todo!", "unimplemented!", "dbg!"] {
            let name = &left[..left.len() - 1];
            if squeezed.contains(left) && words(text).any(|(_, word)| word == name) {
                say(
                    findings,
                    source,
                    line,
                    format!("`{left}` is work left over"),
                );
            }
        }
        if squeezed.contains("#[ignore]") {
            say(
                findings,
                source,
                line,
                "a test ignored without a reason".to_string(),
            );
        }
        for (_, word) in words(&source.comments[line - 1]) {
            if ["TODO", "FIXME", "XXX", "HACK"].contains(&word) {
                say(
                    findings,
                    source,
                    line,
                    format!("`{word}` in a comment is work left over"),
                );
            }
        }
    }
}

/// Names that say nothing about what a thing does.
fn is_empty_name(word: &str) -> bool {
    [
        "manager",
        "helper",
        "helpers",
        "util",
        "utils",
        "utility",
        "utilities",
    ]
    .contains(&word)
}

fn names(source: &Source, findings: &mut Vec<Finding>) {
    for part in source.path.trim_end_matches(".rs").split(['/', '_', '-']) {
        if is_empty_name(part) || part == "common" {
            say(
                findings,
                source,
                0,
                format!("a file named `{part}` says nothing about what it holds"),
            );
        }
    }
    for (line, text) in source.every() {
        let mut before = "";
        for (_, word) in words(text) {
            let parts = name_parts(word);
            let is_type = ["struct", "enum", "trait", "type", "mod", "union"].contains(&before);
            let is_empty = parts.iter().any(|part| is_empty_name(part));
            let says_common = before == "mod" && parts.iter().any(|part| part == "common");
            if (is_type || before == "fn") && (is_empty || says_common) {
                say(
                    findings,
                    source,
                    line,
                    format!("the name `{word}` says nothing about what it does"),
                );
            }
            if before == "fn"
                && parts.len() > 1
                && ["handle", "process"].contains(&parts[0].as_str())
            {
                say(
                    findings,
                    source,
                    line,
                    format!("`{word}`: name what it does, not that it handles something"),
                );
            }
            before = word;
        }
    }
}

/// `ConnManager` and `conn_manager` both have the parts `conn` and `manager`.
fn name_parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            parts.push(String::new());
        }
        if c != '_' {
            parts
                .last_mut()
                .expect("never empty")
                .extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn unsafe_places(source: &Source, findings: &mut Vec<Finding>) {
    let is_allocator = source.is_test.iter().all(|&is_test| is_test)
        && source.code.iter().any(|text| text.contains("GlobalAlloc"));
    let allowed = source.path.starts_with("io/src/sys/")
        || UNSAFE_RING_FILES.contains(&source.path.as_str())
        || is_allocator;
    for (line, text) in source.every() {
        let Some(at) = text
            .find("unsafe")
            .filter(|_| words(text).any(|(_, word)| word == "unsafe"))
        else {
            continue;
        };
        if !allowed {
            say(
                findings,
                source,
                line,
                "unsafe lives in io/src/sys, the ring files and test allocators".to_string(),
            );
        }
        // A method of an unsafe trait has its contract from there; its body's blocks are looked at one by one.
        let is_declaration = text[at..].starts_with("unsafe fn") && is_allocator;
        let above = line.saturating_sub(SAFETY_LINES_ABOVE_MAX + 1)..line;
        if !is_declaration
            && !source.comments[above]
                .iter()
                .any(|comment| comment.contains("SAFETY:") || comment.contains("# Safety"))
        {
            say(
                findings,
                source,
                line,
                "unsafe without a SAFETY comment above it".to_string(),
            );
        }
    }
}

/// rustc sees which items are public; here only that nobody switches its lints off. `tests/all.sh` denies warnings.
fn lints_stay_on(source: &Source, findings: &mut Vec<Finding>) {
    for (line, text) in source
        .shipped()
        .filter(|(_, text)| text.contains("allow(") || text.contains("expect("))
    {
        for (_, word) in words(text) {
            if [
                "missing_docs",
                "undocumented_unsafe_blocks",
                "unwrap_used",
                "warnings",
            ]
            .contains(&word)
            {
                say(
                    findings,
                    source,
                    line,
                    format!("`{word}` stays on outside tests"),
                );
            }
        }
    }
}

/// Looks up from `line` over attributes (which may span lines) for `///`.
fn has_doc_above(source: &Source, line: usize) -> bool {
    let mut open_brackets = 0_i32;
    for at in (0..line - 1).rev() {
        let (code, comment) = (source.code[at].trim(), source.comments[at].trim());
        if comment.starts_with("///") && code.is_empty() {
            return true;
        }
        open_brackets += count(code, ']') - count(code, '[');
        let is_attribute = code.starts_with("#[") && open_brackets <= 0;
        if !(is_attribute || open_brackets > 0 || (code.is_empty() && !comment.is_empty())) {
            return false;
        }
    }
    false
}

fn count(text: &str, wanted: char) -> i32 {
    i32::try_from(text.chars().filter(|&c| c == wanted).count()).expect("a line is short")
}

/// Planted faults are chosen per thread, in builds for tests only.
const PLANTED: &str = "src/core/src/planted.rs";

/// Where a float is read and handed on, and nothing is decided by it.
const FLOATS: [&str; 1] = ["proto/src/resp/value.rs"]; // RESP3's doubles

fn is_pure(path: &str) -> bool {
    path.starts_with("proto/src/") || (path.starts_with("src/core/src/") && path != PLANTED)
}

fn pure_layers(source: &Source, findings: &mut Vec<Finding>) {
    if ["proto/src/lib.rs", "src/core/src/lib.rs"].contains(&source.path.as_str()) {
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !source.code.iter().any(|text| text.trim() == attribute) {
                say(findings, source, 1, format!("`{attribute}` is missing"));
            }
        }
    }
    if !is_pure(&source.path) {
        return;
    }
    for (line, text) in source.shipped() {
        for (_, word) in words(text) {
            if OUTSIDE_WORLD.contains(&word) {
                let message = format!(
                    "`{word}`: proto and core have no clock, socket, file, thread or entropy"
                );
                say(findings, source, line, message);
            }
            if ["f32", "f64"].contains(&word) && !FLOATS.contains(&source.path.as_str()) {
                say(
                    findings,
                    source,
                    line,
                    format!("`{word}`: decisions are made in integers"),
                );
            }
        }
    }
}

/// io sees of core only the seam; and core's tests aside, nothing of ours but core.
fn seam(source: &Source, findings: &mut Vec<Finding>) {
    if !source.path.starts_with("io/src/") {
        return;
    }
    for (line, text) in source.shipped() {
        for (at, _) in text.match_indices("weir_core::") {
            let rest = &text[at + "weir_core::".len()..];
            let is_seam = SEAM.iter().any(|module| {
                rest.strip_prefix(module)
                    .is_some_and(|after| after.starts_with("::") || after.starts_with(';'))
            });
            if !is_seam {
                let name = rest.split([':', ';', ' ']).next().unwrap_or("");
                say(
                    findings,
                    source,
                    line,
                    format!("io uses weir_core::{name}; the seam is {}", SEAM.join(", ")),
                );
            }
        }
        for (_, word) in words(text) {
            if ["weir_proto", "weir_bench", "weir"].contains(&word) {
                say(findings, source, line, format!("io must not know `{word}`"));
            }
        }
    }
}

fn no_sleeps_in_tests(source: &Source, findings: &mut Vec<Finding>) {
    for (line, text) in source.every().filter(|&(line, _)| source.is_test[line - 1]) {
        let calls_sleep = ["sleep(", "sleep_ms(", "park_timeout("]
            .iter()
            .any(|call| text.contains(call));
        let names_sleep =
            words(text).any(|(_, word)| ["sleep", "sleep_ms", "park_timeout"].contains(&word));
        if calls_sleep && names_sleep {
            say(
                findings,
                source,
                line,
                "a test that sleeps: wait for what must happen instead".to_string(),
            );
        }
    }
}

fn limits_documented(source: &Source, findings: &mut Vec<Finding>) {
    if !source.path.ends_with("/limits.rs") {
        return;
    }
    for (line, text) in source.shipped() {
        let mut found = words(text)
            .map(|(_, word)| word)
            .skip_while(|word| ["pub", "crate", "super"].contains(word));
        if found.next() == Some("const")
            && !text.contains(" const fn")
            && !has_doc_above(source, line)
        {
            let name = found.next().unwrap_or("");
            say(
                findings,
                source,
                line,
                format!("`{name}`: a limit says why it is this number"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages' lines for one file made of `text` under a header.
    fn found(path: &str, text: &str) -> Vec<usize> {
        let source = Source::new(path, &format!("//! What it is.\n{text}"));
        check(&source).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn lengths() {
        let body = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines));
        assert_eq!(found("src/a.rs", &body(70)), []);
        assert_eq!(found("src/a.rs", &body(71)), [2]);
        assert_eq!(
            found(
                "src/a.rs",
                &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", body(500))
            ),
            []
        );
        assert_eq!(found("tests/a.rs", &body(500)), []);
        assert_eq!(found("src/a.rs", &"const A: u8 = 1;\n".repeat(450)), []);
        assert_eq!(found("src/a.rs", &"const A: u8 = 1;\n".repeat(451)), [0]);
        assert_eq!(
            found("src/config/table.rs", &"const A: u8 = 1;\n".repeat(451)),
            []
        );
        assert_eq!(found("src/a.rs", &"//!\n".repeat(14)), []);
        assert_eq!(found("src/a.rs", &"//!\n".repeat(15)), [1]);
        assert_eq!(check(&Source::new("src/a.rs", "fn f() {}")).len(), 1);
    }

    #[test]
    fn leftovers_and_unwrap() {
        assert_eq!(found("src/a.rs", "fn f() { a.unwrap() }"), [2]);
        assert_eq!(found("src/a.rs", "fn f() { a.expect(\".unwrap()\") }"), []);
        assert_eq!(found("tests/a.rs", "fn f() { a.unwrap() }"), []);
        assert_eq!(
            found(
                "tests/a.rs",
                "fn f() {\n todo!();\n dbg!(1);\n unimplemented!()\n}"
            ),
            [3, 4, 5]
        );
        assert_eq!(
            found(
                "src/a.rs",
                concat!("// FIX", "ME later\n// XX", "X\n// TO", "DO")
            ),
            [2, 3, 4]
        );
        assert_eq!(
            found(
                "tests/a.rs",
                "#[ignore]\nfn f() {}\n#[ignore = \"needs root\"]\nfn g() {}"
            ),
            [2]
        );
        assert_eq!(
            found(
                "tests/a.rs",
                "fn f() {\n std::thread::sleep(d);\n will_sleep();\n}"
            ),
            [3]
        );
    }

    #[test]
    fn empty_names() {
        assert_eq!(found("src/utils.rs", ""), [0]);
        assert_eq!(found("src/common/mod.rs", ""), [0]);
        assert_eq!(
            found(
                "src/a.rs",
                "struct ConnManager;\nmod helper;\nfn handle_it() {}\nfn process_it() {}"
            ),
            [2, 3, 4, 5]
        );
        assert_eq!(
            found(
                "src/a.rs",
                "fn common_prefix() {}\nfn handler() {}\nfn process() {}\nstruct Utilisation;"
            ),
            []
        );
    }

    #[test]
    fn unsafe_code() {
        let good = "// SAFETY: the kernel keeps it.\nfn f() { unsafe { g() } }";
        assert_eq!(found("io/src/sys/a.rs", good), []);
        assert_eq!(found("io/src/sys/a.rs", "fn f() { unsafe { g() } }"), [2]);
        assert_eq!(found("src/a.rs", good), [3]);
        assert_eq!(
            found("src/a.rs", "// unsafe\nconst A: &str = \"unsafe\";"),
            []
        );
        assert_eq!(found("src/a.rs", "#![forbid(unsafe_code)]"), []);
        let allocator = "// SAFETY: passed on.\nunsafe impl GlobalAlloc for A {\n}\n";
        assert_eq!(found("proto/tests/a.rs", allocator), []);
        assert_eq!(
            found(
                "proto/tests/a.rs",
                &allocator.replace("GlobalAlloc", "Send")
            ),
            [3]
        );
    }

    #[test]
    fn docs() {
        assert_eq!(
            found(
                "src/a.rs",
                "#![allow(missing_docs)]\n#[expect(clippy::unwrap_used)]\nfn f() {}"
            ),
            [2, 3]
        );
        assert_eq!(found("tests/a.rs", "#![allow(clippy::unwrap_used)]"), []);
        assert_eq!(
            found(
                "src/limits.rs",
                "const A: u8 = 1;\n/// Why.\n#[cfg(any(\n    a,\n))]\npub(crate) const B: u8 = 1;\n"
            ),
            [2]
        );
    }

    #[test]
    fn layers() {
        let head = "#![no_std]\n#![forbid(unsafe_code)]\n";
        assert_eq!(found("proto/src/lib.rs", head), []);
        assert_eq!(found("src/core/src/lib.rs", ""), [1, 1]);
        assert_eq!(
            found(
                "src/core/src/a.rs",
                "use std::time::Instant;\nuse core::fmt;"
            ),
            [2, 2]
        );
        assert_eq!(found("src/core/src/a.rs", "fn f(x: f64) {}"), [2]);
        assert_eq!(found("proto/src/resp/value.rs", "fn f(x: f64) {}"), []);
        assert_eq!(
            found(
                "src/core/src/a.rs",
                "#[cfg(test)]\nmod tests {\n    use std::vec;\n}"
            ),
            []
        );
        assert_eq!(
            found(
                "io/src/a.rs",
                "use weir_core::port::Event;\nuse weir_core::limit::lease;\n"
            ),
            []
        );
        assert_eq!(
            found(
                "io/src/a.rs",
                "use weir_core::ledger::Ledger;\nuse weir_core::{port, time};\nuse weir_proto::ids;"
            ),
            [2, 3, 4]
        );
    }
}
