//! What carries a driver's I/O: operations go in during a turn, their completions come out at the start of the next.
//!
//! Errors of operations are errno values. A backend owns the sockets and every buffer that the kernel may touch.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;
use weir_core::port::ConnId;
use weir_core::time::Mono;

/// What became of an operation; `S`: a socket as its backend has it.
#[derive(Debug)]
pub enum Completion<S> {
    /// Of [`Backend::accept`]; `more`: it goes on.
    Accept {
        /// The client's socket.
        socket: Result<S, i32>,
        /// Another completion of the same operation will follow.
        more: bool,
    },
    /// Of [`Backend::recv`]; `more`: it goes on. 0 bytes: the peer has ended.
    Recv {
        /// For which conn.
        conn: ConnId,
        /// How many bytes came.
        bytes: Result<usize, i32>,
        /// The buffer that it used: to be given back, also when nothing came.
        buffer: Option<u32>,
        /// Another completion of the same operation will follow.
        more: bool,
    },
    /// Of [`Backend::recv_stop`], and of a [`Backend::shutdown`] that was an operation.
    Ended(ConnId),
    /// Of [`Backend::send`] or [`Backend::send_rest`].
    Send {
        /// For which conn.
        conn: ConnId,
        /// How many bytes the kernel took.
        bytes: Result<usize, i32>,
    },
    /// Of [`Backend::connect`].
    Connect {
        /// For which conn.
        conn: ConnId,
        /// `ECANCELED`: the deadline passed first.
        result: Result<(), i32>,
    },
    /// The doorbell rang: [`Backend::bell`] arms it again.
    Bell,
}

/// What a send's completion means.
#[derive(Debug, PartialEq, Eq)]
pub enum SendProgress {
    /// Bytes are left: [`Backend::send_rest`] sends them.
    Short,
    /// All gone; the buffer comes back, empty.
    Done(Vec<u8>),
}

/// How long a driver may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until a completion.
    ForEver,
    /// Until a completion, at most so long.
    AtMost(Duration),
}

/// See the module. Operations of a conn name it by the id under which its socket was given.
pub trait Backend {
    /// A client's socket that no conn has yet.
    type Socket: std::fmt::Debug;

    /// Accepts until told to stop, or once (`more` says which). `room`: so many conns can be opened, at least one.
    fn accept(&mut self, room: usize) -> io::Result<()>;
    /// At the end of each turn in which an accept goes on: there is `room` for so many now. For a backend whose accepts
    /// bring one client each, and so keeps as many under way.
    fn accept_goes_on(&mut self, _room: usize) -> io::Result<()> {
        Ok(())
    }
    /// Ends the accept. Connections not yet accepted stay in the kernel's backlog, so nothing is lost.
    fn accept_stop(&mut self) -> io::Result<()>;
    /// Whose it is; `None`: the peer was gone before we looked.
    fn peer(&self, socket: &Self::Socket) -> Option<SocketAddr>;
    /// Takes the socket of a new conn.
    ///
    /// # Errors
    /// The system has no room for it; the socket is closed.
    fn open(&mut self, conn: ConnId, socket: Self::Socket) -> io::Result<()>;
    /// Closes a socket that gets no conn.
    fn discard(&mut self, socket: Self::Socket);
    /// Takes the socket of a conn to be and connects it; ends with `ECANCELED` at `deadline`.
    fn connect(
        &mut self,
        conn: ConnId,
        socket: TcpStream,
        to: SocketAddr,
        deadline: Mono,
    ) -> io::Result<()>;
    /// Ends one or both sides: every operation under way on an ended side ends by itself. True: this is an operation, too.
    #[must_use]
    fn shutdown(&mut self, conn: ConnId, how: Shutdown) -> bool;
    /// Closes the socket of a conn without operations under way.
    fn release(&mut self, conn: ConnId);
    /// Receives until told to stop, or once (`more` says which). One at a time per conn.
    fn recv(&mut self, conn: ConnId) -> io::Result<()>;
    /// Ends a receive that goes on. What was read is in completions; what was not stays in the socket.
    fn recv_stop(&mut self, conn: ConnId) -> io::Result<()>;
    /// The bytes that a receive brought into `buffer`.
    fn received(&self, buffer: u32, bytes: usize) -> &[u8];
    /// Gives the buffer of a receive back.
    fn buffer_back(&mut self, buffer: u32);
    /// Sends `bytes`, keeping them until [`SendProgress::Done`]. One at a time per conn.
    fn send(&mut self, conn: ConnId, bytes: Vec<u8>) -> io::Result<()>;
    /// Books the completion of a send that took `bytes`.
    fn sent(&mut self, conn: ConnId, bytes: usize) -> SendProgress;
    /// Sends what is left after a short send.
    fn send_rest(&mut self, conn: ConnId) -> io::Result<()>;
    /// After a send that failed, or whose rest is not wanted: the buffer comes back, empty.
    fn send_over(&mut self, conn: ConnId) -> Vec<u8>;
    /// Waits for the doorbell.
    fn bell(&mut self) -> io::Result<()>;
    /// Moves completions into `into`, as many as one turn takes. True: more are waiting.
    fn completions(&mut self, into: &mut Vec<Completion<Self::Socket>>) -> bool;
    /// Operations put in since the last call, for the counters.
    fn take_pushed(&mut self) -> u64;
    /// Completions wait inside the kernel because a queue was full.
    fn overflowed(&mut self) -> bool;
}
