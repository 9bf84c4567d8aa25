//! One header line: its split into name and value, and the names that mean something here.
//!
//! Called by the parser for the head and by the chunk reader for trailers. Strict: RFC 9112 §5 without obs-fold.

use super::class::{self, BLOCK_BYTES, Block, TOKEN};
use super::reject::HttpReject;
use core::ops::Range;

/// A field whose value a request keeps; each at most once per head, except where noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Field {
    /// `Host`, validated.
    Host,
    /// `Authorization`: carries the ticket.
    Authorization,
    /// `Content-Type`.
    ContentType,
    /// `Idempotency-Key`: may replace the body's `request_id`.
    IdempotencyKey,
    /// `X-Weir-Device`: the device id that the ticket may be bound to.
    Device,
    /// `Accept-Language`; the first line counts when there are several.
    AcceptLanguage,
    /// `Origin`: the shop's page that asks (Fetch standard, CORS protocol).
    Origin,
    /// `Access-Control-Request-Method` of a preflight.
    AccessControlRequestMethod,
    /// `Access-Control-Request-Headers` of a preflight; the first line counts when there are several.
    AccessControlRequestHeaders,
    /// `X-Weir-Signature` of a payment callback or a signed submit.
    Signature,
}

impl Field {
    /// How many fields are kept.
    pub const COUNT: usize = Self::Signature as usize + 1;

    /// True when a second line is not an error: the field is a list, and its first line is enough for us.
    pub(super) const fn may_repeat(self) -> bool {
        matches!(
            self,
            Self::AcceptLanguage | Self::AccessControlRequestHeaders
        )
    }
}

/// What a field name means to the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// Its value is kept.
    Kept(Field),
    /// It is read where it stands.
    Framing(Framing),
    /// Checked like every line, then dropped.
    Other,
}

/// The fields that say how a message is read, what becomes of its connection, and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Connection,
    ContentLength,
    TransferEncoding,
    Expect,
    Forwarded,
    XForwardedFor,
}

/// Names a field. `name` is a token.
fn name_of(name: &[u8]) -> Name {
    let mut block = [0; BLOCK_BYTES];
    if name.len() >= BLOCK_BYTES {
        return longer_name_of(name);
    }
    block[..name.len()].copy_from_slice(name);
    short_name_of(&block, name.len())
}

/// Names a field by the `name_bytes` that its name has, fewer than a block, so that few comparisons follow.
#[inline(always)]
fn short_name_of(block: &Block, name_bytes: usize) -> Name {
    match name_bytes {
        4 if starts_with(block, b"host") => Name::Kept(Field::Host),
        6 if starts_with(block, b"origin") => Name::Kept(Field::Origin),
        6 if starts_with(block, b"expect") => Name::Framing(Framing::Expect),
        9 if starts_with(block, b"forwarded") => Name::Framing(Framing::Forwarded),
        10 if starts_with(block, b"connection") => Name::Framing(Framing::Connection),
        12 if starts_with(block, b"content-type") => Name::Kept(Field::ContentType),
        13 if starts_with(block, b"authorization") => Name::Kept(Field::Authorization),
        13 if starts_with(block, b"x-weir-device") => Name::Kept(Field::Device),
        14 if starts_with(block, b"content-length") => Name::Framing(Framing::ContentLength),
        15 if starts_with(block, b"accept-language") => Name::Kept(Field::AcceptLanguage),
        15 if starts_with(block, b"idempotency-key") => Name::Kept(Field::IdempotencyKey),
        15 if starts_with(block, b"x-forwarded-for") => Name::Framing(Framing::XForwardedFor),
        _ => Name::Other,
    }
}

/// Compares the start of a token with a known name of lower-case letters and hyphens, without case. Bit 0x20 is all the
/// case there is: of the bytes of a token no other one becomes a letter or a hyphen by it.
#[inline(always)]
fn starts_with<const N: usize>(block: &Block, known: &[u8; N]) -> bool {
    const { assert!(N <= BLOCK_BYTES) };
    let (mut mask, mut wanted) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]); // both known before the program runs
    mask[..N].fill(!0x20);
    for at in 0..N {
        wanted[at] = known[at] & !0x20;
    }
    u128::from_le_bytes(*block) & u128::from_le_bytes(mask) == u128::from_le_bytes(wanted)
}

fn longer_name_of(name: &[u8]) -> Name {
    match name.len() {
        16 if name.eq_ignore_ascii_case(b"x-weir-signature") => Name::Kept(Field::Signature),
        17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
            Name::Framing(Framing::TransferEncoding)
        }
        29 if name.eq_ignore_ascii_case(b"access-control-request-method") => {
            Name::Kept(Field::AccessControlRequestMethod)
        }
        30 if name.eq_ignore_ascii_case(b"access-control-request-headers") => {
            Name::Kept(Field::AccessControlRequestHeaders)
        }
        _ => Name::Other,
    }
}

/// Splits one line into what its name means and the place of its value, white space around it dropped. The line is the
/// first `line_bytes` of `bytes`, CRLF not counted. `has_control`: a control byte other than HTAB is somewhere in it.
///
/// # Errors
/// `FieldName` when no token followed by a colon starts the line (a folded line has none), `FieldValue` for a control byte.
#[inline(always)] // one call per line of a head
pub(super) fn split(
    bytes: &[u8],
    line_bytes: usize,
    has_control: bool,
) -> Result<(Name, Range<usize>), HttpReject> {
    let (name, name_bytes) = match usual_name(bytes) {
        Some(named) => named,
        None => any_name(&bytes[..line_bytes]).ok_or(HttpReject::FieldName)?,
    };
    let value = trimmed(bytes, name_bytes + 1..line_bytes);
    if has_control {
        let is_control = |&byte: &u8| byte != b'\t' && byte.is_ascii_control();
        if bytes[value.clone()].iter().any(is_control) {
            return Err(HttpReject::FieldValue); // RFC 9110 §5.5; obs-text passes, CR and NUL do not
        }
    }
    Ok((name, value))
}

/// The field name that starts `bytes` and its length, if it is one of letters and hyphens and shorter than a block. It ends
/// before the line does, whose CR is none of them.
#[inline(always)]
fn usual_name(bytes: &[u8]) -> Option<(Name, usize)> {
    let block = bytes.first_chunk()?;
    let name_bytes = class::name_run(*block);
    if name_bytes == 0 || block.get(name_bytes) != Some(&b':') {
        return None;
    }
    Some((short_name_of(block, name_bytes), name_bytes))
}

/// The field name that starts `line` and its length: a token followed by a colon. RFC 9112 §5.1: no white space between.
#[inline(never)]
fn any_name(line: &[u8]) -> Option<(Name, usize)> {
    let name_bytes = class::run(line, TOKEN);
    if name_bytes == 0 || line.get(name_bytes) != Some(&b':') {
        return None;
    }
    Some((name_of(&line[..name_bytes]), name_bytes))
}

/// Narrows `range` of `bytes` to leave out spaces and tabs at both ends (OWS, RFC 9110 §5.6.3).
#[inline(always)]
pub(super) fn trimmed(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    // One space before the value and none after it is how nearly every line is written.
    if let [b' ', first, .., last] = &bytes[range.clone()]
        && *first > b' '
        && *last > b' '
    {
        return range.start + 1..range.end;
    }
    trimmed_of_all(bytes, range)
}

#[inline(never)]
fn trimmed_of_all(bytes: &[u8], mut range: Range<usize>) -> Range<usize> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let value = &bytes[range.clone()];
    let blank_before = value.iter().take_while(|byte| is_blank(byte)).count();
    let rest = &value[blank_before..];
    range.start += blank_before;
    range.end -= rest.iter().rev().take_while(|byte| is_blank(byte)).count();
    range
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn every_known_name_is_found_in_any_case_and_its_neighbours_are_not() {
        for (name, meaning) in [
            ("Host", Name::Kept(Field::Host)),
            ("EXPECT", Name::Framing(Framing::Expect)),
            ("origin", Name::Kept(Field::Origin)),
            ("Forwarded", Name::Framing(Framing::Forwarded)),
            ("Connection", Name::Framing(Framing::Connection)),
            ("Content-Type", Name::Kept(Field::ContentType)),
            ("Authorization", Name::Kept(Field::Authorization)),
            ("X-Weir-Device", Name::Kept(Field::Device)),
            ("Content-Length", Name::Framing(Framing::ContentLength)),
            ("Accept-Language", Name::Kept(Field::AcceptLanguage)),
            ("Idempotency-Key", Name::Kept(Field::IdempotencyKey)),
            ("X-Forwarded-For", Name::Framing(Framing::XForwardedFor)),
            ("X-Weir-Signature", Name::Kept(Field::Signature)),
            (
                "Transfer-Encoding",
                Name::Framing(Framing::TransferEncoding),
            ),
            (
                "Access-Control-Request-Method",
                Name::Kept(Field::AccessControlRequestMethod),
            ),
            (
                "Access-Control-Request-Headers",
                Name::Kept(Field::AccessControlRequestHeaders),
            ),
        ] {
            assert_eq!(name_of(name.as_bytes()), meaning, "{name}");
            for line in [
                format!("{name}:"),
                format!("{name}: a value longer than a block"),
            ] {
                let named = split(line.as_bytes(), line.len(), false).map(|(name, _)| name);
                assert_eq!(named, Ok(meaning), "{line}");
            }
            assert_eq!(name_of(&name.as_bytes()[1..]), Name::Other, "{name}");
            // No byte of a token but a letter's other case may stand for the letter.
            for at in 0..name.len() {
                for byte in (0..=255).filter(|&byte| class::is(byte, TOKEN)) {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = byte;
                    if !other.eq_ignore_ascii_case(name.as_bytes()) {
                        assert_eq!(name_of(&other), Name::Other, "{name} with {byte}");
                    }
                }
            }
            let underscored = name.replace('-', "_");
            if underscored != name {
                assert_eq!(name_of(underscored.as_bytes()), Name::Other, "{name}");
            }
        }
        assert_eq!(name_of(b""), Name::Other);
    }

    #[test]
    fn a_value_loses_the_blanks_around_it_and_nothing_else() {
        let split = |line: &[u8]| {
            let has_control = line
                .iter()
                .any(|byte| byte.is_ascii_control() && *byte != b'\t');
            let split = super::split(line, line.len(), has_control);
            for after in [&b"\r\n"[..], b"\r\nHost: x\r\nOrigin: y\r\n\r\n"] {
                let bytes = [line, after].concat();
                assert_eq!(super::split(&bytes, line.len(), has_control), split);
            }
            split
        };
        let line = b"X-Test: \t two words \t";
        let (name, value) = split(line).unwrap();
        assert_eq!((name, &line[value]), (Name::Other, &b"two words"[..]));
        assert_eq!(split(b"hOst: x"), Ok((Name::Kept(Field::Host), 6..7)));
        assert_eq!(split(b"a:").unwrap(), (Name::Other, 2..2));
        assert_eq!(split(b"a: \t "), Ok((Name::Other, 5..5)));
        for bad in [
            &b"a : b"[..],
            b" a: b",
            b"content\rtype: x",
            b":",
            b"",
            b"a",
            b"a\t:",
            b"\x01:",
        ] {
            assert_eq!(split(bad), Err(HttpReject::FieldName), "{bad:?}");
        }
        assert_eq!(split(b"a: b\rc"), Err(HttpReject::FieldValue));
        assert_eq!(split(b"a: b\x7f"), Err(HttpReject::FieldValue));
        assert!(split(b"a: caf\xc3\xa9").is_ok());
    }
}
