//! The list of field bugs in `tests/README.md`: every row of the three catalogues once, every test named is there.

use std::collections::BTreeSet;

/// The rows of one catalogue, under its heading.
struct Catalogue {
    heading: &'static str,
    rows: Vec<String>,
}

fn catalogues() -> [Catalogue; 3] {
    let numbered = |letter: char, last: u32, width: usize, missing: &[u32]| -> Vec<String> {
        (1..=last)
            .filter(|number| !missing.contains(number))
            .map(|number| format!("{letter}{number:0width$}"))
            .collect()
    };
    let sales = [
        numbered('R', 19, 1, &[]),
        numbered('Q', 34, 1, &[5, 18, 27, 31, 32]),
        numbered('O', 20, 1, &[]),
    ];
    [
        ("### Limiters", numbered('B', 50, 2, &[])),
        ("### Servers, stores, brokers", numbered('R', 69, 2, &[])),
        ("### Sales", sales.concat()),
    ]
    .map(|(heading, rows)| Catalogue { heading, rows })
}

/// What is wrong with the list. `tests`: the names of all test functions and test files.
pub fn check(document: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for catalogue in catalogues() {
        let heading = catalogue.heading;
        let Some((_, section)) = document.split_once(&format!("{heading}\n")) else {
            problems.push(format!("no section {heading:?}"));
            continue;
        };
        let section = section.split("\n#").next().unwrap_or_default();
        let rows: Vec<(&str, &str)> = section
            .lines()
            .filter_map(|line| {
                let mut cells = line.trim_matches('|').split('|').map(str::trim);
                Some((cells.next()?, cells.nth(1)?))
            })
            .filter(|(id, _)| id.ends_with(|c: char| c.is_ascii_digit()))
            .collect();
        let ids: Vec<&str> = rows.iter().map(|(id, _)| *id).collect();
        if ids != catalogue.rows {
            problems.push(format!(
                "{heading}: the rows must be {:?}, in order",
                catalogue.rows
            ));
        }
        problems.extend(rows.iter().filter_map(|(id, cell)| {
            let problem = check_cell(cell, tests)?;
            Some(format!("{heading}, {id}: {problem}"))
        }));
    }
    problems
}

/// A cell names tests, or says why there are none.
fn check_cell(cell: &str, tests: &BTreeSet<String>) -> Option<String> {
    let named = cell.split('`').skip(1).step_by(2);
    let is_test = |name: &&str| name.contains('_') || name.ends_with(".rs");
    let named: Vec<&str> = named.filter(is_test).collect();
    if let Some(lost) = named.iter().find(|name| !tests.contains(**name)) {
        return Some(format!("there is no test `{lost}`"));
    }
    let has_reason = ["later: ", "cannot"]
        .iter()
        .any(|word| cell.starts_with(word));
    (named.is_empty() && !has_reason).then(|| "names no test and gives no reason".to_owned())
}

/// The names of the test functions of a Rust file, and of its conformance stories: one that is not played is dead code,
/// which the compiler finds.
pub fn test_names(text: &str) -> impl Iterator<Item = String> {
    let functions = text.split("#[test]").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once("fn ")?;
        let end = rest.find('(')?;
        Some(rest[..end].to_owned())
    });
    let stories = text.lines().filter_map(|line| {
        let name = line.strip_prefix("pub fn ")?;
        let name = name.strip_suffix("(h: &mut dyn Harness) {")?;
        Some(name.to_owned())
    });
    functions.chain(stories)
}

#[test]
fn rows_without_a_test_are_found() {
    let tests: BTreeSet<String> =
        test_names("#[test]\n#[ignore]\nfn a_b() {}\npub fn a_story(h: &mut dyn Harness) {\n")
            .chain(["c_d.rs".to_owned()])
            .collect();
    for (cell, is_good) in [
        ("`a_b`, `c_d.rs`, `a_story`", true),
        ("cannot: one thread", true),
        ("later: Redis; `a_b`", true),
        ("`a_x`", false),
        ("later: Redis; `a_x`", false),
        ("one thread", false),
    ] {
        assert_eq!(check_cell(cell, &tests).is_none(), is_good, "{cell}");
    }
    assert_eq!(check("### Sales\n", &tests).len(), 3);
}
