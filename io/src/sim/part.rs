//! One handler in the world with what its driver would hold: effects, slots, inbox, news, timers. Plain state.

use super::queue::EndRef;
use std::any::Any;
use std::collections::VecDeque;
use std::net::SocketAddr;
use weir_core::mail::Addr;
use weir_core::port::{ConnId, ConnectError, ConnectToken, Effects, Handler, Op};

/// A handler that the world's caller can look into between turns. Every `'static` handler is one.
pub trait SimPart: Handler + Any {
    /// For a downcast to the handler's own type.
    fn as_any(&self) -> &dyn Any;
    /// For a downcast to the handler's own type.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<H: Handler + 'static> SimPart for H {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Where a part is: on which machine, and under which address there. Mail goes to the parts of its own machine; between
/// machines there are connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// The machine, from 0.
    pub machine: u16,
    /// The address there.
    pub addr: Addr,
}

impl From<Addr> for Seat {
    /// On the first machine, which is the only one of most worlds.
    fn from(addr: Addr) -> Self {
        Self { machine: 0, addr }
    }
}

/// How a part takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// It accepts none.
    No,
    /// It listens on this address; several parts may share one, and each connect picks one of them (SO_REUSEPORT).
    On(SocketAddr),
}

/// Whether a part takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It runs.
    Running,
    /// It asked to stop, and its last conn is closed. Its state can still be looked into.
    Stopped,
    /// It vanished with its state; `restart` puts a new handler in its place.
    Crashed,
}

/// What a part learns in its next turn, besides mail.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    Conn(EndRef),
    ConnectFailed {
        token: ConnectToken,
        error: ConnectError,
    },
    Drain,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub generation: u32,
    pub end: Option<EndRef>,
}

/// A part.
pub(super) struct Part {
    pub seat: Seat,
    pub status: Status,
    /// Absent while its turn runs and after a crash.
    pub handler: Option<Box<dyn SimPart>>,
    pub started: bool,
    /// Grows at each crash: mail of an earlier life is lost.
    pub life: u32,
    pub fx: Effects,
    pub slots: Vec<Slot>,
    pub free: Vec<u32>,
    pub listen: Listen,
    pub accept_on: bool,
    pub stopping: bool,
    pub backlog: VecDeque<EndRef>,
    pub inbox: VecDeque<u32>,
    /// In the inbox and on the way to it.
    pub mail_count: usize,
    pub news: Vec<News>,
    /// The other buffer of `news` and of ops: swapped, so that neither is allocated per turn.
    pub news_spare: Vec<News>,
    pub ops_spare: Vec<Op>,
    /// Tick is due then.
    pub deadline_ns: u64,
    /// No turn begins before.
    pub busy_until_ns: u64,
    /// There is news that a scheduled turn will take up.
    pub woken: bool,
    /// When the scheduled turn begins; `u64::MAX`: none is.
    pub turn_at_ns: u64,
    /// Names the scheduled turn; older ones are void.
    pub stamp: u32,
    /// When the last mail to each receiver arrives: the next may not overtake it.
    pub last_mail: Vec<(u32, u64)>,
}

impl Part {
    pub fn new(seat: Seat, handler: Box<dyn SimPart>, listen: Listen, conns_max: usize) -> Self {
        let mut part = Self {
            seat,
            status: Status::Running,
            handler: None,
            started: false,
            life: 0,
            fx: Effects::default(),
            slots: vec![
                Slot {
                    generation: 0,
                    end: None
                };
                conns_max
            ],
            free: Vec::with_capacity(conns_max),
            listen,
            accept_on: true,
            stopping: false,
            backlog: VecDeque::new(),
            inbox: VecDeque::new(),
            mail_count: 0,
            news: Vec::new(),
            news_spare: Vec::new(),
            ops_spare: Vec::new(),
            deadline_ns: u64::MAX,
            busy_until_ns: 0,
            woken: false,
            turn_at_ns: u64::MAX,
            stamp: 0,
            last_mail: Vec::new(),
        };
        part.begin(handler);
        part
    }

    /// Puts a fresh handler in: nothing of an earlier life is left but the generations, so that no conn id repeats.
    pub fn begin(&mut self, handler: Box<dyn SimPart>) {
        self.handler = Some(handler);
        self.status = Status::Running;
        self.started = false;
        self.fx = Effects::new(self.slots.len());
        self.free_all_slots();
        self.accept_on = true;
        self.stopping = false;
        self.deadline_ns = u64::MAX;
        self.busy_until_ns = 0;
        self.turn_at_ns = u64::MAX;
        self.woken = false;
    }

    /// Frees every slot, after its conn was let go.
    pub fn free_all_slots(&mut self) {
        self.free.clear();
        self.free.extend((0..self.slots.len() as u32).rev());
    }

    /// Takes a slot for a new conn; `None` when all are in use.
    pub fn take_slot(&mut self, end: impl FnOnce(ConnId) -> EndRef) -> Option<ConnId> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let conn = ConnId {
            slot: index,
            generation: slot.generation,
        };
        slot.end = Some(end(conn));
        Some(conn)
    }

    /// The end behind a conn, unless the conn is gone.
    pub fn end_of(&self, conn: ConnId) -> Option<EndRef> {
        let slot = self.slots.get(conn.slot as usize)?;
        if slot.generation == conn.generation {
            slot.end
        } else {
            None
        }
    }

    /// Frees the slot of a conn that is gone.
    pub fn free_slot(&mut self, conn: ConnId) {
        self.slots[conn.slot as usize].end = None;
        self.free.push(conn.slot);
    }

    pub fn conns_count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
