//! Listening sockets: one per shard on one port (SO_REUSEPORT), so that no shard accepts for another.
//!
//! SO_REUSEPORT also lets a second program of the same user take half of our clients silently; so an address is
//! first bound without it, which fails when anybody listens there.

use crate::error::ListenError;
use crate::limits::{LISTEN_BACKLOG, SOCKET_BUFFER_BYTES};
use crate::sys::socket;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};

/// One listening socket, not yet accepted from.
#[derive(Debug)]
pub struct ListenSocket {
    inner: TcpListener,
    local: SocketAddr,
}

impl ListenSocket {
    /// Listens on `addr` (port 0: the system chooses).
    ///
    /// # Errors
    /// [`ListenError`]: in use, not permitted, not ours.
    pub fn bind(addr: SocketAddr) -> Result<Self, ListenError> {
        probe(addr)
            .and_then(|()| open(addr))
            .map_err(|error| ListenError { addr, error })
    }

    /// `count` sockets (at least one) that share `addr`; with port 0 all share the port that the system chose.
    ///
    /// # Errors
    /// [`ListenError`]: in use, not permitted, not ours, no descriptor.
    pub fn bind_shared(addr: SocketAddr, count: usize) -> Result<Vec<Self>, ListenError> {
        let first = Self::bind(addr)?;
        let shared = first.local;
        let mut all = Vec::with_capacity(count.max(1));
        all.push(first);
        while all.len() < count {
            all.push(open(shared).map_err(|error| ListenError { addr, error })?);
        }
        Ok(all)
    }

    /// Where it listens; the port is never 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The socket itself, for a runtime.
    pub(crate) fn into_inner(self) -> TcpListener {
        self.inner
    }

    /// The descriptor, for the ring.
    pub(crate) fn raw(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

/// Fails when somebody listens on `addr`; leaves nothing behind.
fn probe(addr: SocketAddr) -> io::Result<()> {
    if addr.port() == 0 {
        return Ok(()); // a port that the system chooses is free
    }
    let fd = socket::tcp_socket(addr)?;
    socket::reuse_addr(&fd)?; // connections in TIME_WAIT are no program
    socket::bind(&fd, addr)
}

fn open(addr: SocketAddr) -> io::Result<ListenSocket> {
    let fd = socket::tcp_socket(addr)?;
    socket::reuse_addr(&fd)?;
    socket::reuse_port(&fd)?;
    socket::no_delay(&fd)?;
    socket::buffer_bytes(&fd, SOCKET_BUFFER_BYTES)?;
    socket::bind(&fd, addr)?;
    socket::listen(&fd, LISTEN_BACKLOG)?;
    let inner = TcpListener::from(fd);
    let local = inner.local_addr()?;
    Ok(ListenSocket { inner, local })
}
