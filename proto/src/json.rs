//! A strict reader of one flat JSON object, without allocation (RFC 8259).
//!
//! Called by `submit`, `ticket`, `payment`, the ops bodies and the load generator. Two layers: [`Scan`] yields every
//! member; [`Object`] knows the allowed names, refuses others by name and refuses duplicates, escaped spellings included.
//! Invariants: what is accepted here, every JSON parser accepts and reads alike; one level deep; integers only.
//! Not here: nested values, fractions and exponents, comments, a byte order mark: all refused.

mod text;
mod usual;

pub(crate) use text::plain_bytes;
pub use text::{JsonText, MEMBER_NAME_BYTES_MAX, MemberName};
pub(crate) use usual::Usual;

use core::fmt;
use core::ops::RangeInclusive;

/// Why a body is not the object that was asked for. Holds no value of the body, only names, so it may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// The bytes are not UTF-8; `at` is the first wrong byte.
    NotUtf8 {
        /// Offset in bytes.
        at: usize,
    },
    /// A byte order mark stands first (RFC 8259 §8.1).
    ByteOrderMark,
    /// The text is not an object.
    NotObject,
    /// The grammar is broken at `at`.
    Syntax {
        /// Offset in bytes.
        at: usize,
    },
    /// Something other than white space follows the object at `at`.
    Trailing {
        /// Offset in bytes.
        at: usize,
    },
    /// One member is at fault.
    Member {
        /// Which one, as far as it can be shown.
        name: MemberName,
        /// What is wrong with it.
        fault: MemberFault,
    },
}

/// What is wrong with one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberFault {
    /// The name is not one of the object's.
    Unknown,
    /// The name was given twice.
    Duplicate,
    /// The member must be there and is not.
    Missing,
    /// The value is an object or an array.
    Nested,
    /// The value is not a string.
    NotText,
    /// The value is not a whole number in plain digits.
    NotInteger,
    /// The value is not `true` or `false`.
    NotBool,
    /// The number is outside its range.
    OutOfRange {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// The string has fewer or more bytes than allowed.
    Length {
        /// Fewest bytes.
        bytes_min: usize,
        /// Most bytes.
        bytes_max: usize,
    },
    /// The string has a character that is not allowed here; the text says which are.
    Alphabet(&'static str),
    /// The string has not the form that the text names.
    Form(&'static str),
}

impl JsonError {
    /// The error for member `name`.
    pub fn member(name: &str, fault: MemberFault) -> Self {
        Self::Member {
            name: MemberName::shown(name.chars()),
            fault,
        }
    }

    /// The error for a member that must be there.
    pub fn missing(name: &str) -> Self {
        Self::member(name, MemberFault::Missing)
    }
}

impl fmt::Display for MemberFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("is not a member of this object; remove it"),
            Self::Duplicate => f.write_str("is given twice; give it once"),
            Self::Missing => f.write_str("is missing"),
            Self::Nested => f.write_str("must not be an object or an array"),
            Self::NotText => f.write_str("must be a string"),
            Self::NotInteger => f.write_str("must be a whole number in plain digits"),
            Self::NotBool => f.write_str("must be true or false"),
            Self::OutOfRange { min, max } => write!(f, "must be a number from {min} to {max}"),
            Self::Length {
                bytes_min,
                bytes_max,
            } => write!(f, "must have {bytes_min} to {bytes_max} bytes"),
            Self::Alphabet(allowed) => write!(f, "may hold only {allowed}"),
            Self::Form(form) => write!(f, "must be {form}"),
        }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 { at } => write!(f, "the body is not UTF-8 at byte {at}"),
            Self::ByteOrderMark => f.write_str("the body starts with a byte order mark; remove it"),
            Self::NotObject => f.write_str("the body must be one JSON object"),
            Self::Syntax { at } => write!(f, "the body is not valid JSON at byte {at}"),
            Self::Trailing { at } => {
                write!(f, "the body goes on after its object at byte {at}")
            }
            Self::Member { name, fault } => write!(f, "`{name}` {fault}"),
        }
    }
}

/// One value of a flat object.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A string; its escapes are checked and not yet decoded.
    Text(JsonText<'a>),
    /// An integer that fits u64.
    Integer(u64),
    /// An integer below zero (`-0` too) or above 2^64-1.
    OutsideU64,
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
}

/// What stopped the reader, where its cursor stands. Small, for it travels through every step; told as a [`JsonError`].
#[derive(Clone, Copy)]
enum Flaw {
    Syntax,
    Trailing,
    Nested,
    NotInteger,
}

/// A pull reader of any flat object: every member in order, whatever its name.
pub struct Scan<'a> {
    /// UTF-8.
    text: &'a [u8],
    at: usize,
    started: bool,
    ended: bool,
}

impl<'a> Scan<'a> {
    /// Starts on `bytes`, which must be UTF-8 and open an object.
    ///
    /// # Errors
    /// `NotUtf8`, `ByteOrderMark` or `NotObject`.
    pub fn open(bytes: &'a [u8]) -> Result<Self, JsonError> {
        let text = core::str::from_utf8(bytes).map_err(|error| JsonError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        if text.starts_with('\u{feff}') {
            return Err(JsonError::ByteOrderMark);
        }
        let mut scan = Self {
            text: bytes,
            at: 0,
            started: false,
            ended: false,
        };
        if scan.next_byte() != Some(b'{') {
            return Err(JsonError::NotObject);
        }
        scan.at += 1;
        Ok(scan)
    }

    /// The next member, or `None` after the closing brace and a check that nothing follows it.
    ///
    /// # Errors
    /// `Syntax`, `Trailing`, or a `Member` fault `Nested` or `NotInteger`.
    pub fn next_member(&mut self) -> Result<Option<(JsonText<'a>, Value<'a>)>, JsonError> {
        match self.advance_to_name() {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(flaw) => return Err(error(flaw, self.at, None)),
        }
        let name = match self.name() {
            Ok(name) => name,
            Err(flaw) => return Err(error(flaw, self.at, None)),
        };
        match self.value() {
            Ok(value) => Ok(Some((name, value))),
            Err(flaw) => {
                let shown = MemberName::shown(name.chars());
                Err(error(flaw, self.at, Some(shown)))
            }
        }
    }

    /// Reads up to the next name; false at the object's end.
    #[inline(always)]
    fn advance_to_name(&mut self) -> Result<bool, Flaw> {
        if self.ended {
            return Ok(false);
        }
        match self.next_byte() {
            Some(b'}') => return self.end(),
            Some(b',') if self.started => {
                self.at += 1;
                self.next_byte();
            }
            Some(b'"') if !self.started => {}
            _ => return Err(Flaw::Syntax),
        }
        self.started = true;
        Ok(true)
    }

    /// Reads a name, and over the colon to its value.
    #[inline(always)]
    fn name(&mut self) -> Result<JsonText<'a>, Flaw> {
        let name = self.string()?;
        if self.next_byte() != Some(b':') {
            return Err(Flaw::Syntax);
        }
        self.at += 1;
        self.next_byte();
        Ok(name)
    }

    /// Reads the name `expected` as most writers put it: without escapes or a space before the colon. False, and nothing
    /// is read, when it does not stand there in this way.
    #[inline(always)]
    fn takes_name(&mut self, expected: &str) -> bool {
        let bytes = expected.len();
        let rest = &self.text[self.at..];
        let stands_there = rest.len() > bytes + 2
            && rest[0] == b'"'
            && rest[bytes + 1] == b'"'
            && rest[bytes + 2] == b':'
            && rest[1..=bytes] == *expected.as_bytes();
        if stands_there {
            self.at += bytes + 3;
            self.next_byte();
        }
        stands_there
    }

    fn end(&mut self) -> Result<bool, Flaw> {
        self.at += 1;
        if self.next_byte().is_some() {
            return Err(Flaw::Trailing);
        }
        self.ended = true;
        Ok(false)
    }

    /// Reads a value; the cursor stands on its first byte.
    #[inline(always)]
    fn value(&mut self) -> Result<Value<'a>, Flaw> {
        match self.peek() {
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.integer(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'{' | b'[') => Err(Flaw::Nested),
            _ => Err(Flaw::Syntax),
        }
    }

    // RFC 8259 §6: [ minus ] int [ frac ] [ exp ], int without leading zeros. Only int is taken.
    #[inline(always)]
    fn integer(&mut self) -> Result<Value<'a>, Flaw> {
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let starts_with_zero = self.peek() == Some(b'0');
        let (number, len) = leading_number(&self.text[self.at..]);
        match len {
            0 => return Err(Flaw::Syntax),
            2.. if starts_with_zero => {
                self.at += 1;
                return Err(Flaw::Syntax);
            }
            _ => self.at += len,
        }
        if let Some(b'.' | b'e' | b'E') = self.peek() {
            return Err(Flaw::NotInteger);
        }
        match number {
            Some(number) if !negative => Ok(Value::Integer(number)),
            _ => Ok(Value::OutsideU64),
        }
    }

    fn word(&mut self, word: &str, value: Value<'a>) -> Result<Value<'a>, Flaw> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return Err(Flaw::Syntax);
        }
        self.at += word.len();
        Ok(value)
    }

    #[inline(always)]
    fn string(&mut self) -> Result<JsonText<'a>, Flaw> {
        if self.peek() != Some(b'"') {
            return Err(Flaw::Syntax);
        }
        self.at += 1;
        match JsonText::scan(&self.text[self.at..]) {
            Ok((text, raw_bytes)) => {
                self.at += raw_bytes + 1; // the closing quote
                Ok(text)
            }
            Err(offset) => {
                self.at += offset;
                Err(Flaw::Syntax)
            }
        }
    }

    /// The next byte that is no white space (RFC 8259 §2: these four bytes and no others); the cursor stands on it.
    #[inline(always)]
    fn next_byte(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                byte => return byte,
            }
        }
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

/// The value of the digits at the start of `bytes`, `None` when it is above 2^64-1, and how many digits they are.
#[inline]
fn leading_number(bytes: &[u8]) -> (Option<u64>, usize) {
    let mut digits = bytes
        .iter()
        .map(|byte| byte.wrapping_sub(b'0'))
        .take_while(|&digit| digit < 10);
    let (mut number, mut len) = (0_u64, 0);
    for digit in digits.by_ref().take(19) {
        number = number * 10 + u64::from(digit); // 10^19-1 fits u64
        len += 1;
    }
    if len < 19 {
        return (Some(number), len);
    }
    let mut number = Some(number);
    for digit in digits {
        number = number.and_then(|number| number.checked_mul(10)?.checked_add(u64::from(digit)));
        len += 1;
    }
    (number, len)
}

/// The flaw at byte `at`, in the value of `name` if there is one.
#[cold]
fn error(flaw: Flaw, at: usize, name: Option<MemberName>) -> JsonError {
    let fault = match flaw {
        Flaw::Trailing => return JsonError::Trailing { at },
        Flaw::Syntax => return JsonError::Syntax { at },
        Flaw::Nested => MemberFault::Nested,
        Flaw::NotInteger => MemberFault::NotInteger,
    };
    match name {
        Some(name) => JsonError::Member { name, fault },
        None => JsonError::Syntax { at },
    }
}

#[cold]
fn fault(name: JsonText<'_>, fault: MemberFault) -> JsonError {
    JsonError::Member {
        name: MemberName::shown(name.chars()),
        fault,
    }
}

/// A pull reader of one object whose members are known by name.
pub struct Object<'a> {
    scan: Scan<'a>,
    names: &'static [&'static str],
    seen: u32,
    guess: usize,
}

impl<'a> Object<'a> {
    /// Starts on `bytes`; `names` are the allowed members, at most 32.
    ///
    /// # Errors
    /// As [`Scan::open`].
    pub fn open(bytes: &'a [u8], names: &'static [&'static str]) -> Result<Self, JsonError> {
        assert!(names.len() <= 32, "the set of seen members is one u32");
        Ok(Self {
            scan: Scan::open(bytes)?,
            names,
            seen: 0,
            guess: 0,
        })
    }

    /// The next member, or `None` at the end. After an error the reader must not be used again.
    ///
    /// # Errors
    /// As [`Scan::next_member`], and `Unknown` and `Duplicate`, judged on the decoded name.
    #[inline(always)] // so that the cursor stays in a register while a whole object is read
    pub fn next_member(&mut self) -> Result<Option<Member<'a>>, JsonError> {
        match self.scan.advance_to_name() {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(flaw) => return Err(error(flaw, self.scan.at, None)),
        }
        // Most writers keep the documented order, so the name after the last one is tried first.
        let guess = self.names.get(self.guess);
        let index = if guess.is_some_and(|name| self.scan.takes_name(name)) {
            self.guess
        } else {
            let raw = match self.scan.name() {
                Ok(raw) => raw,
                Err(flaw) => return Err(error(flaw, self.scan.at, None)),
            };
            let position = self.names.iter().position(|name| raw.is(name));
            position.ok_or_else(|| fault(raw, MemberFault::Unknown))?
        };
        let name = self.names[index];
        self.guess = index + 1;
        if self.seen & (1 << index) != 0 {
            return Err(JsonError::member(name, MemberFault::Duplicate));
        }
        self.seen |= 1 << index;
        match self.scan.value() {
            Ok(value) => Ok(Some(Member { name, value })),
            Err(flaw) => {
                let shown = MemberName::shown(name.chars());
                Err(error(flaw, self.scan.at, Some(shown)))
            }
        }
    }
}

/// One member of an [`Object`].
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name, one of the object's.
    pub name: &'static str,
    /// Its value.
    pub value: Value<'a>,
}

impl<'a> Member<'a> {
    /// The value as an integer within `range`.
    ///
    /// # Errors
    /// `NotInteger` for another type, `OutOfRange` (also for every number with a minus sign).
    #[inline]
    pub fn integer(&self, range: RangeInclusive<u64>) -> Result<u64, JsonError> {
        let (min, max) = (*range.start(), *range.end());
        match self.value {
            Value::Integer(number) if range.contains(&number) => Ok(number),
            Value::Integer(_) | Value::OutsideU64 => {
                Err(self.fault(MemberFault::OutOfRange { min, max }))
            }
            _ => Err(self.fault(MemberFault::NotInteger)),
        }
    }

    /// The value as a string.
    ///
    /// # Errors
    /// `NotText` for another type.
    pub fn text(&self) -> Result<JsonText<'a>, JsonError> {
        match self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.fault(MemberFault::NotText)),
        }
    }

    /// The value as `true` or `false`.
    ///
    /// # Errors
    /// `NotBool` for another type.
    pub fn bool(&self) -> Result<bool, JsonError> {
        match self.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.fault(MemberFault::NotBool)),
        }
    }

    /// The error that names this member.
    #[cold]
    pub fn fault(&self, fault: MemberFault) -> JsonError {
        JsonError::member(self.name, fault)
    }
}

/// The value of member `name` of a flat object, whatever its other members are; the whole object is checked.
/// For reading answers, where the server may add members.
///
/// # Errors
/// As [`Scan::next_member`], and `Duplicate` when `name` is given twice.
pub fn field<'a>(bytes: &'a [u8], name: &str) -> Result<Option<Value<'a>>, JsonError> {
    let mut scan = Scan::open(bytes)?;
    let mut found = None;
    while let Some((member, value)) = scan.next_member()? {
        if member.is(name) && found.replace(value).is_some() {
            return Err(fault(member, MemberFault::Duplicate));
        }
    }
    Ok(found)
}
