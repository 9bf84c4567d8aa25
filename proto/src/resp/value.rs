//! What is in a reply that the scanner found whole: values that borrow its bytes, aggregates that are walked on demand.
//!
//! Attributes are skipped: they only augment what follows them. Each kind of null is the same null.

use super::number::{integer, length};
use core::str;

/// What the scanner has seen to; a reply that breaks it was never scanned.
const SCANNED: &str = "the scanner found this reply whole";

/// One reply that a scanner found whole, or one element of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A status, such as `OK`; no CR and no LF in it.
    Simple(&'a [u8]),
    /// An error, simple or blob.
    Error(ErrorReply<'a>),
    /// A signed 64-bit integer.
    Integer(i64),
    /// A string of any bytes.
    Bulk(&'a [u8]),
    /// RESP3's null, RESP2's null string or its null array.
    Null,
    /// An ordered list.
    Array(Items<'a>),
    /// A double; infinite or NaN too.
    Double(f64),
    /// True or false.
    Boolean(bool),
    /// A sign and decimal digits, of any size.
    BigNumber(&'a [u8]),
    /// A string of any bytes that says how to show it.
    Verbatim {
        /// `txt` or `mkd`.
        format: [u8; 3],
        /// The bytes, without the format.
        text: &'a [u8],
    },
    /// Keys and values in turn: 2n items. Keys may repeat.
    Map(Items<'a>),
    /// An unordered list; members may repeat.
    Set(Items<'a>),
    /// Out of band: answers no command. Never inside another value.
    Push(Items<'a>),
}

impl<'a> Value<'a> {
    /// The bytes of a simple, bulk or verbatim string: which of them a server sends depends on the version spoken.
    pub fn text(&self) -> Option<&'a [u8]> {
        match *self {
            Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => Some(text),
            _ => None,
        }
    }
}

/// What a server refuses with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReply<'a> {
    /// The first word: `ERR`, `MOVED`, `NOSCRIPT`.
    pub code: &'a [u8],
    /// All of it, the code included.
    pub text: &'a [u8],
}

impl<'a> ErrorReply<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            code: first_word(text),
            text,
        }
    }

    /// The code to classify by: that of the command that failed inside a script, else `code`.
    ///
    /// Redis before 7.0 says `ERR Error running script (call to f_SHA): @user_script:N: ... -OOM command not allowed ...`:
    /// what went wrong stands behind the first `: -`.
    pub fn cause(&self) -> &'a [u8] {
        let inner = self
            .text
            .strip_prefix(b"ERR Error running script")
            .and_then(|rest| {
                let at = rest.windows(3).position(|part| part == b": -")?;
                Some(first_word(&rest[at + 3..]))
            });
        match inner {
            Some(word) if !word.is_empty() && word.iter().all(u8::is_ascii_uppercase) => word,
            _ => self.code,
        }
    }
}

fn first_word(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == b' ');
    &text[..end.unwrap_or(text.len())]
}

/// The items of an aggregate, read one by one. An item that is an aggregate is walked over to find its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items<'a> {
    /// Begins with the next item and ends with the last one.
    bytes: &'a [u8],
    left: usize,
}

impl Items<'_> {
    /// Items still to come: of a map keys and values, so twice its pairs.
    pub fn len(&self) -> usize {
        self.left
    }

    /// True when none is to come.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (value, rest) = next_value(self.bytes);
        self.bytes = rest;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Items<'_> {}

/// Reads the reply that fills `frame`: exactly the bytes of a [`Scan::Done`](super::Scan::Done).
///
/// # Panics
/// On bytes that no scanner found whole.
pub fn read(frame: &[u8]) -> Value<'_> {
    let token = past_attributes(frame);
    if token.elements > 0 {
        // Its elements fill the rest: where they end need not be looked for.
        debug_assert!(skip(token.rest, token.elements).is_empty(), "{SCANNED}");
        return value_of(&token, token.rest);
    }
    assert!(token.rest.is_empty(), "{SCANNED}, and nothing behind it");
    value_of(&token, b"")
}

/// One line and what follows it: its string, or the count of its elements.
struct Token<'a> {
    kind: u8,
    line: &'a [u8],
    /// Of a string, its bytes.
    body: &'a [u8],
    /// Elements that follow; 0 where there are none.
    elements: usize,
    rest: &'a [u8],
}

fn next_token(bytes: &[u8]) -> Token<'_> {
    let (&kind, text) = bytes.split_first().expect(SCANNED);
    let end = memchr::memchr(b'\r', text).expect(SCANNED);
    let (line, rest) = (&text[..end], text.get(end + 2..).expect(SCANNED));
    let mut token = Token {
        kind,
        line,
        body: b"",
        elements: 0,
        rest,
    };
    let is_null = line == b"-1";
    let count = || {
        let count = length(line).and_then(|count| usize::try_from(count).ok());
        count.expect(SCANNED)
    };
    match kind {
        b'$' | b'!' | b'=' if !is_null => {
            let bytes = count();
            token.body = rest.get(..bytes).expect(SCANNED);
            token.rest = rest.get(bytes + 2..).expect(SCANNED);
        }
        b'*' | b'~' | b'>' if !is_null => token.elements = count(),
        b'%' | b'|' => token.elements = 2 * count(),
        _ => {}
    }
    token
}

/// What follows `count` elements.
fn skip(mut bytes: &[u8], count: usize) -> &[u8] {
    let mut owed = count;
    while owed > 0 {
        let token = next_token(bytes);
        owed += token.elements;
        if token.kind != b'|' {
            owed -= 1; // an attribute is no element: what it is about follows
        }
        bytes = token.rest;
    }
    bytes
}

/// The first token that is no attribute's.
fn past_attributes(bytes: &[u8]) -> Token<'_> {
    let mut token = next_token(bytes);
    while token.kind == b'|' {
        token = next_token(skip(token.rest, token.elements));
    }
    token
}

fn next_value(bytes: &[u8]) -> (Value<'_>, &[u8]) {
    let token = past_attributes(bytes);
    let behind = skip(token.rest, token.elements);
    let elements = &token.rest[..token.rest.len() - behind.len()];
    (value_of(&token, elements), behind)
}

/// `elements`: the bytes of the token's elements.
fn value_of<'a>(token: &Token<'a>, elements: &'a [u8]) -> Value<'a> {
    let items = Items {
        bytes: elements,
        left: token.elements,
    };
    match token.kind {
        b'$' | b'*' if token.line == b"-1" => Value::Null,
        b'_' => Value::Null,
        b'+' => Value::Simple(token.line),
        b'-' => Value::Error(ErrorReply::new(token.line)),
        b'!' => Value::Error(ErrorReply::new(token.body)),
        b':' => Value::Integer(integer(token.line).expect(SCANNED)),
        b'$' => Value::Bulk(token.body),
        b'#' => Value::Boolean(token.line == b"t"),
        b',' => Value::Double(double(token.line)),
        b'(' => Value::BigNumber(token.line),
        b'=' => {
            let (format, text) = token.body.split_first_chunk().expect(SCANNED);
            Value::Verbatim {
                format: *format,
                text: text.get(1..).expect(SCANNED),
            }
        }
        b'*' => Value::Array(items),
        b'%' => Value::Map(items),
        b'~' => Value::Set(items),
        b'>' => Value::Push(items),
        _ => unreachable!("{SCANNED}"),
    }
}

/// The scanner's grammar is within that of Rust's parser, but for the sign of a NaN.
fn double(line: &[u8]) -> f64 {
    let text = str::from_utf8(line).expect(SCANNED);
    text.parse().expect(SCANNED)
}
