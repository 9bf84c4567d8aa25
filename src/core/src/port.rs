//! The seam: a driver turns I/O into [`Event`]s, a [`Handler`] turns events into [`Effects`].
//!
//! Drivers (weir-io) own clocks, sockets and threads; handlers (shard, owner, worker, stores, buyers) own decisions.
//! One turn: mail in, completions, Tick if due, `on_flush`, one write per dirty conn, wait until `next_deadline`.
//! Invariants: [`Event::Closed`] comes once and last for a conn; bytes arrive in order; a conn id is never used twice
//! (slot + generation); nothing here names a buffer type of a backend. Deliberately no traits beyond `Handler`.

use crate::mail::{Addr, Mail};
use crate::time::{Mono, Now};
use crate::tls::{TlsFault, TlsPeer};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::SocketAddr;

/// One connection of this handler: a slot of the driver's table and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// Index in the driver's table, below its capacity.
    pub slot: u32,
    /// Grows each time the slot is given to a new connection.
    pub generation: u32,
}

/// The handler's own name for an outgoing connection that it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectToken(pub u64);

/// Why a connect did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The peer answered with a reset.
    Refused,
    /// The deadline passed first.
    TimedOut,
    /// No descriptor, no port, no slot or another local limit.
    LocalLimit,
    /// Connected, and the handshake of TLS failed.
    Tls(TlsFault),
    /// Anything else; the errno.
    Other(i32),
}

/// Why a conn is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The handler closed it.
    Local,
    /// The peer reset it, or sending failed.
    Reset,
    /// The driver is shutting down.
    Shutdown,
}

/// What a conn received and the handler has not consumed yet, as one contiguous slice.
#[derive(Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    consumed: &'a Cell<usize>,
    ended: bool,
}

impl<'a> Input<'a> {
    /// `bytes`: everything received and not consumed; `ended`: the peer will send no more; `consumed`: starts at 0
    /// and tells the driver, after the event, how much the handler took.
    pub fn new(bytes: &'a [u8], ended: bool, consumed: &'a Cell<usize>) -> Self {
        Self {
            bytes,
            consumed,
            ended,
        }
    }

    /// What is not consumed yet.
    pub fn bytes(&self) -> &'a [u8] {
        &self.bytes[self.consumed.get()..]
    }

    /// Marks the first `n` bytes of [`Self::bytes`] as done.
    ///
    /// # Panics
    /// When `n` exceeds what is there: only a bug of the handler can do that.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.bytes().len(), "consumed more than was received");
        self.consumed.set(self.consumed.get() + n);
    }

    /// True when the peer closed its sending side: after these bytes nothing follows.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

/// What a driver tells a handler.
#[derive(Debug)]
pub enum Event<'a> {
    /// A client connected; receiving is on.
    Accepted {
        /// The new conn.
        conn: ConnId,
        /// The socket's peer.
        peer: SocketAddr,
    },
    /// A connect that the handler asked for succeeded; receiving is on.
    Connected {
        /// The new conn.
        conn: ConnId,
        /// The name given in [`Connect`].
        token: ConnectToken,
    },
    /// A connect that the handler asked for failed.
    ConnectFailed {
        /// The name given in [`Connect`].
        token: ConnectToken,
        /// Why.
        error: ConnectError,
    },
    /// Bytes arrived, or the peer ended its side, or receiving was switched on again while bytes were kept.
    /// What the handler does not consume is shown again, with what follows, in the next `Received`.
    Received {
        /// The conn.
        conn: ConnId,
        /// The bytes; see [`Input`].
        input: Input<'a>,
    },
    /// Everything given to the outbox of this conn is with the kernel.
    Sent {
        /// The conn.
        conn: ConnId,
    },
    /// The conn is gone; its slot is free. Once per conn, and last.
    Closed {
        /// The conn.
        conn: ConnId,
        /// Why.
        cause: CloseCause,
    },
    /// A message from another part.
    Mail(Mail),
    /// The deadline named by [`Handler::next_deadline`] has passed.
    Tick,
    /// The program is asked to stop (SIGTERM): stop accepting, finish, then [`Effects::stop`].
    Drain,
}

/// One part of weir: a plain value that turns events into effects.
pub trait Handler: Send {
    /// Called once, before any other event.
    fn on_start(&mut self, now: Now, fx: &mut Effects);
    /// Takes one event: parses and stages, decides what needs no batch.
    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects);
    /// Ends the turn: decides all that was staged, in arrival order, and seals batches.
    fn on_flush(&mut self, now: Now, fx: &mut Effects);
    /// When the next [`Event::Tick`] is due; `None`: never. Asked once per turn.
    fn next_deadline(&self) -> Option<Mono>;
}

/// A connect that a handler asks for.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// Comes back in `Connected` or `ConnectFailed`.
    pub token: ConnectToken,
    /// The peer.
    pub to: SocketAddr,
    /// The local address to bind (port 0: any); `None`: the kernel chooses.
    pub from: Option<SocketAddr>,
    /// After this the answer is `ConnectFailed(TimedOut)`.
    pub deadline: Mono,
}

/// A command to the driver about conns; carried out after `on_flush`, in order, per conn after its outbox.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Open a connection.
    Connect(Connect),
    /// Flush the outbox, then close our sending side (FIN). Receiving goes on until the peer ends or `Close`.
    /// Once the peer's end has been shown too, nothing can follow: the driver closes, `Closed(Local)` comes.
    Finish(ConnId),
    /// Close now: unsent bytes are lost. `Closed(Local)` follows.
    Close(ConnId),
    /// Switch receiving on or off. While off no `Received` comes; switching on shows kept bytes again.
    Receive(ConnId, bool),
    /// Switch accepting on or off.
    Accept(bool),
    /// End this handler's loop once every conn is closed.
    Stop,
}

/// A slot's outbox buffer above this is given back when its conn goes: one large answer must not make a slot dear for ever.
const OUTBOX_KEEP_BYTES_MAX: usize = 64 * 1024;

/// What is waiting to be sent on one conn.
#[derive(Debug, Default)]
struct Outbox {
    generation: u32,
    dirty: bool,
    /// Bytes that the driver took and has not finished sending.
    in_flight_bytes: usize,
    /// What the kernel took since the conn was opened.
    taken_bytes: u64,
    pending: Vec<u8>,
}

/// What a handler wants done; the driver empties it at the end of each turn. One per handler, reused.
#[derive(Debug, Default)]
pub struct Effects {
    outboxes: Vec<Outbox>,
    dirty: Vec<ConnId>,
    ops: Vec<Op>,
    posts: VecDeque<(Addr, Mail)>,
    /// Where bytes for conns that are gone go: emptied at each use, so that they never reach the slot's next client.
    nowhere: Vec<u8>,
    /// Not among `ops`: a driver must never make one of these, or what is to be encrypted would leave as it is.
    tls_connects: Vec<(Connect, TlsPeer)>,
}

impl Effects {
    /// `conns_max`: the driver's slots. Outbox buffers are allocated when first used and kept.
    pub fn new(conns_max: usize) -> Self {
        let mut outboxes = Vec::new();
        outboxes.resize_with(conns_max, Outbox::default);
        Self {
            outboxes,
            dirty: Vec::with_capacity(conns_max),
            ops: Vec::with_capacity(64),
            posts: VecDeque::new(),
            nowhere: Vec::new(),
            tls_connects: Vec::new(),
        }
    }

    /// The bytes to send on `conn`, to append to; they leave in one write at the end of the turn.
    /// For a conn that is gone the bytes go nowhere.
    pub fn outbox(&mut self, conn: ConnId) -> &mut Vec<u8> {
        let outbox = &mut self.outboxes[conn.slot as usize];
        if outbox.generation != conn.generation {
            self.nowhere.clear();
            return &mut self.nowhere;
        }
        if !outbox.dirty {
            outbox.dirty = true;
            self.dirty.push(conn);
        }
        &mut outbox.pending
    }

    /// Bytes given to [`Self::outbox`] that the kernel has not taken yet.
    pub fn unsent_bytes(&self, conn: ConnId) -> usize {
        let outbox = &self.outboxes[conn.slot as usize];
        if outbox.generation == conn.generation {
            outbox.pending.len() + outbox.in_flight_bytes
        } else {
            0
        }
    }

    /// Bytes of `conn` that the kernel took so far: grows while the peer reads. 0 for a conn that is gone.
    pub fn taken_bytes(&self, conn: ConnId) -> u64 {
        let outbox = &self.outboxes[conn.slot as usize];
        if outbox.generation == conn.generation {
            outbox.taken_bytes
        } else {
            0
        }
    }

    /// Asks for an outgoing connection.
    pub fn connect(&mut self, connect: Connect) {
        self.ops.push(Op::Connect(connect));
    }

    /// Asks for an encrypted outgoing connection to `peer`: `Connected` comes after its handshake, and all bytes of it
    /// are plain here. Only for a handler inside weir-io's `OverTls`: elsewhere nothing comes of it.
    pub fn connect_tls(&mut self, connect: Connect, peer: TlsPeer) {
        self.tls_connects.push((connect, peer));
    }

    /// Flushes, then ends our sending side; see [`Op::Finish`].
    pub fn finish(&mut self, conn: ConnId) {
        self.ops.push(Op::Finish(conn));
    }

    /// Closes at once; see [`Op::Close`].
    pub fn close(&mut self, conn: ConnId) {
        self.ops.push(Op::Close(conn));
    }

    /// Switches receiving; see [`Op::Receive`].
    pub fn receive(&mut self, conn: ConnId, on: bool) {
        self.ops.push(Op::Receive(conn, on));
    }

    /// Switches accepting; see [`Op::Accept`].
    pub fn accept(&mut self, on: bool) {
        self.ops.push(Op::Accept(on));
    }

    /// Ends this handler's loop; see [`Op::Stop`].
    pub fn stop(&mut self) {
        self.ops.push(Op::Stop);
    }

    /// Posts `mail` to `to`; delivered in order per receiver. A full mailbox keeps it here and tries again each turn.
    /// Askers bound what they have outstanding (shards by in-flight slots and `limits::POSTS_WAITING_MAX`, the worker by
    /// `limits::LEDGER_STEPS_MAX`, the owner by the answers of its two batches) and watch [`Self::posts_waiting`].
    pub fn post(&mut self, to: Addr, mail: Mail) {
        self.posts.push_back((to, mail));
    }

    /// Mail that its receiver's box did not take yet.
    pub fn posts_waiting(&self) -> usize {
        self.posts.len()
    }
}

/// The driver's side of [`Effects`].
impl Effects {
    /// Gives slot `conn.slot` to a new connection.
    pub fn open_conn(&mut self, conn: ConnId) {
        let outbox = &mut self.outboxes[conn.slot as usize];
        outbox.generation = conn.generation;
        outbox.dirty = false;
        outbox.in_flight_bytes = 0;
        outbox.taken_bytes = 0;
        outbox.pending.clear();
    }

    /// Forgets a connection: what it had pending goes nowhere. The slot keeps its buffer, unless it is large.
    pub fn forget_conn(&mut self, conn: ConnId) {
        let outbox = &mut self.outboxes[conn.slot as usize];
        if outbox.generation == conn.generation {
            outbox.generation = outbox.generation.wrapping_add(1);
            outbox.dirty = false;
            outbox.in_flight_bytes = 0;
            if outbox.pending.capacity() > OUTBOX_KEEP_BYTES_MAX {
                outbox.pending = Vec::new();
            }
            outbox.pending.clear();
        }
    }

    /// The next conn with fresh bytes in its outbox, each once per turn; `None` when all were taken.
    pub fn next_dirty(&mut self) -> Option<ConnId> {
        while let Some(conn) = self.dirty.pop() {
            let outbox = &mut self.outboxes[conn.slot as usize];
            if outbox.generation == conn.generation && outbox.dirty {
                outbox.dirty = false;
                return Some(conn);
            }
        }
        None
    }

    /// Swaps the pending bytes of `conn` with the empty `buffer` and counts them as in flight.
    pub fn take_pending(&mut self, conn: ConnId, buffer: &mut Vec<u8>) {
        debug_assert!(buffer.is_empty(), "the send buffer is still in use");
        let outbox = &mut self.outboxes[conn.slot as usize];
        if outbox.generation == conn.generation {
            core::mem::swap(&mut outbox.pending, buffer);
            outbox.in_flight_bytes += buffer.len();
        }
    }

    /// Tells that the kernel took `bytes` more of what was in flight.
    pub fn sent(&mut self, conn: ConnId, bytes: usize) {
        let outbox = &mut self.outboxes[conn.slot as usize];
        if outbox.generation == conn.generation {
            outbox.in_flight_bytes -= bytes;
            outbox.taken_bytes += bytes as u64;
        }
    }

    /// Takes the commands of this turn, in order, into `ops` (which comes back emptied next turn).
    pub fn take_ops(&mut self, ops: &mut Vec<Op>) {
        debug_assert!(ops.is_empty(), "the commands of the last turn are done");
        core::mem::swap(&mut self.ops, ops);
    }

    /// For what makes encrypted connections: the next one that is asked for, in no order.
    pub fn next_tls_connect(&mut self) -> Option<(Connect, TlsPeer)> {
        self.tls_connects.pop()
    }

    /// Offers each waiting post, in order, to `deliver`, which gives the mail back when the box is full.
    /// Order per receiver holds: after a refusal the later posts to the same receiver wait too.
    pub fn deliver_posts(&mut self, mut deliver: impl FnMut(Addr, Mail) -> Result<(), Mail>) {
        let mut refused: Vec<Addr> = Vec::new();
        for _ in 0..self.posts.len() {
            let Some((to, mail)) = self.posts.pop_front() else {
                break;
            };
            if refused.contains(&to) {
                self.posts.push_back((to, mail));
            } else if let Err(mail) = deliver(to, mail) {
                refused.push(to);
                self.posts.push_back((to, mail));
            }
        }
    }
}
