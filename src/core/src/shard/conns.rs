//! The shard's side of its connections: parser, place of replies, deadlines. Fixed slots, one per driver slot.
//!
//! Used by [`super::intake`] and [`super::replies`]. The head's and body's deadlines are absolute: they run from the first
//! byte of the request, whatever trickles in (field bug R18). A write has until the kernel last took a part of it; that is
//! no loophole for a reader of single bytes, since a full socket buffer makes room in large steps only. Invariant: an entry is open from Accepted to Closed.

use super::wheel::Wheel;
use crate::limit::holds::Hold;
use crate::port::{ConnId, Effects};
use crate::time::{Mono, Now};
use alloc::vec::Vec;
use core::net::IpAddr;
use weir_proto::http::RequestParser;

/// End of the list of held replies.
pub const NO_HELD: u32 = u32::MAX;

/// How long a connection may take over each step, in milliseconds; each at least `wheel::ARM_AHEAD_MS`.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its head.
    pub head_ms: u64,
    /// From the end of the head to the end of the body.
    pub body_ms: u64,
    /// Without a request.
    pub idle_ms: u64,
    /// A reply's writing without the kernel taking any of it.
    pub write_ms: u64,
    /// From the moment at which all is written until the peer's FIN, while what it still sends is dropped.
    pub linger_ms: u64,
}

/// What a deadline that passed means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The head did not arrive in time.
    Head,
    /// The body did not arrive in time.
    Body,
    /// Nothing was asked for too long.
    Idle,
    /// The peer does not take its reply.
    Write,
    /// The peer did not end after our FIN.
    Linger,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The PROXY header comes first on this listener.
    Proxy,
    /// Requests and replies.
    Open,
    /// The closing reply is on its way or behind an earlier one, or there will be none: no further request is read.
    Closing,
    /// We sent FIN; what the peer still sends is dropped.
    Lingering,
}

/// One connection.
#[derive(Debug)]
pub struct Conn {
    /// Generation of the open connection; `None` for a free slot.
    generation: Option<u32>,
    /// See [`Phase`].
    pub phase: Phase,
    /// The client: the socket's peer until a PROXY header names another.
    pub client: IpAddr,
    /// Reads requests; keeps its place between events.
    pub parser: RequestParser,
    /// Number of the next request read.
    pub next_in: u32,
    /// Number of the next reply to leave.
    pub next_out: u32,
    /// First reply that waits for an earlier one, or [`NO_HELD`].
    pub held: u32,
    /// Receiving is off until the replies are out.
    pub paused: bool,
    /// In a list of those that may read again.
    pub stirred: bool,
    /// The peer will send no more.
    pub ended: bool,
    /// The client waits for 100 Continue, which has to wait for the replies before it.
    pub continue_owed: bool,
    /// Bytes dropped while lingering.
    pub drained_bytes: u64,
    /// Its place among its source's connections; `None` for a proxy's, and for one that was turned away.
    hold: Option<Hold>,
    turned_away: bool,
    read_due: Mono,
    in_body: bool,
    write_due: Option<Mono>,
    /// What the kernel had taken when a look was last taken.
    taken_bytes: u64,
}

impl Conn {
    fn vacant() -> Self {
        Self {
            generation: None,
            phase: Phase::Open,
            client: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
            parser: RequestParser::default(),
            next_in: 0,
            next_out: 0,
            held: NO_HELD,
            paused: false,
            stirred: false,
            ended: false,
            continue_owed: false,
            drained_bytes: 0,
            hold: None,
            turned_away: false,
            read_due: Mono(u64::MAX),
            in_body: false,
            write_due: None,
            taken_bytes: 0,
        }
    }

    /// Requests read whose reply has not left.
    pub fn outstanding(&self) -> u32 {
        self.next_in.wrapping_sub(self.next_out)
    }

    /// True when nothing is being read and nothing is owed.
    pub fn is_quiet(&self) -> bool {
        self.phase == Phase::Open && self.outstanding() == 0 && !self.parser.is_open()
    }

    /// True when the read deadline is not that of a request.
    fn is_between_requests(&self) -> bool {
        self.phase == Phase::Lingering || (self.phase != Phase::Proxy && !self.parser.is_open())
    }

    fn due(&self) -> Mono {
        // While we owe a reply the client is not the slow one, and nobody is idle to whom one is being written.
        let owed = self.outstanding() > 0 && self.phase != Phase::Lingering;
        let read = if owed || (self.write_due.is_some() && self.is_between_requests()) {
            Mono(u64::MAX)
        } else {
            self.read_due
        };
        read.min(self.write_due.unwrap_or(Mono(u64::MAX)))
    }
}

/// What a connection that is gone leaves behind.
#[derive(Debug)]
pub struct Left {
    /// First reply that waited, or [`NO_HELD`]; the caller frees the list.
    pub held: u32,
    /// Its place among its source's connections, which the caller gives back.
    pub hold: Option<Hold>,
    /// It was turned away at the door.
    pub turned_away: bool,
}

/// All connections of the shard.
#[derive(Debug)]
pub struct Conns {
    slots: Vec<Conn>,
    wheel: Wheel,
    timeouts: Timeouts,
    open_count: usize,
}

impl Conns {
    /// `conns_max`: the driver's slots.
    pub fn new(now: Mono, conns_max: usize, timeouts: Timeouts) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(conns_max, Conn::vacant);
        Self {
            slots,
            wheel: Wheel::new(now, conns_max),
            timeouts,
            open_count: 0,
        }
    }

    /// Takes up a new connection.
    pub fn open(&mut self, now: Now, id: ConnId, client: IpAddr, phase: Phase) {
        let slot = &mut self.slots[id.slot as usize];
        assert!(
            slot.generation.is_none(),
            "the driver gives a slot to one connection at a time"
        );
        *slot = Conn {
            generation: Some(id.generation),
            client,
            phase,
            ..Conn::vacant()
        };
        slot.read_due = now.mono.plus_ms(if phase == Phase::Proxy {
            self.timeouts.head_ms
        } else {
            self.timeouts.idle_ms
        });
        self.open_count += 1;
        self.rearm(now.mono, id);
    }

    /// Frees the slot; `None` when it was free already.
    pub fn close(&mut self, id: ConnId) -> Option<Left> {
        let conn = self.get_mut(id)?;
        let conn = core::mem::replace(conn, Conn::vacant());
        self.open_count -= 1;
        Some(Left {
            held: conn.held,
            hold: conn.hold,
            turned_away: conn.turned_away,
        })
    }

    /// Closes the connection without a word; what still comes in this turn is not read.
    pub fn give_up(&mut self, id: ConnId, fx: &mut Effects) {
        if let Some(conn) = self.get_mut(id) {
            conn.phase = Phase::Closing;
            fx.close(id);
        }
    }

    /// Keeps the connection's place among its source's until it is gone.
    pub fn put_hold(&mut self, id: ConnId, hold: Hold) {
        let conn = self.get_mut(id).expect("it was opened in this event");
        assert!(conn.hold.is_none(), "a connection has one source");
        conn.hold = Some(hold);
    }

    /// Remembers that the connection was turned away at the door.
    pub fn mark_turned_away(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id) {
            conn.turned_away = true;
        }
    }

    /// Connections that have a place among their source's.
    pub fn holds_count(&self) -> usize {
        self.slots.iter().filter(|conn| conn.hold.is_some()).count()
    }

    /// The open connection of that id.
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let slot = &mut self.slots[id.slot as usize];
        (slot.generation == Some(id.generation)).then_some(slot)
    }

    /// The open connection of that id.
    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        let slot = &self.slots[id.slot as usize];
        (slot.generation == Some(id.generation)).then_some(slot)
    }

    /// Open connections.
    pub fn open_count(&self) -> usize {
        self.open_count
    }

    /// Every open connection's id.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        (0_u32..).zip(&self.slots).filter_map(|(slot, conn)| {
            conn.generation
                .map(|generation| ConnId { slot, generation })
        })
    }

    /// Sets the read deadline after bytes were looked at: the head's and the body's start once, the idle one each time.
    /// `same`: the request in the parser is the one that was there before.
    pub fn after_read(&mut self, now: Mono, id: ConnId, same: bool) {
        let Timeouts {
            head_ms,
            body_ms,
            idle_ms,
            ..
        } = self.timeouts;
        let Some(conn) = self.get_mut(id) else { return };
        if matches!(conn.phase, Phase::Lingering | Phase::Proxy) {
            return;
        }
        conn.in_body &= same;
        if !conn.parser.is_open() {
            conn.read_due = now.plus_ms(idle_ms);
        } else if conn.parser.is_in_body() && !conn.in_body {
            conn.in_body = true;
            conn.read_due = now.plus_ms(body_ms);
        } else if !same {
            conn.read_due = now.plus_ms(head_ms);
        }
        self.rearm(now, id);
    }

    /// The idle time runs from the last reply.
    pub fn after_reply(&mut self, now: Mono, id: ConnId) {
        let Timeouts {
            idle_ms, write_ms, ..
        } = self.timeouts;
        let Some(conn) = self.get_mut(id) else { return };
        if !conn.parser.is_open() {
            conn.read_due = now.plus_ms(idle_ms);
        }
        conn.write_due.get_or_insert(now.plus_ms(write_ms));
        self.rearm(now, id);
    }

    /// The kernel has everything: the idle and the linger time run from here.
    pub fn after_sent(&mut self, now: Mono, id: ConnId) {
        let Timeouts {
            idle_ms, linger_ms, ..
        } = self.timeouts;
        let Some(conn) = self.get_mut(id) else { return };
        if conn.write_due.take().is_some() && conn.is_between_requests() {
            conn.read_due = now.plus_ms(match conn.phase {
                Phase::Lingering => linger_ms,
                _ => idle_ms,
            });
        }
    }

    /// Starts to linger.
    pub fn linger(&mut self, now: Mono, id: ConnId) {
        let linger_ms = self.timeouts.linger_ms;
        let Some(conn) = self.get_mut(id) else { return };
        conn.phase = Phase::Lingering;
        conn.paused = false; // what still comes is read and dropped
        conn.read_due = now.plus_ms(linger_ms);
        self.rearm(now, id);
    }

    fn rearm(&mut self, now: Mono, id: ConnId) {
        self.wheel
            .arm(now, id.slot, self.slots[id.slot as usize].due());
    }

    /// Takes every slot whose look is due into `due`.
    pub fn expire(&mut self, now: Mono, due: &mut Vec<u32>) {
        self.wheel.expire(now, due);
    }

    /// What the look at `slot` finds; re-arms when nothing is overdue. Every open slot is looked at within
    /// [`super::wheel::ARM_AHEAD_MS`], so a writing client is dropped by so much later than its time at most.
    pub fn look(&mut self, now: Mono, slot: u32, fx: &Effects) -> Option<(ConnId, Overdue)> {
        let write_ms = self.timeouts.write_ms;
        let conn = &mut self.slots[slot as usize];
        let id = ConnId {
            slot,
            generation: conn.generation?,
        };
        let taken_bytes = fx.taken_bytes(id);
        if conn.taken_bytes != taken_bytes {
            conn.taken_bytes = taken_bytes;
            conn.write_due = conn.write_due.map(|_| now.plus_ms(write_ms));
        }
        if conn.due() > now {
            self.rearm(now, id);
            return None;
        }
        let write_overdue = conn.write_due.is_some_and(|due| due <= now);
        let overdue = match conn.phase {
            _ if write_overdue => Overdue::Write,
            Phase::Lingering => Overdue::Linger,
            _ if conn.parser.is_in_body() => Overdue::Body,
            _ if conn.parser.is_open() || conn.phase == Phase::Proxy => Overdue::Head,
            _ => Overdue::Idle,
        };
        Some((id, overdue))
    }

    /// When [`Self::expire`] should be called next.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.wheel.next_look()
    }
}
