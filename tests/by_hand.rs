//! README's section "By hand", run as it stands: every `sh` block in one bash, against the program, its output held
//! against the `text` block that follows (`…` stands for anything). So README cannot rot.
//!
//! Only the two addresses are replaced by free ones. The tables of answers are held against the program's own.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weir_proto::answer::{EXTENSION_PAIRS, SEED_PAIRS};

/// A step of the section.
#[derive(Debug)]
struct Step {
    commands: String,
    expected: String,
}

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The `sh` blocks of the section with the `text` blocks after them.
fn steps(readme: &str) -> Vec<Step> {
    let section = readme.split("\n## By hand\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut steps: Vec<Step> = Vec::new();
    let mut kind = None;
    for line in section.lines() {
        match (line.strip_prefix("```"), kind) {
            (Some(_), Some(_)) => kind = None,
            (Some(opened), None) => {
                kind = Some(opened);
                if opened == "sh" {
                    steps.push(Step {
                        commands: String::new(),
                        expected: String::new(),
                    });
                }
            }
            (None, Some("sh")) => steps.last_mut().unwrap().commands += &format!("{line}\n"),
            (None, Some("text")) => steps.last_mut().unwrap().expected += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    steps
}

/// True when `text` is `pattern` with something, or nothing, for each `…`.
fn fits(pattern: &str, text: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('…').collect();
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
        unreachable!("split gives one piece")
    };
    if pieces.len() == 1 {
        return pattern == text;
    }
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    for piece in &pieces[1..pieces.len() - 1] {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Two addresses that nobody listens on just now. (Both are held until both are known.)
fn free_addresses() -> [String; 2] {
    let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().to_string())
}

/// A group of processes that does not outlive the test.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // The server that a failed step left behind; nothing to end after a good run.
        let _ = Command::new("kill")
            .args(["-9", "--", &format!("-{}", self.0.id())])
            .stderr(Stdio::null())
            .status();
    }
}

fn script(steps: &[Step], bin: &Path) -> String {
    let [public, ops] = free_addresses();
    let mut script = format!("set -u\nexport PATH='{}':\"$PATH\"\n", bin.display());
    for (index, step) in steps.iter().enumerate() {
        let commands = step
            .commands
            .replace("127.0.0.1:8080", &public)
            .replace("127.0.0.1:9090", &ops);
        script += &commands;
        if commands.contains("weir init shop") {
            script += &format!(
                "sed -i 's/^# listen = \"127.0.0.1:8080\"/listen = \"{public}\"/; s/^# listen = \"127.0.0.1:9090\"/listen = \"{ops}\"/' shop/weir.toml\n"
            );
        }
        script += &format!("echo '@@ end of step {index}'\n");
    }
    script
}

#[test]
fn every_command_of_the_readme_does_what_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let steps = steps(&readme());
    assert!(steps.len() >= 8, "{} steps found", steps.len());
    let bin = PathBuf::from(env!("CARGO_BIN_EXE_weir"))
        .parent()
        .unwrap()
        .to_path_buf();
    let place =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("by_hand_{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    std::os::unix::fs::symlink(root.join("deploy"), place.join("deploy")).unwrap();
    fs::write(place.join("by_hand.sh"), script(&steps, &bin)).unwrap();

    let mut bash = Command::new("timeout");
    bash.args(["--foreground", "120", "bash", "by_hand.sh"])
        .current_dir(&place)
        .process_group(0);
    let output = fs::File::create(place.join("output")).unwrap();
    bash.stdin(Stdio::null())
        .stderr(output.try_clone().unwrap())
        .stdout(output);
    let mut group = Group(bash.spawn().unwrap());
    let status = group.0.wait().unwrap();
    drop(group);

    let output = fs::read_to_string(place.join("output")).unwrap();
    let log = fs::read_to_string(place.join("shop/serve.log")).unwrap_or_default();
    let mut rest = output.as_str();
    for (index, step) in steps.iter().enumerate() {
        let end = format!("@@ end of step {index}\n");
        let (seen, after) = rest.split_once(&end).unwrap_or_else(|| {
            panic!(
                "{status} in this step:\n{}\nit printed:\n{rest}\nthe server said:\n{log}",
                step.commands
            )
        });
        assert!(
            fits(&step.expected, seen),
            "README says that\n{}\nprints\n{}\nbut it printed\n{seen}\nthe server said:\n{log}",
            step.commands,
            step.expected
        );
        rest = after;
    }
    assert!(status.success(), "{status}\n{output}");
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn the_tables_of_answers_are_complete() {
    let readme = readme();
    let rows = readme
        .lines()
        .filter(|line| {
            line.starts_with(['|']) && line.as_bytes().get(2).is_some_and(u8::is_ascii_digit)
        })
        .count();
    assert_eq!(rows, SEED_PAIRS.len() + EXTENSION_PAIRS.len());
    for (status, code) in SEED_PAIRS.iter().chain(EXTENSION_PAIRS) {
        let row = format!("| {status} | `{}` |", code.as_str());
        assert!(readme.contains(&row), "README has no row {row}");
    }
}

#[test]
fn a_pattern_that_does_not_fit_is_found() {
    assert!(fits("a…c\n", "abc\n") && fits("a…\n…\nz\n", "a1\n2\nz\n") && fits("x\n", "x\n"));
    assert!(
        !fits("a…c\n", "abd\n")
            && !fits("x\n", "x\ny\n")
            && !fits("a…b…c", "acb")
            && !fits("", "x")
    );
    let found = steps(
        "\n## By hand\n```bash\nno\n```\n```sh\nyes\n```\n```text\nseen\n```\n## Next\n```sh\nno\n```\n",
    );
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].commands.as_str(), found[0].expected.as_str()),
        ("yes\n", "seen\n")
    );
}
