//! One TCP connection as a raw client has it: bytes out in pieces, bytes in until something is there, and how it ended.
//!
//! A send or read that fails is an outcome, not a panic: the server may have closed. Waiting has a bound that only ends a
//! test whose server hangs. Many lines are used at once by one thread: all send, then all read.
#![allow(dead_code)] // each test binary uses what it needs

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Nothing here takes so long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How the server's side ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It said that nothing follows.
    Fin,
    /// A reset: what was under way may be lost.
    Reset,
}

/// See the module.
pub struct Line {
    socket: TcpStream,
    /// Everything that came.
    pub got: Vec<u8>,
    /// `None` while the server's side is open.
    pub end: Option<End>,
    /// A send failed because the server had reset.
    send_failed: bool,
}

impl Line {
    /// Connects to `port` on one of the machine's own addresses; `number` chooses which, so that ports of thousands of
    /// connections that were closed do not run out.
    pub fn to(port: u16, number: usize) -> Self {
        let host = Ipv4Addr::from(0x7F00_0001 + (number % 64) as u32);
        let socket = TcpStream::connect(SocketAddr::from((host, port))).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            got: Vec::new(),
            end: None,
            send_failed: false,
        }
    }

    /// Sends; false when the server takes no more.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.send_failed |= self.socket.write_all(bytes).is_err();
        !self.send_failed
    }

    /// Sends what the socket takes at once; how much that was.
    pub fn send_some(&mut self, bytes: &[u8]) -> usize {
        self.socket.set_nonblocking(true).unwrap();
        let sent = self.socket.write(bytes);
        self.socket.set_nonblocking(false).unwrap();
        match sent {
            Ok(taken) => taken,
            Err(error) => {
                self.send_failed |= error.kind() != ErrorKind::WouldBlock;
                0
            }
        }
    }

    /// True when a reset of the server has come, also behind its end. Linux lets a client read what came before a reset,
    /// other systems throw it away: so every reset counts as a lost answer, even if it can be read here.
    pub fn was_reset(&mut self) -> bool {
        self.send_failed |= self.socket.take_error().unwrap().is_some();
        self.send_failed || self.end == Some(End::Reset)
    }

    /// Ends our sending side.
    pub fn end_sending(&self) {
        let _ = self.socket.shutdown(Shutdown::Write); // fails when the server has reset: reading will say so
    }

    /// One read; false when nothing came.
    fn read_once(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.socket.read(&mut buffer) {
            Ok(0) => self.end = Some(End::Fin),
            Ok(bytes) => self.got.extend_from_slice(&buffer[..bytes]),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return false,
                ErrorKind::Interrupted => {}
                _ => self.end = Some(End::Reset),
            },
        }
        true
    }

    /// Reads until `done` likes what came, or the server's side ends; false when neither happens in time.
    pub fn read_until(&mut self, done: impl Fn(&[u8]) -> bool) -> bool {
        while self.end.is_none() && !done(&self.got) {
            if !self.read_once() {
                return false;
            }
        }
        true
    }

    /// Reads to the end of the server's side; false when that does not come in time.
    pub fn read_to_end(&mut self) -> bool {
        self.read_until(|_| false)
    }

    /// Reads what is there.
    pub fn read_now(&mut self) {
        self.socket.set_nonblocking(true).unwrap();
        while self.end.is_none() && self.read_once() {}
        self.socket.set_nonblocking(false).unwrap();
    }

    /// Reads for so long, or until the server's side ends.
    pub fn read_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while self.end.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.socket.set_read_timeout(Some(left)).unwrap();
            self.read_once();
        }
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}
