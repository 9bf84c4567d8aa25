//! The house rules that a machine can check (`CONTRIBUTING.md` lists them; the rest is taste).
//!
//! Every Rust file and manifest of the tree is read, nothing is built. The checkers have tests of their own, with
//! planted faults: a rule that cannot fail guards nothing.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use std::fs;
use std::path::Path;

#[path = "tidy/field_bugs.rs"]
mod field_bugs;
#[path = "tidy/manifest.rs"]
mod manifest;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

/// One thing that is wrong; line 0 means the file as a whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// From the root of the repository.
    pub path: String,
    /// Starting at 1.
    pub line: usize,
    /// What, and what to do.
    pub message: String,
}

/// Files under `folder` that `wanted` likes, as paths from `root`; build output and hidden folders are left out.
fn walk(root: &Path, folder: &str, wanted: fn(&str) -> bool, found: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if folder.is_empty() {
            name.clone()
        } else {
            format!("{folder}/{name}")
        };
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && name != "target" {
                walk(root, &path, wanted, found);
            }
        } else if wanted(&name) {
            found.push(path);
        }
    }
}

fn paths(wanted: fn(&str) -> bool) -> Vec<String> {
    let mut paths = Vec::new();
    walk(
        Path::new(env!("CARGO_MANIFEST_DIR")),
        "",
        wanted,
        &mut paths,
    );
    paths.sort();
    paths
}

fn files(wanted: fn(&str) -> bool) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    paths(wanted)
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(root.join(&path)).unwrap()))
        .collect()
}

fn report(findings: &[Finding]) {
    let lines: Vec<String> = findings
        .iter()
        .map(|f| format!("  {}:{}: {}", f.path, f.line, f.message))
        .collect();
    assert!(
        findings.is_empty(),
        "{} untidy places:\n{}\n",
        findings.len(),
        lines.join("\n")
    );
}

#[test]
fn every_rust_file_is_tidy() {
    let files = files(|name| name.ends_with(".rs"));
    assert!(
        files.len() > 100,
        "only {} files found: is this the root of the tree?",
        files.len()
    );
    let findings: Vec<Finding> = files
        .iter()
        .flat_map(|(path, text)| rules::check(&source::Source::new(path, text)))
        .collect();
    report(&findings);
}

#[test]
fn every_manifest_keeps_its_layer_and_gives_its_reasons() {
    let mut findings = Vec::new();
    for (path, text) in files(|name| name == "Cargo.toml") {
        findings.extend(manifest::check_package(&path, &text));
        findings.extend(manifest::check_reasons(&path, &text));
        if path == "Cargo.toml" {
            findings.extend(manifest::check_lints(&path, &text));
        }
    }
    report(&findings);
}

/// The files that a document names in backticks, such as `shard/admit.rs`.
fn named_files(document: &str) -> Vec<&str> {
    let quoted = document.split('`').skip(1).step_by(2);
    let is_file = |name: &&str| {
        [".rs", ".py", ".sh", ".md", ".toml", ".c"]
            .iter()
            .any(|ending| name.ends_with(ending))
    };
    let is_name = |name: &&str| !name.contains([' ', '*', '\n']) && !name.starts_with('.');
    quoted.filter(is_file).filter(is_name).collect()
}

#[test]
fn documents_name_files_that_exist() {
    let paths = paths(|_| true);
    let exists = |name: &str| {
        paths
            .iter()
            .any(|path| path == name || path.ends_with(&format!("/{name}")))
    };
    let mut count = 0;
    for (path, text) in files(|name| name.ends_with(".md")) {
        for name in named_files(&text) {
            count += 1;
            // What `weir init shop` makes is no file of the tree.
            assert!(
                exists(name) || name.starts_with("shop/"),
                "{path} names `{name}`, which does not exist"
            );
        }
    }
    assert!(count > 50, "{count} names found");
    assert_eq!(
        named_files("see `a/b.rs`, `c.md` and `fn x()`, `*.rs`"),
        ["a/b.rs", "c.md"]
    );
}

#[test]
fn every_test_file_is_in_the_list_of_tests() {
    let list =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/README.md")).unwrap();
    for path in paths(|name| name.ends_with(".rs")) {
        let Some((folder, name)) = path.rsplit_once('/') else {
            continue;
        };
        let is_test = folder == "tests" || folder.ends_with("/tests");
        assert!(
            !is_test || list.contains(&format!("`{name}`")),
            "tests/README.md does not say what {path} proves"
        );
    }
}

#[test]
fn every_field_bug_names_its_test_or_its_reason() {
    let mut tests = std::collections::BTreeSet::new();
    for (path, text) in files(|name| name.ends_with(".rs")) {
        tests.extend(field_bugs::test_names(&text));
        tests.extend(path.rsplit('/').next().map(str::to_owned));
    }
    let list =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/README.md")).unwrap();
    let problems = field_bugs::check(&list, &tests);
    assert!(problems.is_empty(), "tests/README.md: {problems:#?}");
}

/// Runs `bench/results/table.py --MODE document`.
fn table(mode: &str, document: &Path) -> bool {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/results/table.py");
    let mut python = std::process::Command::new("python3");
    let run = python.arg("-B").arg(script).arg(mode).arg(document);
    run.status().unwrap().success()
}

#[test]
fn tables_in_documents_are_those_of_their_result_files() {
    for (path, text) in files(|name| name.ends_with(".md")) {
        if text.contains("\n<!-- compare ") {
            let document = Path::new(env!("CARGO_MANIFEST_DIR")).join(&path);
            assert!(table("--check", &document), "{path}: see above");
        }
    }
}

#[test]
fn a_changed_figure_in_a_table_is_found() {
    let dir = std::env::temp_dir().join(format!("weir-tidy-table-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (result, document) = (dir.join("run.jsonl"), dir.join("doc.md"));
    let figure = r#"{"median":3.25,"low":3.0,"high":3.5}"#;
    let lines = format!(
        r#"{{"about":{{"date":"2026-11-30","kernel":"6.18","cpu":"C","command":"c","rounds":7,"commit":"x"}}}}
{{"candidate":"null","scenario":"c64","what":"the limit","rounds":7,"server_cpu_us":{figure},"disturbed_rounds":1}}
{{"ratios":{{"1 a/b":{{"value":1.05,"low":1.0,"high":1.2,"goal":1.1,"sense":"<=","ok":true}}}}}}"#
    );
    fs::write(&result, lines).unwrap();
    let name = result.display();
    fs::write(
        &document,
        format!("A\n\n<!-- compare {name} cpu goals -->\n<!-- /compare -->\n\nB\n"),
    )
    .unwrap();
    assert!(!table("--check", &document), "nothing stands there yet");
    assert!(table("--into", &document) && table("--check", &document));
    let text = fs::read_to_string(&document).unwrap();
    assert!(text.contains("3.25 (3.00–3.50)") && text.contains("| 1 a/b | 1.05 |"));
    assert!(text.starts_with("A\n\n<!--") && text.ends_with("-->\n\nB\n"));
    fs::write(&document, text.replace("3.25", "3.24")).unwrap();
    assert!(!table("--check", &document), "a figure was changed by hand");
    fs::remove_dir_all(&dir).unwrap();
}
