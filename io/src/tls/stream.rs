//! An encrypted connection for whoever may block: what is asked before anything starts.

use super::{TlsClient, fault_of};
use rustls::{ClientConnection, StreamOwned};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use weir_core::tls::{Host, TlsFault};

/// See the module. Errors of TLS are `InvalidData` and carry a [`TlsFault`]: see [`told`].
pub struct TlsStream(StreamOwned<ClientConnection, TcpStream>);

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsStream").field(&self.0.sock).finish()
    }
}

impl TlsStream {
    /// Ends the handshake with the server at the other end of `socket`, which must be `host`. The socket's timeouts
    /// are those of each step.
    ///
    /// # Errors
    /// A [`TlsFault`].
    pub fn connect(client: &TlsClient, mut socket: TcpStream, host: &Host) -> io::Result<Self> {
        let mut tls = client.begin(host).map_err(of_fault)?;
        let mut first = [0; 1];
        while tls.wants_write() {
            tls.write_tls(&mut socket).map_err(of_handshake)?;
        }
        let seen = socket.peek(&mut first).map_err(of_handshake)?;
        if seen == 1 && !super::is_tls(first[0]) {
            return Err(of_fault(TlsFault::NotTls));
        }
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).map_err(of_handshake)?;
        }
        Ok(Self(StreamOwned::new(tls, socket)))
    }
}

impl Read for TlsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(of_io)
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(of_io)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(of_io)
    }
}

/// The fault of TLS that an error carries; `None`: it is one of the connection below.
pub fn told(error: &io::Error) -> Option<TlsFault> {
    error.get_ref()?.downcast_ref().copied()
}

fn of_fault(fault: TlsFault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}

fn of_io(error: io::Error) -> io::Error {
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref());
    match inside.map(fault_of) {
        Some(fault) => of_fault(fault),
        None => error,
    }
}

/// The peer knows what is wrong: in a handshake a connection that ends is a fault of TLS, too.
fn of_handshake(error: io::Error) -> io::Error {
    use io::ErrorKind as K;
    match error.kind() {
        K::UnexpectedEof | K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe => {
            of_fault(TlsFault::Ended)
        }
        K::WouldBlock | K::TimedOut => of_fault(TlsFault::Silent),
        _ => of_io(error),
    }
}
