//! The fuzz targets' checks on the stable toolchain: every file of their corpora, every vector, and seeded changes of both.
//!
//! The checks are those of `tests/fuzz` (its README says what they compare and where weir differs on purpose), so
//! that a change that breaks one is seen here and not only where a fuzzer runs.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

#[path = "fuzz/src/lib.rs"]
mod checks;

use std::fs;
use std::path::{Path, PathBuf};

/// Changed copies of each seed. The fuzzer does millions; these keep the checks themselves alive.
const CHANGES: u64 = 24;
/// Longer seeds are checked as they are, but not changed: a copy of them costs too much here.
const CHANGED_BYTES_MAX: usize = 2048;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = root().join("tests/fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// A generator that needs nothing from outside: the same changes in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// One to four changes: a byte, a cut, a repeated part, a part of another seed.
fn changed(seed: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        let until = (at + dice.below(16)).min(bytes.len());
        match dice.below(5) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            1 if at < bytes.len() => bytes[at] = b"\r\n \t:;,\"\\=.0"[dice.below(12)],
            2 => drop(bytes.drain(at..until)),
            3 => {
                let part = bytes[at..until].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let from = dice.below(other.len() + 1);
                let part = &other[from..(from + dice.below(24)).min(other.len())];
                bytes.splice(at..at, part.iter().copied());
            }
        }
    }
    bytes
}

fn run(target: &str) {
    let (_, check) = checks::TARGETS
        .iter()
        .find(|(name, _)| *name == target)
        .unwrap();
    let seeds = corpus(target);
    assert!(seeds.len() >= 20, "{target}: only {} seeds", seeds.len());
    let mut dice = Dice(0x5eed);
    let mut count = 0;
    let mut try_one = |bytes: &[u8]| {
        count += 1;
        if let Err(difference) = check(bytes) {
            panic!(
                "{target}: {difference}\nin {:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    };
    for seed in &seeds {
        try_one(seed);
        for _ in 0..if seed.len() <= CHANGED_BYTES_MAX {
            CHANGES
        } else {
            0
        } {
            let other = &seeds[dice.below(seeds.len())];
            try_one(&changed(seed, other, &mut dice));
        }
    }
    println!("differential {target}: {count} inputs, 0 unexplained differences");
}

#[test]
fn http() {
    run("http");
}

#[test]
fn json() {
    run("json");
}

#[test]
fn ticket() {
    run("ticket");
}

#[test]
fn forwarded() {
    run("forwarded");
}

#[test]
fn config() {
    run("config");
    checks::config::clean_up();
}

#[test]
fn resp() {
    run("resp");
}

/// A check that cannot fail guards nothing: each sees the difference when its two sides read different bytes.
#[test]
fn the_models_see_what_differs() {
    use checks::http_model::{Seen, read};
    let raw =
        b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let Seen::Done(facts) = read(raw) else {
        panic!("refused");
    };
    assert_eq!(
        (facts.body.as_slice(), facts.consumed),
        (&b"abc"[..], raw.len())
    );
    assert_eq!(read(&raw[..raw.len() - 1]), Seen::NeedMore);
    let smuggled = String::from_utf8_lossy(raw).replace("Host: h", "Host: h\r\nContent-Length: 3");
    assert!(matches!(read(smuggled.as_bytes()), Seen::Reject(_)));
}

#[test]
fn the_model_of_redis_replies_sees_what_differs() {
    use checks::resp_model::{Node, Stop, read};
    use weir_proto::resp::RespReject;
    let raw = b"*2\r\n:1\r\n$-1\r\n+x\r\n";
    let reply = read(raw).unwrap();
    assert_eq!(reply.node, Node::Array(vec![Node::Integer(1), Node::Null]));
    assert_eq!(
        (reply.bytes, reply.plain.as_slice()),
        (13, &b"*2\r\n:1\r\n_\r\n"[..])
    );
    assert_eq!(read(&raw[..12]).unwrap_err(), Stop::NeedMore);
    assert_eq!(
        read(b"*2\r\n:1x\r\n").unwrap_err(),
        Stop::Reject(RespReject::Integer)
    );
}

#[test]
fn every_difference_from_redis_protocol_is_in_the_table_and_can_be_seen() {
    use checks::resp::{NARROWER, STRICTER, narrower, stricter};
    let readme = fs::read_to_string(root().join("tests/fuzz/README.md")).unwrap();
    let has_row = |name: String, text: &str| {
        let mut rows = readme.lines();
        let row = rows.find(|line| line.starts_with(&format!("| resp `{name}`")));
        assert!(
            row.is_some_and(|row| row.contains(text)),
            "{name} has no row with {text:?}"
        );
    };
    let seeds = corpus("resp");
    for (reject, text) in STRICTER {
        has_row(format!("{reject:?}"), text);
        assert!(
            seeds.iter().any(|raw| stricter(raw) == Some(reject)),
            "no seed shows {reject:?}"
        );
    }
    for difference in NARROWER {
        has_row(format!("{difference:?}"), "weir");
        assert!(
            seeds.iter().any(|raw| narrower(raw) == [difference]),
            "no seed shows {difference:?} alone"
        );
    }
}

#[test]
fn every_difference_on_purpose_is_in_the_table_and_can_be_seen() {
    let readme = fs::read_to_string(root().join("tests/fuzz/README.md")).unwrap();
    let seeds = corpus("http");
    for (reject, rfc) in checks::http::STRICTER {
        let row = readme
            .lines()
            .find(|line| line.starts_with(&format!("| http `{reject:?}`")));
        assert!(
            row.is_some_and(|row| row.contains(rfc)),
            "{reject:?} has no row with {rfc}"
        );
    }
    let unseen: Vec<_> = checks::http::STRICTER
        .iter()
        .filter(|(reject, _)| {
            !seeds
                .iter()
                .any(|raw| checks::http::stricter(raw) == Some(*reject))
        })
        .collect();
    assert!(
        unseen.is_empty(),
        "no seed shows {unseen:?}: take the rows away or add seeds"
    );
}
