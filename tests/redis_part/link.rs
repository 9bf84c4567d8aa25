//! A blocking connection of a test to a real Redis, with weir's own reading and writing of the protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use weir_proto::resp::{Scan, Scanner, Value, command, read};

/// One connection; a command at a time.
pub struct Link {
    stream: TcpStream,
    input: Vec<u8>,
    scanner: Scanner,
}

impl Link {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            scanner: Scanner::new(),
        }
    }

    /// Sends a command and returns its reply's bytes, for `read`; pushes before it are dropped.
    pub fn ask(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        command(&mut out, parts);
        self.stream.write_all(&out).unwrap();
        loop {
            let frame = self.next_frame();
            if !matches!(read(&frame), Value::Push(_)) {
                return frame;
            }
        }
    }

    /// `ask` with the words of `text`.
    pub fn say(&mut self, text: &str) -> Vec<u8> {
        let parts: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        self.ask(&parts)
    }

    /// `say` of what must be answered by OK.
    pub fn order(&mut self, text: &str) {
        let frame = self.say(text);
        assert_eq!(read(&frame), Value::Simple(b"OK"), "{text}");
    }

    fn next_frame(&mut self) -> Vec<u8> {
        loop {
            match self.scanner.scan(&self.input) {
                Scan::Done { bytes } => return self.input.drain(..bytes).collect(),
                Scan::Reject(reject) => {
                    panic!("{reject}: {:?}", String::from_utf8_lossy(&self.input))
                }
                Scan::NeedMore => {
                    let mut piece = [0; 4096];
                    let count = self.stream.read(&mut piece).unwrap();
                    assert!(count > 0, "Redis has closed the connection");
                    self.input.extend_from_slice(&piece[..count]);
                }
            }
        }
    }
}
