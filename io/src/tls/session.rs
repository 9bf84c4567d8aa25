//! One encrypted connection as a value: records in, plain bytes out, and the other way round.
//!
//! Used by [`super::over`]. Invariants: plain bytes are only ever those of records whose authenticity was verified, in
//! order; after an error nothing is taken any more; what is kept is bounded.

use super::{fault_of, is_tls};
use crate::limits::REPLY_BACKLOG_BYTES_MAX;
use rustls::ClientConnection;
use std::io::{Read, Write};
use weir_core::tls::TlsFault;

/// A plain-text buffer above this is given back when it is empty.
const PLAIN_KEEP_BYTES_MAX: usize = 64 * 1024;
/// The longest record's plain text, RFC 8446 §5.1.
const RECORD_BYTES_MAX: usize = 1 << 14;

/// See the module.
pub(super) struct Session {
    tls: ClientConnection,
    /// Nothing has come yet.
    is_fresh: bool,
    /// Decrypted, and not consumed by its reader.
    plain: Vec<u8>,
    /// The peer has said that nothing follows (close_notify).
    has_ended: bool,
    end_is_told: bool,
}

impl Session {
    pub fn new(tls: ClientConnection) -> Self {
        Self {
            tls,
            is_fresh: true,
            plain: Vec::new(),
            has_ended: false,
            end_is_told: false,
        }
    }

    /// True until both sides are sure of each other.
    pub fn is_shaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// What was decrypted and not consumed.
    pub fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// True when the peer has said that nothing follows [`Self::plain`].
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// As [`Self::has_ended`], the first time it is asked.
    pub fn has_fresh_end(&mut self) -> bool {
        self.has_ended && !std::mem::replace(&mut self.end_is_told, true)
    }

    /// The first `bytes` of [`Self::plain`] are done.
    pub fn consume(&mut self, bytes: usize) {
        self.plain.drain(..bytes);
        if self.plain.is_empty() && self.plain.capacity() > PLAIN_KEEP_BYTES_MAX {
            self.plain = Vec::new();
        }
    }

    /// Takes records and pieces of such; gives how many of `bytes` were taken: fewer only when so much plain text waits
    /// that more must not be made. Answers of the protocol's own may be due afterwards: [`Self::write_due`].
    ///
    /// # Errors
    /// What is wrong; the connection must go.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, TlsFault> {
        if let Some(first) = bytes.first()
            && std::mem::replace(&mut self.is_fresh, false)
            && !is_tls(*first)
        {
            return Err(TlsFault::NotTls);
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.has_ended && self.plain.len() < REPLY_BACKLOG_BYTES_MAX {
            // Reading from memory cannot fail; the buffer of rustls is emptied below, and what it has of an unfinished
            // record and of a handshake is bounded by rustls.
            let count = self.tls.read_tls(&mut rest);
            if count.map_err(|_| TlsFault::Broken)? == 0 {
                return Err(TlsFault::Broken);
            }
            let state = self.tls.process_new_packets();
            let state = state.map_err(|error| fault_of(&error))?;
            self.has_ended |= state.peer_has_closed();
            let (from, more) = (self.plain.len(), state.plaintext_bytes_to_read());
            self.plain.resize(from + more, 0);
            let read = self.tls.reader().read_exact(&mut self.plain[from..]);
            read.map_err(|_| TlsFault::Broken)?;
        }
        // What follows the peer's last word is nobody's (RFC 8446 §6.1).
        Ok(if self.has_ended {
            bytes.len()
        } else {
            bytes.len() - rest.len()
        })
    }

    /// Encrypts `plain` into `out`, behind what was due before.
    pub fn write(&mut self, mut plain: &[u8], out: &mut Vec<u8>) {
        while !plain.is_empty() {
            let piece = &plain[..plain.len().min(RECORD_BYTES_MAX)];
            let taken = self.tls.writer().write(piece);
            let taken = taken.expect("writing to memory, after the handshake");
            self.write_due(out);
            plain = &plain[taken..];
        }
    }

    /// True when [`Self::write_due`] has something to write.
    pub fn is_due(&self) -> bool {
        self.tls.wants_write()
    }

    /// Appends the records that are due: of the handshake, alerts, new keys.
    pub fn write_due(&mut self, out: &mut Vec<u8>) {
        while self.tls.wants_write() {
            self.tls.write_tls(out).expect("a vector takes all bytes");
        }
    }

    /// Says that nothing follows from us.
    pub fn write_end(&mut self, out: &mut Vec<u8>) {
        self.tls.send_close_notify();
        self.write_due(out);
    }
}
