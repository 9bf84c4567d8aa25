//! Properties of the Redis protocol's reader: what is written is read back, cuts do not matter, nothing panics, limits
//! hold to the byte.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::Range;
use weir_proto::limits::*;
use weir_proto::resp::{ErrorReply, RespReject, Scan, Scanner, Value, command, read};

/// A reply as a test makes it: a value with the attributes before it, and each way to write it.
#[derive(Clone, Debug)]
enum Made {
    Simple(String),
    Error(String),
    BlobError(Vec<u8>),
    Integer(i64, bool),
    Bulk(Vec<u8>),
    Null(usize),
    Double(f64),
    Boolean(bool),
    BigNumber(String),
    Verbatim(Vec<u8>),
    Aggregate(u8, Vec<Made>),
    Attributed(Vec<Made>, Box<Made>),
}

impl Made {
    fn write(&self, out: &mut Vec<u8>) {
        let line = |out: &mut Vec<u8>, kind: char, text: &str| {
            out.extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
        };
        let blob = |out: &mut Vec<u8>, kind: char, bytes: &[u8]| {
            line(out, kind, &bytes.len().to_string());
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        };
        match self {
            Made::Simple(text) => line(out, '+', text),
            Made::Error(text) => line(out, '-', text),
            Made::BlobError(bytes) => blob(out, '!', bytes),
            Made::Integer(number, true) if *number >= 0 => line(out, ':', &format!("+{number}")),
            Made::Integer(number, _) => line(out, ':', &number.to_string()),
            Made::Bulk(bytes) => blob(out, '$', bytes),
            Made::Null(way) => {
                out.extend_from_slice(["_\r\n", "$-1\r\n", "*-1\r\n"][*way].as_bytes())
            }
            Made::Double(number) if number.is_nan() => line(out, ',', "nan"),
            Made::Double(number) => line(out, ',', &number.to_string()),
            Made::Boolean(is_true) => line(out, '#', if *is_true { "t" } else { "f" }),
            Made::BigNumber(digits) => line(out, '(', digits),
            Made::Verbatim(bytes) => blob(out, '=', &[b"mkd:", bytes.as_slice()].concat()),
            Made::Aggregate(kind, items) => {
                let items = if *kind == b'%' {
                    &items[..items.len() & !1]
                } else {
                    items
                };
                let count = if *kind == b'%' {
                    items.len() / 2
                } else {
                    items.len()
                };
                line(out, char::from(*kind), &count.to_string());
                items.iter().for_each(|item| item.write(out));
            }
            Made::Attributed(attributes, value) => {
                let pairs = &attributes[..attributes.len() & !1];
                line(out, '|', &(pairs.len() / 2).to_string());
                pairs.iter().for_each(|item| item.write(out));
                value.write(out);
            }
        }
    }

    /// Aggregates inside one another.
    fn depth(&self) -> usize {
        let deepest = |items: &[Made]| items.iter().map(Made::depth).max().unwrap_or(0);
        match self {
            Made::Aggregate(_, items) => 1 + deepest(items),
            Made::Attributed(attributes, value) => (1 + deepest(attributes)).max(value.depth()),
            _ => 0,
        }
    }

    /// Panics unless `value` is this.
    fn check(&self, value: Value<'_>) {
        let code = |text: &[u8]| {
            text.split(|&byte| byte == b' ')
                .next()
                .unwrap_or_default()
                .to_vec()
        };
        let error = |text: &[u8], error: ErrorReply<'_>| {
            assert_eq!((error.code, error.text), (code(text).as_slice(), text));
        };
        match (self, value) {
            (Made::Simple(text), Value::Simple(read)) => assert_eq!(text.as_bytes(), read),
            (Made::Error(text), Value::Error(read)) => error(text.as_bytes(), read),
            (Made::BlobError(bytes), Value::Error(read)) => error(bytes, read),
            (Made::Integer(number, _), Value::Integer(read)) => assert_eq!(*number, read),
            (Made::Bulk(bytes), Value::Bulk(read)) => assert_eq!(bytes, read),
            (Made::Null(_), Value::Null) => {}
            (Made::Double(number), Value::Double(read)) if number.is_nan() => {
                assert!(read.is_nan())
            }
            (Made::Double(number), Value::Double(read)) => {
                assert_eq!(number.to_bits(), read.to_bits())
            }
            (Made::Boolean(is_true), Value::Boolean(read)) => assert_eq!(*is_true, read),
            (Made::BigNumber(digits), Value::BigNumber(read)) => {
                assert_eq!(digits.as_bytes(), read)
            }
            (Made::Verbatim(bytes), Value::Verbatim { format, text }) => {
                assert_eq!((&format, bytes.as_slice()), (b"mkd", text));
            }
            (Made::Aggregate(b'*', items), Value::Array(read))
            | (Made::Aggregate(b'~', items), Value::Set(read)) => {
                assert_eq!(
                    (items.len(), items.is_empty()),
                    (read.len(), read.is_empty())
                );
                items
                    .iter()
                    .zip(read)
                    .for_each(|(item, read)| item.check(read));
            }
            (Made::Aggregate(b'%', items), Value::Map(read)) => {
                assert_eq!(items.len() & !1, read.len());
                items
                    .iter()
                    .zip(read)
                    .for_each(|(item, read)| item.check(read));
            }
            (Made::Attributed(_, inner), read) => inner.check(read),
            (made, read) => panic!("{made:?} is read as {read:?}"),
        }
    }
}

fn made() -> impl Strategy<Value = Made> {
    let leaf = prop_oneof![
        "[^\r\n]{0,12}".prop_map(Made::Simple),
        "[A-Z]{0,6}( [^\r\n]{0,12})?".prop_map(Made::Error),
        vec(any::<u8>(), 0..12).prop_map(Made::BlobError),
        (any::<i64>(), any::<bool>()).prop_map(|(number, plus)| Made::Integer(number, plus)),
        vec(any::<u8>(), 0..20).prop_map(Made::Bulk),
        (0..3_usize).prop_map(Made::Null),
        any::<f64>().prop_map(Made::Double),
        any::<bool>().prop_map(Made::Boolean),
        "-?[0-9]{1,40}".prop_map(Made::BigNumber),
        vec(any::<u8>(), 0..12).prop_map(Made::Verbatim),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let kind = prop_oneof![Just(b'*'), Just(b'%'), Just(b'~')];
        prop_oneof![
            4 => (kind, vec(inner.clone(), 0..6)).prop_map(|(kind, items)| Made::Aggregate(kind, items)),
            1 => (vec(inner.clone(), 0..4), inner)
                .prop_map(|(attributes, value)| Made::Attributed(attributes, Box::new(value))),
        ]
    })
    .prop_filter("deeper than what is taken", |made| made.depth() <= RESP_DEPTH_MAX)
}

/// The replies in `raw`, whose pieces end at `cuts`, and the last verdict.
fn story(raw: &[u8], cuts: impl IntoIterator<Item = usize>) -> (Vec<Range<usize>>, Scan) {
    let mut scanner = Scanner::new();
    let (mut replies, mut start, mut last) = (Vec::new(), 0, Scan::NeedMore);
    for cut in cuts {
        while start < cut {
            last = scanner.scan(&raw[start..cut]);
            match last {
                Scan::Done { bytes } => {
                    replies.push(start..start + bytes);
                    start += bytes;
                }
                Scan::NeedMore => break,
                Scan::Reject(_) => {
                    assert_eq!(scanner.scan(&raw[start..cut]), last, "it says so again");
                    assert_eq!(scanner.scan(&raw[start..]), last, "and with more bytes");
                    return (replies, last);
                }
            }
        }
    }
    (replies, last)
}

/// Reads everything in a value; panics if the reader does.
fn walk(value: Value<'_>) -> usize {
    match value {
        Value::Array(items) | Value::Map(items) | Value::Set(items) | Value::Push(items) => {
            let declared = items.len();
            let mut walked = 0;
            let below: usize = items.inspect(|_| walked += 1).map(walk).sum();
            assert_eq!(walked, declared);
            1 + below
        }
        Value::Error(error) => {
            usize::from(error.text.starts_with(error.code)) + error.cause().len()
        }
        other => usize::from(other.text().is_some()),
    }
}

/// Bytes that look like a reply more often than chance would have it.
fn scraps() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop_oneof![
            Just("+OK\r\n"), Just("-ERR x\r\n"), Just(":1\r\n"), Just("$3\r\nabc\r\n"), Just("$-1\r\n"), Just("*2\r\n"),
            Just("%1\r\n"), Just("~2\r\n"), Just("|1\r\n"), Just(">1\r\n"), Just("=5\r\ntxt:a\r\n"), Just("!1\r\nE\r\n"),
            Just("_\r\n"), Just("#t\r\n"), Just(",1.5e3\r\n"), Just("(12\r\n"), Just("*0\r\n"), Just("|0\r\n"),
        ]
        .prop_map(|text| text.as_bytes().to_vec()),
        1 => "[+\\-:$*_#,(!=%~>|?.;0-9ate \r\n]{1,4}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 1..4),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_written_is_read_back_at_any_cuts(
        replies in vec(made(), 1..4), cuts in vec(any::<prop::sample::Index>(), 0..6)
    ) {
        let (mut raw, mut ends) = (Vec::new(), vec![0]);
        for reply in &replies {
            reply.write(&mut raw);
            ends.push(raw.len());
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(raw.len())).collect();
        cuts.sort_unstable();
        cuts.push(raw.len());
        let wanted: Vec<Range<usize>> = ends.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let (found, last) = story(&raw, cuts);
        prop_assert!(matches!(last, Scan::Done { .. }), "{last:?}");
        prop_assert_eq!(&found, &wanted);
        for (reply, range) in replies.iter().zip(found) {
            reply.check(read(&raw[range]));
        }
    }

    #[test]
    fn no_bytes_panic_and_cuts_do_not_matter(
        raw in prop_oneof![scraps(), vec(any::<u8>(), 0..64)], cuts in vec(any::<prop::sample::Index>(), 0..6)
    ) {
        let whole = story(&raw, [raw.len()]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(raw.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(raw.len());
        prop_assert_eq!(&story(&raw, cuts), &whole);
        prop_assert_eq!(&story(&raw, 1..=raw.len()), &whole);
        for range in whole.0 {
            walk(read(&raw[range]));
        }
    }

    #[test]
    fn a_command_is_an_array_of_its_parts(parts in vec(vec(any::<u8>(), 0..40), 1..6)) {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut raw = Vec::new();
        command(&mut raw, &parts);
        prop_assert_eq!(Scanner::new().scan(&raw), Scan::Done { bytes: raw.len() });
        let Value::Array(items) = read(&raw) else {
            return Err(TestCaseError::fail("no array"));
        };
        prop_assert!(items.eq(parts.into_iter().map(Value::Bulk)));
    }
}

/// At the limit: whole. One beyond: refused, at the byte that shows it and at every one behind.
fn limit(reject: RespReject, at: &[u8], beyond: &[u8], shows_at: usize) {
    assert_eq!(
        Scanner::new().scan(at),
        Scan::Done { bytes: at.len() },
        "{reject:?}"
    );
    walk(read(at));
    let before = &beyond[..shows_at - 1];
    assert_eq!(Scanner::new().scan(before), Scan::NeedMore, "{reject:?}");
    let mut scanner = Scanner::new();
    for cut in [shows_at - 1, shows_at] {
        let wanted = if cut < shows_at {
            Scan::NeedMore
        } else {
            Scan::Reject(reject)
        };
        assert_eq!(
            scanner.scan(&beyond[..cut]),
            wanted,
            "{reject:?}, {cut} bytes"
        );
    }
    assert_eq!(Scanner::new().scan(beyond), Scan::Reject(reject));
}

#[test]
fn lines_and_strings_have_their_limits() {
    let line = |bytes: usize| format!("+{}\r\n", "x".repeat(bytes)).into_bytes();
    let (at, beyond) = (line(RESP_LINE_BYTES_MAX), line(RESP_LINE_BYTES_MAX + 1));
    limit(
        RespReject::LineTooLong,
        &at,
        &beyond,
        RESP_LINE_BYTES_MAX + 2,
    );
    for kind in ["$", "!", "="] {
        let blob = |bytes: usize| {
            format!("{kind}{bytes}\r\ntxt:{}\r\n", "x".repeat(bytes - 4)).into_bytes()
        };
        let (at, beyond) = (blob(RESP_BULK_BYTES_MAX), blob(RESP_BULK_BYTES_MAX + 1));
        limit(RespReject::BulkTooLarge, &at, &beyond, 8);
    }
}

#[test]
fn elements_are_counted_at_every_depth_and_in_attributes() {
    let ones = |count: usize| ":1\r\n".repeat(count);
    let max = RESP_ELEMENTS_MAX;
    let flat = |count: usize| format!("*{count}\r\n{}", ones(count)).into_bytes();
    limit(RespReject::TooManyElements, &flat(max), &flat(max + 1), 8);
    let map = |pairs: usize| format!("%{pairs}\r\n{}", ones(2 * pairs)).into_bytes();
    limit(
        RespReject::TooManyElements,
        &map(max / 2),
        &map(max / 2 + 1),
        8,
    );
    let nested = |count: usize| format!("*2\r\n:1\r\n*{count}\r\n{}", ones(count)).into_bytes();
    limit(
        RespReject::TooManyElements,
        &nested(max - 2),
        &nested(max - 1),
        16,
    );
    let noted =
        |count: usize| format!("|1\r\n:1\r\n:1\r\n*{count}\r\n{}", ones(count)).into_bytes();
    limit(
        RespReject::TooManyElements,
        &noted(max - 2),
        &noted(max - 1),
        20,
    );
    // The next reply has a count of its own.
    let twice = [flat(max), flat(max)].concat();
    assert_eq!(story(&twice, [twice.len()]).0.len(), 2);
}

#[test]
fn aggregates_nest_to_their_limit() {
    for open in ["*1\r\n", "|1\r\n:1\r\n"] {
        let deep = |depth: usize| match open {
            "*1\r\n" => format!("{}:1\r\n", open.repeat(depth)).into_bytes(),
            // Attributes of values of attributes; each value is then followed by what the attribute was about.
            _ => format!("{}:1\r\n{}", open.repeat(depth), ":1\r\n".repeat(depth)).into_bytes(),
        };
        let shows_at = RESP_DEPTH_MAX * open.len() + 4;
        limit(
            RespReject::TooDeep,
            &deep(RESP_DEPTH_MAX),
            &deep(RESP_DEPTH_MAX + 1),
            shows_at,
        );
    }
}

#[test]
fn a_reply_has_its_limit() {
    // Fifteen strings of the greatest length, and a last one that fills the reply: `$65416` and two line ends.
    let whole = |last_bytes: usize| {
        let blob = |bytes: usize| format!("${bytes}\r\n{}\r\n", "x".repeat(bytes));
        let body = blob(RESP_BULK_BYTES_MAX).repeat(15) + &blob(last_bytes);
        format!("*16\r\n{body}").into_bytes()
    };
    let last_bytes = RESP_REPLY_BYTES_MAX - whole(10_000).len() + 10_000;
    assert_eq!(whole(last_bytes).len(), RESP_REPLY_BYTES_MAX);
    let shows_at = RESP_REPLY_BYTES_MAX - last_bytes - 2;
    limit(
        RespReject::ReplyTooLarge,
        &whole(last_bytes),
        &whole(last_bytes + 1),
        shows_at,
    );
    // The same with a line at the end, whose length nobody tells: its CR LF must lie within the reply.
    let lined = |last_bytes: usize, line_bytes: usize| {
        let mut raw = whole(last_bytes);
        raw.splice(..3, *b"*17");
        raw.extend_from_slice(format!("+{}\r\n", "x".repeat(line_bytes)).as_bytes());
        raw
    };
    for line_bytes in [0, 100, RESP_LINE_BYTES_MAX - 1] {
        let last_bytes = last_bytes - 3 - line_bytes;
        let (at, beyond) = (
            lined(last_bytes, line_bytes),
            lined(last_bytes, line_bytes + 1),
        );
        assert_eq!(at.len(), RESP_REPLY_BYTES_MAX);
        limit(
            RespReject::ReplyTooLarge,
            &at,
            &beyond,
            RESP_REPLY_BYTES_MAX - 1,
        );
    }
    // Attributes that are about attributes, without end: each is small, together they are not.
    let endless = b"|0\r\n".repeat(RESP_REPLY_BYTES_MAX / 4);
    assert_eq!(
        Scanner::new().scan(&endless),
        Scan::Reject(RespReject::ReplyTooLarge)
    );
}

#[test]
fn pushes_stand_alone_and_every_breach_has_words_of_its_own() {
    for inside in ["*1\r\n>1\r\n+a\r\n", "|1\r\n+a\r\n>1\r\n+b\r\n+c\r\n"] {
        assert_eq!(
            Scanner::new().scan(inside.as_bytes()),
            Scan::Reject(RespReject::PushInside)
        );
    }
    let noted = b"|1\r\n+a\r\n+b\r\n>1\r\n+c\r\n";
    assert_eq!(
        Scanner::new().scan(noted),
        Scan::Done { bytes: noted.len() }
    );
    assert!(matches!(read(noted), Value::Push(items) if items.len() == 1));
    for (raw, reject) in [
        ("*?\r\n", RespReject::Streamed),
        ("~?\r\n", RespReject::Streamed),
        ("%?\r\n", RespReject::Streamed),
        (">?\r\n", RespReject::Length),
        (">-1\r\n", RespReject::Length),
        ("%-1\r\n", RespReject::Length),
        ("!-1\r\n", RespReject::Length),
        ("$05\r\n", RespReject::Length),
        ("*+1\r\n", RespReject::Length),
        (",1.\r\n", RespReject::Double),
        ("(1.5\r\n", RespReject::BigNumber),
        ("=5\r\ntxt;a\r\n", RespReject::Verbatim),
        ("+a\rb\r\n", RespReject::LineEnd),
        ("+a\nb\r\n", RespReject::LineEnd),
        (".\r\n", RespReject::TypeUnknown),
        (";4\r\n", RespReject::TypeUnknown),
    ] {
        assert_eq!(
            Scanner::new().scan(raw.as_bytes()),
            Scan::Reject(reject),
            "{raw:?}"
        );
        assert_eq!(
            story(raw.as_bytes(), 1..=raw.len()).1,
            Scan::Reject(reject),
            "{raw:?}"
        );
    }
    let words: std::collections::BTreeSet<String> =
        RespReject::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), RespReject::ALL.len());
    for limit in [
        RESP_LINE_BYTES_MAX,
        RESP_BULK_BYTES_MAX,
        RESP_ELEMENTS_MAX,
        RESP_DEPTH_MAX,
        RESP_REPLY_BYTES_MAX,
    ] {
        let limit = format!(" {limit} ");
        assert!(
            words.iter().any(|words| words.contains(&limit)),
            "{limit} is told"
        );
    }
}
