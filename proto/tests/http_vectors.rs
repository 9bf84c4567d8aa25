//! Every row of `http1-vectors.jsonl` through the parser: in one piece, cut in two at every place, and byte by byte.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

#[path = "vectors/http_rows.rs"]
mod http_rows;

use http_rows::{End, Expect, Outcome, Row, drive, judge, rows};
use std::collections::BTreeMap;
use std::fmt::Write as _;

fn check(row: &Row, outcome: &Outcome) {
    judge(row, &outcome.heard()).unwrap_or_else(|fault| panic!("{}: {fault}", row.id));
}

#[test]
fn every_row_has_its_answer_in_one_piece() {
    let mut counts = BTreeMap::new();
    for row in rows() {
        check(&row, &row.model);
        *counts.entry(row.expect()).or_insert(0) += 1;
    }
    assert!(
        counts[&Expect::Accept] >= 80
            && counts[&Expect::Reject] >= 250
            && counts[&Expect::Either] >= 100,
        "{counts:?}"
    );
}

#[test]
fn every_row_has_the_same_answer_cut_in_two_anywhere_and_byte_by_byte() {
    for row in rows() {
        let check = |cut: Outcome, place: &str| {
            assert_eq!(cut.requests, row.model.requests, "{} cut {place}", row.id);
            assert_eq!(cut.end, row.model.end, "{} cut {place}", row.id);
            check(&row, &cut);
        };
        let length = row.raw.len();
        for cut in 0..length {
            check(drive(&row.raw, [cut, length]), &format!("at {cut}"));
        }
        check(drive(&row.raw, 0..=length), "at each byte");
    }
}

/// One line of the table: the row, what it is about, our answer to each of its requests.
fn choice(row: &Row) -> String {
    let mut answers: Vec<String> = Vec::new();
    answers.resize(row.model.requests.len(), "200".to_owned());
    match row.model.end {
        End::Rejected(reject) => {
            answers.push(format!("{}: {}", reject.status().code(), reject.detail()));
        }
        End::Waiting => answers.push("408 when the rest does not come".to_owned()),
        End::Idle | End::Closed => {}
    }
    let mut answers = answers.join(", then ");
    // Slower than the deadline for a head and a body (`head_timeout`, `body_timeout`).
    let delivery = row.delivery(|_, _| unreachable!("none of these rows is random"));
    if delivery.is_some_and(|delivery| delivery.gap_ms * delivery.cuts.len() as u64 > 10_000) {
        answers.push_str("; 408 when it comes at a byte per second");
    }
    let why = row.text("why").unwrap().replace('|', "\\|");
    format!("| `{}` | {why} | {answers} |\n", row.id)
}

/// Where the vectors leave the choice to us, users find ours in one table, so that a change of it is seen.
/// `WEIR_WRITE_TABLES=1 cargo test -p weir-proto --test http_vectors` writes the table anew.
#[test]
fn our_choices_are_those_of_the_table() {
    const BEGIN: &str = "| Vector | What it sends | weir's answer |\n|---|---|---|\n";
    let mut table = String::from(BEGIN);
    let choices = rows();
    let choices = choices.iter().filter(|row| row.expect() == Expect::Either);
    for row in choices {
        write!(table, "{}", choice(row)).unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/HTTP.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, written) = text.split_once(BEGIN).expect("the table's head");
    let known: String = written
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'))
        .collect();
    if std::env::var_os("WEIR_WRITE_TABLES").is_some() {
        let after = &written[known.len()..];
        std::fs::write(path, format!("{before}{table}{after}")).unwrap();
        return;
    }
    for (ours, line) in table[BEGIN.len()..].lines().zip(known.lines()) {
        assert_eq!(ours, line, "left: what weir does, right: {path}");
    }
    assert_eq!(table.len(), BEGIN.len() + known.len(), "{path}");
}
