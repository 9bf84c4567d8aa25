//! The numbers of a reply's lines, strictly: Redis writes each in one way, and a second way is a second meaning.

/// `0`, or digits that do not begin with one.
fn is_plain(digits: &[u8]) -> bool {
    let is_canonical = digits == b"0" || digits.first().is_some_and(|&first| first != b'0');
    is_canonical && digits.iter().all(u8::is_ascii_digit)
}

/// The sign, if there is one, and what follows it.
fn split_sign(line: &[u8]) -> (Option<u8>, &[u8]) {
    match line.split_first() {
        Some((&sign @ (b'+' | b'-'), rest)) => (Some(sign), rest),
        _ => (None, line),
    }
}

/// A length or a count: plain digits without a sign; beyond the 64 bits it is `u64::MAX`. `None`: not that.
pub fn length(line: &[u8]) -> Option<u64> {
    is_plain(line).then(|| {
        line.iter().fold(0_u64, |value, digit| {
            value
                .saturating_mul(10)
                .saturating_add(u64::from(digit - b'0'))
        })
    })
}

/// The text of an integer: a sign (a plus is of the grammar, redis.io/docs/reference/protocol-spec) and plain digits.
pub fn integer(line: &[u8]) -> Option<i64> {
    let (sign, digits) = split_sign(line);
    let magnitude = length(digits)?;
    if sign == Some(b'-') {
        0_i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// A big number: a sign and digits, at least one.
pub fn is_big(line: &[u8]) -> bool {
    let (_, digits) = split_sign(line);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// A double as the text has it: `[sign] digits [. digits] [e [sign] digits]`, `inf`, `-inf`, `nan`; and `-nan`, which
/// Redis before 7.2 may write.
pub fn is_double(line: &[u8]) -> bool {
    if matches!(line, b"inf" | b"-inf" | b"nan" | b"-nan") {
        return true;
    }
    let (_, rest) = split_sign(line);
    let Some(mut rest) = after_digits(rest) else {
        return false;
    };
    if let Some((b'.', fraction)) = rest.split_first() {
        let Some(behind) = after_digits(fraction) else {
            return false;
        };
        rest = behind;
    }
    if let Some((b'e' | b'E', exponent)) = rest.split_first() {
        let Some(behind) = after_digits(split_sign(exponent).1) else {
            return false;
        };
        rest = behind;
    }
    rest.is_empty()
}

/// What follows one or more digits.
fn after_digits(text: &[u8]) -> Option<&[u8]> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then(|| &text[count..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_form_and_64_bits() {
        for (line, value) in [
            ("0", 0),
            ("-0", 0),
            ("+5", 5),
            ("-1000", -1000),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(line.as_bytes()), Some(value), "{line}");
        }
        for line in [
            "",
            "+",
            "-",
            "--1",
            "+-1",
            " 1",
            "1 ",
            "01",
            "-01",
            "00",
            "1.0",
            "0x1",
            "1_0",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999999",
            "\u{661}",
        ] {
            assert_eq!(integer(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn lengths_have_no_sign_and_saturate() {
        assert_eq!(length(b"0"), Some(0));
        assert_eq!(length(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(length(b"18446744073709551616"), Some(u64::MAX));
        for line in ["", "-1", "+1", "01", "1a", "?"] {
            assert_eq!(length(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn doubles_are_of_the_grammar() {
        for line in [
            "0",
            "10",
            "-1.5",
            "+1.5",
            "1e5",
            "2.67923e+8",
            "1E-7",
            "00.5",
            "inf",
            "-inf",
            "nan",
            "-nan",
        ] {
            assert!(is_double(line.as_bytes()), "{line}");
        }
        for line in [
            "", "-", ".5", "5.", "1e", "1e+", "1.e5", "+inf", "NaN", "infinity", "1,5", "1.2.3",
            "0x1p3", " 1", "nan(1)",
        ] {
            assert!(!is_double(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn big_numbers_are_digits() {
        assert!(is_big(b"3492890328409238509324850943850943825024385"));
        assert!(is_big(b"-1") && is_big(b"+1") && is_big(b"0"));
        for line in ["", "-", "1.5", "1e5", "--1", "a"] {
            assert!(!is_big(line.as_bytes()), "{line}");
        }
    }
}
