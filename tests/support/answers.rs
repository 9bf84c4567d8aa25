//! The answers in a stretch of bytes, read as strictly as a client must that does not want to be fooled.
#![allow(dead_code)] // each test binary uses what it needs

/// One answer, interim or final.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of the first line with this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub fn is_final(&self) -> bool {
        self.status >= 200
    }

    pub fn closes(&self) -> bool {
        self.field("Connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// Whole answers from the front of `bytes`, and how many bytes are left over. `is_head(n)`: final answer `n` is to a HEAD,
/// so it has no body whatever its length says (RFC 9112 §6.3 rule 1).
///
/// # Errors
/// Bytes that are no answer.
pub fn answers(
    bytes: &[u8],
    is_head: impl Fn(usize) -> bool,
) -> Result<(Vec<Answer>, usize), String> {
    let mut found: Vec<Answer> = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = String::from_utf8(rest[..at + 4].to_vec()).map_err(|error| error.to_string())?;
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|line| line.get(..3))
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| format!("no answer: {head:?}"))?;
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        let finals = found.iter().filter(|answer| answer.is_final()).count();
        let has_body = answer.is_final() && status != 204 && status != 304 && !is_head(finals);
        if has_body {
            let length = answer.field("Content-Length");
            let length: usize = length
                .and_then(|value| value.parse().ok())
                .ok_or_else(|| format!("no length: {:?}", answer.head))?;
            if rest.len() < at + 4 + length {
                break;
            }
            answer.body = rest[at + 4..at + 4 + length].to_vec();
        }
        rest = &rest[at + 4 + answer.body.len()..];
        found.push(answer);
    }
    let is_beginning = rest.is_empty() || rest.starts_with(&b"HTTP/1.1 "[..rest.len().min(9)]);
    if is_beginning {
        Ok((found, rest.len()))
    } else {
        Err(format!("no answer: {:?}", String::from_utf8_lossy(rest)))
    }
}
