//! Hands a socket to glommio, which takes descriptors as numbers only.

use std::net::TcpStream;
use std::os::fd::{FromRawFd, IntoRawFd};

/// The same socket, in glommio's hands. Only on the thread of a glommio executor.
pub fn glommio_stream(socket: TcpStream) -> glommio::net::TcpStream {
    // SAFETY: the descriptor is open, and nobody else owns it: `into_raw_fd` gave it up.
    unsafe { glommio::net::TcpStream::from_raw_fd(socket.into_raw_fd()) }
}
