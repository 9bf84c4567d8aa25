//! Driver **sim**: many handlers on one virtual clock, the network and the mail between them, faults drawn from a seed.
//!
//! Called by `weir sim`, the conformance suite and tests. Invariants: equal seeds, parts and faults give equal event
//! sequences on every machine (no threads, no real clock, no iteration over hashed tables, no floats), told by
//! [`World::hash`]; every handler sees what the real driver would show it (see [`weir_core::port`]).
//! Deliberately absent: any thought about what the parts do; checkers belong to the caller, between two turns.

mod boxes;
mod config;
mod faults;
mod hash;
mod link;
mod net;
mod part;
mod queue;
mod turn;

pub use config::{Config, Span};
pub use faults::{Dial, DialFate, Faults, MailFate, NoFaults, Route, SegmentFate};
pub use part::{Listen, Seat, SimPart, Status};

use boxes::Posted;
use hash::EventHash;
use link::Links;
use part::{News, Part};
use queue::{Queue, What};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_core::mail::Addr;
use weir_core::port::ConnId;
use weir_core::rng::Rng;
use weir_core::time::{Mono, NS_PER_MS, Now, WallMs};

/// The first port given to a connect that names none (Linux's default range starts here).
const EPHEMERAL_PORT_MIN: u16 = 32_768;

/// One turn that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepInfo {
    /// When it began.
    pub at: Now,
    /// On which machine.
    pub machine: u16,
    /// Whose.
    pub part: Addr,
    /// Events it was told.
    pub events: u32,
}

/// Prints one line per event.
type Trace = Box<dyn FnMut(&str)>;

/// The world.
pub struct World {
    config: Config,
    rng: Rng,
    /// Apart from `rng`, so that a fault that is looked for and not found does not change everything after it.
    fault_rng: Rng,
    faults: Box<dyn Faults>,
    now_ns: u64,
    wall_offset_ms: i64,
    queue: Queue,
    parts: Vec<Part>,
    index: BTreeMap<Seat, u32>,
    listeners: BTreeMap<SocketAddr, Vec<u32>>,
    links: Links,
    mails: Vec<Option<Posted>>,
    mails_free: Vec<u32>,
    lost_mail: u64,
    next_port: u16,
    scratch: Vec<u8>,
    hash: EventHash,
    trace: Option<Trace>,
}

impl World {
    /// An empty world. Everything that is drawn later comes from `seed`.
    pub fn new(seed: u64, config: Config) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            config,
            fault_rng: rng.fork(),
            rng,
            faults: Box::new(NoFaults),
            now_ns: 0,
            wall_offset_ms: 0,
            queue: Queue::default(),
            parts: Vec::new(),
            index: BTreeMap::new(),
            listeners: BTreeMap::new(),
            links: Links::default(),
            mails: Vec::new(),
            mails_free: Vec::new(),
            lost_mail: 0,
            next_port: EPHEMERAL_PORT_MIN,
            scratch: Vec::new(),
            hash: EventHash::new(),
            trace: None,
        }
    }

    /// Puts a hook in charge of all that travels from now on.
    pub fn set_faults(&mut self, faults: Box<dyn Faults>) {
        self.faults = faults;
    }

    /// Sends one line per event to `sink` from now on. Costs time; changes nothing else.
    pub fn set_trace(&mut self, sink: Box<dyn FnMut(&str)>) {
        self.trace = Some(sink);
    }

    /// Adds a part; its `on_start` is its first turn. `conns_max`: its slots for connections, both ways.
    ///
    /// # Panics
    /// When there is a part already: only the caller's bug can do that.
    pub fn add_part(
        &mut self,
        seat: impl Into<Seat>,
        handler: Box<dyn SimPart>,
        listen: Listen,
        conns_max: usize,
    ) {
        let (part, seat) = (self.parts.len() as u32, seat.into());
        let before = self.index.insert(seat, part);
        assert!(before.is_none(), "{seat:?} is in this world already");
        self.parts.push(Part::new(seat, handler, listen, conns_max));
        self.listen(part);
        self.wake(part);
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        let wall_ms = self.config.wall_start_ms + self.now_ns / NS_PER_MS;
        Now {
            mono: Mono(self.now_ns),
            wall: WallMs(wall_ms.saturating_add_signed(self.wall_offset_ms)),
        }
    }

    /// Moves the wall clock of all parts by `delta_ms` from now on; the monotonic clock goes on.
    pub fn step_wall(&mut self, delta_ms: i64) {
        self.wall_offset_ms = self.wall_offset_ms.saturating_add(delta_ms);
        self.hash.word(delta_ms as u64);
    }

    /// Runs the next turn. `None`: nothing will ever happen again.
    pub fn step(&mut self) -> Option<StepInfo> {
        self.step_until(u64::MAX)
    }

    /// Runs the next turn that begins at or before `limit_ns` of virtual time. `None`: there is none, and the clock
    /// stands at `limit_ns` (or, without a limit, at the last event).
    pub fn step_until(&mut self, limit_ns: u64) -> Option<StepInfo> {
        let info = self.advance(limit_ns);
        if info.is_none() && limit_ns != u64::MAX {
            self.now_ns = self.now_ns.max(limit_ns);
        }
        info
    }

    /// The agenda up to the next turn, if that begins at or before `limit_ns`.
    fn advance(&mut self, limit_ns: u64) -> Option<StepInfo> {
        while self.queue.next_ns().is_some_and(|at_ns| at_ns <= limit_ns) {
            let (at_ns, what) = self.queue.pop()?;
            match what {
                What::Turn { part, stamp } => {
                    if let Some(info) = self.turn_if_due(part, stamp, at_ns) {
                        return Some(info);
                    }
                }
                What::Mail { slot } => {
                    self.now_ns = at_ns;
                    self.mail_arrives(slot);
                }
                what => {
                    self.now_ns = at_ns;
                    self.network(what);
                }
            }
        }
        None
    }

    fn turn_if_due(&mut self, part: u32, stamp: u32, at_ns: u64) -> Option<StepInfo> {
        let owner = &mut self.parts[part as usize];
        if owner.stamp != stamp || owner.status != Status::Running {
            return None;
        }
        owner.turn_at_ns = u64::MAX;
        if at_ns < owner.busy_until_ns {
            let later_ns = owner.busy_until_ns;
            self.wake_at(part, later_ns);
            return None;
        }
        self.now_ns = at_ns;
        self.turn(part)
    }

    /// Runs for `ns` of virtual time.
    pub fn run_for(&mut self, ns: u64) {
        let limit_ns = self.now_ns.saturating_add(ns);
        while self.step_until(limit_ns).is_some() {}
    }

    /// Runs until nothing is scheduled, deadlines included, or `max_virtual_ns` have passed. True: nothing is, and the
    /// clock stands at the last event. A part that ticks for ever is never idle: see [`Self::run_until`].
    pub fn run_until_idle(&mut self, max_virtual_ns: u64) -> bool {
        let limit_ns = self.now_ns.saturating_add(max_virtual_ns);
        loop {
            while self.queue.peek().is_some_and(|what| self.is_void(what)) {
                self.queue.pop();
            }
            match self.queue.next_ns() {
                None => return true,
                Some(at_ns) if at_ns > limit_ns => {
                    self.now_ns = limit_ns;
                    return false;
                }
                Some(_) => {
                    self.advance(limit_ns);
                }
            }
        }
    }

    /// True for a timer that was overtaken: nothing will come of it.
    fn is_void(&self, what: What) -> bool {
        match what {
            What::Turn { part, stamp } => self.parts[part as usize].stamp != stamp,
            What::ConnectDeadline(end) => !self.links.is_dialing(end),
            _ => false,
        }
    }

    /// Runs until `done`, asked after every turn and once before, or until `max_virtual_ns` have passed. True: done.
    pub fn run_until(&mut self, max_virtual_ns: u64, mut done: impl FnMut(&Self) -> bool) -> bool {
        let limit_ns = self.now_ns.saturating_add(max_virtual_ns);
        loop {
            if done(self) {
                return true;
            }
            if self.step_until(limit_ns).is_none() {
                return done(self);
            }
        }
    }

    /// The part vanishes with its state: its peers see resets; mail on its way to it, in its box, and posted by it but not
    /// taken by a box is lost. Gives what was its handler, so that a model of a disk can be carried over; `None`: it had crashed before.
    pub fn crash(&mut self, seat: impl Into<Seat>) -> Option<Box<dyn SimPart>> {
        let part = *self.index.get(&seat.into())?;
        let owner = &mut self.parts[part as usize];
        if owner.status == Status::Crashed {
            return None;
        }
        owner.status = Status::Crashed;
        owner.stamp = owner.stamp.wrapping_add(1);
        owner.news.clear();
        let handler = owner.handler.take();
        self.lose_inbox(part);
        self.note(part, 11, 0, "crash", "");
        self.unlisten(part);
        for slot in 0..self.parts[part as usize].slots.len() {
            if let Some(end) = self.parts[part as usize].slots[slot].end.take() {
                self.abandon(end);
            }
        }
        self.parts[part as usize].free_all_slots();
        handler
    }

    fn lose_inbox(&mut self, part: u32) {
        let owner = &mut self.parts[part as usize];
        owner.life = owner.life.wrapping_add(1);
        owner.mail_count = 0;
        for slot in owner.inbox.drain(..) {
            self.mails[slot as usize] = None;
            self.mails_free.push(slot);
            self.lost_mail += 1;
        }
    }

    /// Puts a new handler in the place of one that crashed or stopped; it listens again where the old one did.
    ///
    /// # Panics
    /// When the part runs or was never added: only the caller's bug can do that.
    pub fn restart(&mut self, seat: impl Into<Seat>, handler: Box<dyn SimPart>) {
        let seat = seat.into();
        let part = self.index_of(seat);
        let owner = &mut self.parts[part as usize];
        assert!(owner.status != Status::Running, "{seat:?} still runs");
        owner.begin(handler);
        self.lose_inbox(part);
        self.note(part, 12, 0, "restart", "");
        self.listen(part);
        self.wake(part);
    }

    /// The part begins no turn for `ns` from now (a slow disk, a descheduled thread).
    pub fn pause(&mut self, seat: impl Into<Seat>, ns: u64) {
        let part = self.index_of(seat);
        let owner = &mut self.parts[part as usize];
        owner.busy_until_ns = owner.busy_until_ns.max(self.now_ns).saturating_add(ns);
        self.note(part, 13, ns, "pause", "");
    }

    /// Tells the part to drain, as SIGTERM does.
    pub fn drain(&mut self, seat: impl Into<Seat>) {
        let part = self.index_of(seat);
        let owner = &mut self.parts[part as usize];
        if owner.status == Status::Running {
            owner.news.push(News::Drain);
            self.wake(part);
        }
    }

    /// Gives the part a turn even though it has no news.
    pub fn poke(&mut self, seat: impl Into<Seat>) {
        let part = self.index_of(seat);
        self.wake(part);
    }

    /// The network resets this conn of a part, for both ends.
    pub fn reset_conn(&mut self, seat: impl Into<Seat>, conn: ConnId) {
        let part = self.index_of(seat);
        if let Some(end) = self.parts[part as usize].end_of(conn) {
            self.break_link(end, self.now_ns);
        }
    }

    /// Where the part stands.
    pub fn status(&self, seat: impl Into<Seat>) -> Status {
        self.parts[self.index_of(seat) as usize].status
    }

    /// The part's handler, when it has not crashed and is a `T`.
    pub fn part<T: 'static>(&self, seat: impl Into<Seat>) -> Option<&T> {
        let part = *self.index.get(&seat.into())?;
        let handler = self.parts[part as usize].handler.as_deref()?;
        handler.as_any().downcast_ref()
    }

    /// The part's handler to change between turns; `poke` it when it should act on that.
    pub fn part_mut<T: 'static>(&mut self, seat: impl Into<Seat>) -> Option<&mut T> {
        let part = *self.index.get(&seat.into())?;
        let handler = self.parts[part as usize].handler.as_deref_mut()?;
        handler.as_any_mut().downcast_mut()
    }

    /// Conns that the part has, half-open ones included.
    pub fn conns_count(&self, seat: impl Into<Seat>) -> usize {
        self.parts[self.index_of(seat) as usize].conns_count()
    }

    /// Mail that was lost: by a fault, with a crash, or because nobody had its address.
    pub fn lost_mail_count(&self) -> u64 {
        self.lost_mail
    }

    /// The hash of all that happened so far; equal for equal seeds, parts, faults and calls.
    pub fn hash(&self) -> u64 {
        self.hash.value()
    }

    fn index_of(&self, seat: impl Into<Seat>) -> u32 {
        *self
            .index
            .get(&seat.into())
            .expect("the part was added before")
    }

    /// The part has news: it gets a turn soon.
    fn wake(&mut self, part: u32) {
        let owner = &mut self.parts[part as usize];
        if !owner.woken {
            owner.woken = true;
            let at_ns = self.now_ns + self.config.wake_ns.draw(&mut self.rng);
            self.wake_at(part, at_ns);
        }
    }

    /// The part gets a turn at `at_ns`, or when it is free again after that, unless it has an earlier one.
    fn wake_at(&mut self, part: u32, at_ns: u64) {
        let owner = &mut self.parts[part as usize];
        let at_ns = at_ns.max(owner.busy_until_ns);
        if owner.status == Status::Running && at_ns < owner.turn_at_ns {
            owner.turn_at_ns = at_ns;
            owner.stamp = owner.stamp.wrapping_add(1);
            let stamp = owner.stamp;
            self.queue.push(at_ns, What::Turn { part, stamp });
        }
    }

    /// Takes one event into the hash, and into the trace when there is one.
    fn note(&mut self, part: u32, kind: u64, detail: u64, what: &str, event: &str) {
        self.hash.word(kind << 32 | u64::from(part));
        self.hash.word(detail);
        if let Some(trace) = &mut self.trace {
            let Seat { machine, addr } = self.parts[part as usize].seat;
            let (ms, ns) = (self.now_ns / NS_PER_MS, self.now_ns % NS_PER_MS);
            let place = if machine == 0 {
                String::new()
            } else {
                format!("{machine}:")
            };
            trace(&format!("{ms}.{ns:06} {place}{addr:?} {what}{event}"));
        }
    }
}
