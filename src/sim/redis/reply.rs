//! Replies of the model as values, and as bytes of RESP2 or RESP3.

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Status(String),
    /// `-CODE text`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$3`
    Bulk(Vec<u8>),
    /// Nothing there.
    Null,
    /// `*2`
    Array(Vec<Reply>),
    /// `%1`; in RESP2 a flat array.
    Map(Vec<(Reply, Reply)>),
    /// `>3`; only to connections that speak RESP3.
    Push(Vec<Reply>),
}

impl Reply {
    /// `+OK`.
    pub fn ok() -> Self {
        Self::Status("OK".to_string())
    }

    /// A bulk string.
    pub fn bulk(text: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(text.into())
    }

    /// An error of the common kind.
    pub fn err(text: impl std::fmt::Display) -> Self {
        Self::Error(format!("ERR {text}"))
    }

    /// The reply of a command on a key that holds something else (Redis, `src/server.c`, `shared.wrongtypeerr`).
    pub fn wrong_type() -> Self {
        Self::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_string())
    }

    /// Appends its bytes; `resp3`: the connection's protocol.
    pub fn write(&self, resp3: bool, out: &mut Vec<u8>) {
        let line = |out: &mut Vec<u8>, kind: u8, text: &[u8]| {
            out.push(kind);
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        };
        let count = |out: &mut Vec<u8>, kind: u8, count: usize| {
            line(out, kind, count.to_string().as_bytes());
        };
        match self {
            Self::Status(text) => line(out, b'+', text.as_bytes()),
            Self::Error(text) => line(out, b'-', text.as_bytes()),
            Self::Integer(number) => line(out, b':', number.to_string().as_bytes()),
            Self::Bulk(bytes) => {
                count(out, b'$', bytes.len());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Null if resp3 => line(out, b'_', b""),
            Self::Null => line(out, b'$', b"-1"),
            Self::Array(items) | Self::Push(items) => {
                let is_push = resp3 && matches!(self, Self::Push(_));
                count(out, if is_push { b'>' } else { b'*' }, items.len());
                items.iter().for_each(|item| item.write(resp3, out));
            }
            Self::Map(pairs) => {
                if resp3 {
                    count(out, b'%', pairs.len());
                } else {
                    count(out, b'*', pairs.len() * 2);
                }
                for (key, value) in pairs {
                    key.write(resp3, out);
                    value.write(resp3, out);
                }
            }
        }
    }
}
