//! Sockets of a ring: descriptors of the process, or places in the ring's own table (direct descriptors).
//!
//! A direct socket is no descriptor of the process: RLIMIT_NOFILE bounds the table of one ring, not the process
//! (io_uring/rsrc.c, io_sqe_files_register). Nothing but the ring can use it, so what the kernel would tell by a system
//! call comes otherwise: the peer's address with the accept, and an end of one side by IORING_OP_SHUTDOWN. Options are
//! the listener's, which accepted sockets inherit (TCP_NODELAY, SO_SNDBUF, SO_RCVBUF).
//!
//! An accept brings one client, with its address, and at most [`ACCEPTS_MAX`] are under way. A multishot accept has no
//! memory for an address, may bring the whole backlog for one free slot, and takes clients out of it for whom a table has no
//! place: those would be closed. So a table has a place for every conn and every accept, and is never full while one is
//! under way.

use crate::limits::ACCEPTS_MAX;
use crate::sys::socket::PeerAddr;
use io_uring::squeue::Flags;
use io_uring::types::{Fd, Fixed};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

/// Places in the table of a ring for so many conns.
pub fn places(conns_max: u32) -> u32 {
    conns_max.saturating_add(ACCEPTS_MAX)
}

/// One socket.
#[derive(Debug)]
pub enum Socket {
    /// A descriptor of the process; closed when dropped.
    Open(TcpStream),
    /// A place in the ring's table; closed by the ring.
    Direct(Fixed),
}

impl Socket {
    /// How an entry names it.
    pub fn target(&self) -> (Fd, Flags) {
        match self {
            Self::Open(socket) => (Fd(socket.as_raw_fd()), Flags::empty()),
            Self::Direct(place) => (Fd(place.0.cast_signed()), Flags::FIXED_FILE),
        }
    }
}

/// An accepted socket.
#[derive(Debug)]
pub struct Client {
    /// The socket.
    pub socket: Socket,
    /// Its peer; `None`: gone before we looked.
    pub peer: Option<SocketAddr>,
}

/// The accepts of a ring, by number: those with the kernel have lent it their address.
#[derive(Debug)]
pub struct Accepts {
    peers: Box<[PeerAddr]>,
    idle: Vec<u32>,
}

impl Accepts {
    /// None under way.
    pub fn new() -> Self {
        let mut peers = Vec::new();
        peers.resize_with(ACCEPTS_MAX as usize, PeerAddr::new);
        Self {
            peers: peers.into_boxed_slice(),
            idle: (0..ACCEPTS_MAX).collect(),
        }
    }

    /// How many are with the kernel.
    pub fn under_way(&self) -> usize {
        self.peers.len() - self.idle.len()
    }

    /// The number of one more, and the memory that it lends.
    pub fn begin(&mut self) -> Option<(u32, &mut PeerAddr)> {
        let number = self.idle.pop()?;
        let peer = &mut self.peers[number as usize];
        peer.clear();
        Some((number, peer))
    }

    /// The kernel has given `number` back; the address of the peer, if it brought one.
    pub fn end(&mut self, number: u32) -> Option<SocketAddr> {
        self.idle.push(number);
        self.peers[number as usize].get()
    }
}
