//! A small reader of our own answers, for the load generator and for tests.
//!
//! It scans for `"name":` and trusts the encoder in `body.rs`: no space around the colon, every quote inside a string
//! escaped (so a client's text can never look like a member), one flat object. Not a JSON parser; never use it on
//! bytes that weir did not write.

use super::code::{Code, RequestState};

/// The `code` member; `None` when absent or not one of ours.
pub fn read_code(body: &[u8]) -> Option<Code> {
    Code::from_text(read_text_member(body, "code")?)
}

/// The `status` member; `None` when absent or not one of ours.
pub fn read_state(body: &[u8]) -> Option<RequestState> {
    RequestState::from_text(read_text_member(body, "status")?)
}

/// The number of member `name`; `None` when absent, null, not digits, or above 2^64-1.
pub fn read_u64_member(body: &[u8], name: &str) -> Option<u64> {
    let value = value_of(body, name)?;
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    value[..digits].iter().try_fold(0_u64, |sum, digit| {
        sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// The truth of member `name`; `None` when absent or not a boolean.
pub fn read_bool_member(body: &[u8], name: &str) -> Option<bool> {
    let value = value_of(body, name)?;
    if value.starts_with(b"true") {
        Some(true)
    } else {
        value.starts_with(b"false").then_some(false)
    }
}

/// The inside of the string of member `name`, escapes left as they are; `None` when absent, null or not a string.
pub fn read_text_member<'a>(body: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let value = value_of(body, name)?.strip_prefix(b"\"")?;
    let mut escaped = false;
    for (index, &byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(&value[..index]),
            _ => {}
        }
    }
    None
}

/// Everything after `"name":`.
fn value_of<'a>(body: &'a [u8], name: &str) -> Option<&'a [u8]> {
    memchr::memchr_iter(b'"', body).find_map(|quote| {
        body[quote + 1..]
            .strip_prefix(name.as_bytes())?
            .strip_prefix(b"\":")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_null_and_cut_members_are_none() {
        let body = br#"{"a":null,"b":"x\"y","n":12,"big":99999999999999999999,"t":true,"f":false,"cut":"no end"#;
        assert_eq!(read_text_member(body, "a"), None);
        assert_eq!(read_text_member(body, "b"), Some(br#"x\"y"#.as_slice()));
        assert_eq!(read_text_member(body, "n"), None);
        assert_eq!(read_text_member(body, "cut"), None);
        assert_eq!(read_text_member(body, "zz"), None);
        assert_eq!(read_u64_member(body, "n"), Some(12));
        assert_eq!(read_u64_member(body, "big"), None);
        assert_eq!(read_u64_member(body, "a"), None);
        assert_eq!(read_bool_member(body, "t"), Some(true));
        assert_eq!(read_bool_member(body, "f"), Some(false));
        assert_eq!(read_bool_member(body, "n"), None);
        assert_eq!(read_code(b"{\"code\":\"SOMETHING_ELSE\"}"), None);
    }
}
