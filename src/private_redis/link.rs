//! A blocking connection to a Redis: a command at a time, with weir's own reading and writing of the protocol.
//!
//! For what is asked before anything starts (`serve/redis`), for private servers, and for tests; a sale's asks go
//! through `weir_core::redis`.

use super::PrivateRedisError;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use weir_core::redis::endpoint::Host;
use weir_io::tls::TlsClient;
use weir_io::tls::stream::TlsStream;
use weir_proto::limits::RESP_REPLY_BYTES_MAX;
use weir_proto::resp::{Scan, Scanner, Value, command, read};

/// How an alert begins, with which many answer what is no TLS: its type, and the first byte of a version (RFC 8446 §5.1).
const TLS_ALERT: [u8; 2] = [21, 3];

/// Why there is no reply; the connection is of no more use.
#[derive(Debug)]
pub enum LinkError {
    /// The connection, or its deadline.
    Io(io::Error),
    /// What answers speaks TLS, and this connection does not.
    SpeaksTls,
    /// What answers is no Redis, or its reply is longer than [`RESP_REPLY_BYTES_MAX`].
    NoRedis,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::SpeaksTls => f.write_str("what answers there speaks TLS"),
            Self::NoRedis => f.write_str("what answers there does not speak Redis' protocol"),
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What carries a connection.
#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Link {
    wire: Wire,
    input: Vec<u8>,
}

impl Link {
    /// Connects; each step from here on ends with an error after `patience`.
    ///
    /// # Errors
    /// Nobody listens, or nobody answers.
    pub fn connect(to: SocketAddr, patience: Duration) -> io::Result<Self> {
        Self::connect_as(to, patience, None)
    }

    /// As [`Self::connect`], encrypted if there is `tls`: by whom, and to the host that must be there.
    ///
    /// # Errors
    /// As [`Self::connect`]; and what `weir_io::tls::stream::told` finds in it.
    pub fn connect_as(
        to: SocketAddr,
        patience: Duration,
        tls: Option<(&TlsClient, &Host)>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let wire = match tls {
            None => Wire::Plain(stream),
            Some((client, host)) => Wire::Tls(Box::new(TlsStream::connect(client, stream, host)?)),
        };
        Ok(Self {
            wire,
            input: Vec::new(),
        })
    }

    /// Whether it was made with TLS.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.wire, Wire::Tls(_))
    }

    /// Sends a command and returns its reply's bytes, for `resp::read`; pushes before it are dropped.
    ///
    /// # Errors
    /// See [`LinkError`]. Whether the command was carried out is not known then.
    pub fn ask(&mut self, parts: &[&[u8]]) -> Result<Vec<u8>, LinkError> {
        let mut frame = Vec::new();
        command(&mut frame, parts);
        self.ask_frame(&frame)
    }

    /// As [`Self::ask`], with a command that is encoded already.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_frame(&mut self, frame: &[u8]) -> Result<Vec<u8>, LinkError> {
        self.wire.write_all(frame)?;
        loop {
            let reply = self.next_reply()?;
            if !matches!(read(&reply), Value::Push(_)) {
                return Ok(reply);
            }
        }
    }

    fn next_reply(&mut self) -> Result<Vec<u8>, LinkError> {
        let (mut scanner, mut piece) = (Scanner::new(), [0; 4096]);
        loop {
            match scanner.scan(&self.input) {
                Scan::Done { bytes } => return Ok(self.input.drain(..bytes).collect()),
                Scan::Reject(_) if self.input.starts_with(&TLS_ALERT) => {
                    return Err(LinkError::SpeaksTls);
                }
                Scan::Reject(_) => return Err(LinkError::NoRedis),
                Scan::NeedMore if self.input.len() > RESP_REPLY_BYTES_MAX => {
                    return Err(LinkError::NoRedis);
                }
                Scan::NeedMore => {}
            }
            match self.wire.read(&mut piece)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                count => self.input.extend_from_slice(&piece[..count]),
            }
        }
    }

    /// [`Self::ask`] with the words of `text`.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn say(&mut self, text: &str) -> Result<Vec<u8>, LinkError> {
        let parts: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        self.ask(&parts)
    }

    /// What the words of `text` are answered with, as text.
    ///
    /// # Errors
    /// An error reply, a reply that is no text, no reply.
    pub fn text(&mut self, text: &str) -> super::Result<String> {
        let reply = self.say(text);
        let reply = reply.map_err(|error| PrivateRedisError::of(text, error))?;
        match read(&reply) {
            Value::Error(error) => {
                let said = String::from_utf8_lossy(error.text);
                Err(PrivateRedisError::of(text, said))
            }
            Value::Integer(integer) => Ok(integer.to_string()),
            other => match other.text() {
                Some(said) => Ok(String::from_utf8_lossy(said).into_owned()),
                None => Err(PrivateRedisError::of(text, "no text was answered")),
            },
        }
    }

    /// Says what must be answered by OK.
    ///
    /// # Errors
    /// It was not.
    pub fn order(&mut self, text: &str) -> super::Result<()> {
        match self.text(text)?.as_str() {
            "OK" => Ok(()),
            other => Err(PrivateRedisError::of(text, other)),
        }
    }
}
