//! One header line: its split into name and value, and the names that mean something here.
//!
//! Called by the parser for the head and by the chunk reader for trailers. Strict: RFC 9112 §5 without obs-fold.

use super::class::{self, TOKEN};
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
    Kept(Field),
    Connection,
    ContentLength,
    TransferEncoding,
    Expect,
    Forwarded,
    XForwardedFor,
    /// Checked like every line, then dropped.
    Other,
}

/// Names a field: by length and first letter, so that at most one comparison follows. `name` is a token.
pub(super) fn name_of(name: &[u8]) -> Name {
    let Some(first) = name.first() else {
        return Name::Other;
    };
    match (name.len(), first | 0x20) {
        (4, b'h') if is(name, b"host") => Name::Kept(Field::Host),
        (6, b'e') if is(name, b"expect") => Name::Expect,
        (6, b'o') if is(name, b"origin") => Name::Kept(Field::Origin),
        (9, b'f') if is(name, b"forwarded") => Name::Forwarded,
        (10, b'c') if is(name, b"connection") => Name::Connection,
        (12, b'c') if is(name, b"content-type") => Name::Kept(Field::ContentType),
        (13, b'a') if is(name, b"authorization") => Name::Kept(Field::Authorization),
        (13, b'x') if is(name, b"x-weir-device") => Name::Kept(Field::Device),
        (14, b'c') if is(name, b"content-length") => Name::ContentLength,
        (15, b'a') if is(name, b"accept-language") => Name::Kept(Field::AcceptLanguage),
        (15, b'i') if is(name, b"idempotency-key") => Name::Kept(Field::IdempotencyKey),
        (15, b'x') if is(name, b"x-forwarded-for") => Name::XForwardedFor,
        (16, b'x') if is(name, b"x-weir-signature") => Name::Kept(Field::Signature),
        (17, b't') if is(name, b"transfer-encoding") => Name::TransferEncoding,
        (29, b'a') if is(name, b"access-control-request-method") => {
            Name::Kept(Field::AccessControlRequestMethod)
        }
        (30, b'a') if is(name, b"access-control-request-headers") => {
            Name::Kept(Field::AccessControlRequestHeaders)
        }
        _ => Name::Other,
    }
}

/// Compares a token with a known name of lower-case letters and hyphens, without case. Bit 0x20 is all the case there
/// is: of the bytes of a token no other one becomes a letter or a hyphen by it. The known length unrolls the loop.
fn is<const N: usize>(name: &[u8], known: &[u8; N]) -> bool {
    name.len() == N
        && name
            .iter()
            .zip(known)
            .fold(0, |difference, (byte, wanted)| {
                difference | ((byte | 0x20) ^ wanted)
            })
            == 0
}

/// Splits one line (without CRLF) into what its name means and the place of its value, white space around it dropped.
/// `has_control`: a control byte other than HTAB is somewhere in the line.
///
/// # Errors
/// `FieldName` when no token followed by a colon starts the line (a folded line has none), `FieldValue` for a control byte.
#[inline(always)] // one call per line of a head
pub(super) fn split(line: &[u8], has_control: bool) -> Result<(Name, Range<usize>), HttpReject> {
    // RFC 9112 §5.1: no white space between name and colon.
    let name_bytes = class::until_colon(line).ok_or(HttpReject::FieldName)?;
    let bytes = &line[..name_bytes];
    let name = name_of(bytes);
    // A name that we know has token bytes, or a CR where a hyphen should be.
    let is_sure = name != Name::Other && !has_control;
    if !is_sure && (bytes.is_empty() || class::run(bytes, TOKEN) < name_bytes) {
        return Err(HttpReject::FieldName);
    }
    let value = trimmed(line, name_bytes + 1..line.len());
    if has_control
        && line[value.clone()]
            .iter()
            .any(|&byte| byte != b'\t' && byte.is_ascii_control())
    {
        return Err(HttpReject::FieldValue); // RFC 9110 §5.5; obs-text passes, CR and NUL do not
    }
    Ok((name, value))
}

/// Narrows `range` of `bytes` to leave out spaces and tabs at both ends (OWS, RFC 9110 §5.6.3).
pub(super) fn trimmed(bytes: &[u8], mut range: Range<usize>) -> Range<usize> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let value = &bytes[range.clone()];
    // One space before the value and none after it is how nearly every line is written.
    if let [b' ', first, .., last] = value
        && !is_blank(first)
        && !is_blank(last)
    {
        return range.start + 1..range.end;
    }
    let blank_before = value.iter().take_while(|byte| is_blank(byte)).count();
    let rest = &value[blank_before..];
    range.start += blank_before;
    range.end -= rest.iter().rev().take_while(|byte| is_blank(byte)).count();
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_in_any_case_and_its_neighbours_are_not() {
        for (name, meaning) in [
            ("Host", Name::Kept(Field::Host)),
            ("EXPECT", Name::Expect),
            ("origin", Name::Kept(Field::Origin)),
            ("Forwarded", Name::Forwarded),
            ("Connection", Name::Connection),
            ("Content-Type", Name::Kept(Field::ContentType)),
            ("Authorization", Name::Kept(Field::Authorization)),
            ("X-Weir-Device", Name::Kept(Field::Device)),
            ("Content-Length", Name::ContentLength),
            ("Accept-Language", Name::Kept(Field::AcceptLanguage)),
            ("Idempotency-Key", Name::Kept(Field::IdempotencyKey)),
            ("X-Forwarded-For", Name::XForwardedFor),
            ("X-Weir-Signature", Name::Kept(Field::Signature)),
            ("Transfer-Encoding", Name::TransferEncoding),
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
            super::split(line, has_control)
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
