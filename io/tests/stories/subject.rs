//! The handler under test: does what its story's act says and writes down all that it is told.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use weir_core::limit::lease::ShardId;
use weir_core::mail::Mail;
use weir_core::port::{CloseCause, ConnId, ConnectError, ConnectToken, Effects, Event, Handler};
use weir_core::time::{Mono, Now};

/// A mail of this number does nothing but cause a turn.
pub const NUDGE: u16 = u16::MAX;

/// What the handler was told, without the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Accepted(ConnId, SocketAddr),
    Connected(ConnId, ConnectToken),
    ConnectFailed(ConnectToken, ConnectError),
    Received {
        conn: ConnId,
        bytes: usize,
        ended: bool,
    },
    Sent(ConnId),
    Closed(ConnId, CloseCause),
    Mail(u16),
    /// The deadline that was named, and when the tick came.
    Tick {
        due: Mono,
        at: Mono,
    },
    Drain,
    /// The end of a turn that told something.
    Flush,
}

/// What the story and the handler share.
#[derive(Debug, Default)]
pub struct Seen {
    told: Mutex<Vec<Told>>,
    nudges: Mutex<u64>,
    changed: Condvar,
}

impl Seen {
    pub fn all(&self) -> Vec<Told> {
        self.told.lock().expect("no story panics with it").clone()
    }

    pub fn count(&self, of_kind: impl Fn(&Told) -> bool) -> usize {
        let told = self.told.lock().expect("no story panics with it");
        told.iter().filter(|told| of_kind(told)).count()
    }

    pub fn accepted(&self) -> usize {
        self.count(|told| matches!(told, Told::Accepted(..)))
    }

    pub fn closed(&self) -> usize {
        self.count(|told| matches!(told, Told::Closed(..)))
    }

    /// Why conns closed, in order.
    pub fn causes(&self) -> Vec<CloseCause> {
        let causes = self.all().into_iter().filter_map(|told| match told {
            Told::Closed(_, cause) => Some(cause),
            _ => None,
        });
        causes.collect()
    }

    pub fn nudges(&self) -> u64 {
        *self.nudges.lock().expect("no story panics with it")
    }

    /// Blocks until `done`, looking again whenever something was told; for drivers with threads of their own.
    pub fn wait(&self, what: &str, bound: Duration, done: &mut dyn FnMut() -> bool) {
        let until = Instant::now() + bound;
        while !done() {
            assert!(Instant::now() < until, "waited in vain: {what}");
            let told = self.told.lock().expect("no story panics with it");
            // A condition may rest on something else than what is told: look again soon in any case.
            let _ = self.changed.wait_timeout(told, Duration::from_millis(5));
        }
    }

    fn push(&self, told: Told) {
        self.told
            .lock()
            .expect("no story panics with it")
            .push(told);
        self.changed.notify_all();
    }
}

/// What an act works with.
pub struct Ctx<'a> {
    pub now: Now,
    pub fx: &'a mut Effects,
    /// Deadlines, in nanoseconds; the earliest is named to the driver and removed before its tick is acted on.
    pub due: &'a mut BTreeSet<u64>,
}

/// A story's part of the handler.
pub type Act = Box<dyn FnMut(&mut Ctx<'_>, Event<'_>) + Send>;

/// The handler.
pub struct Subject {
    act: Act,
    seen: Arc<Seen>,
    due: BTreeSet<u64>,
    open: Vec<ConnId>,
    stopping: bool,
    told_something: bool,
}

impl Subject {
    pub fn new(act: Act) -> (Self, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        let subject = Self {
            act,
            seen: Arc::clone(&seen),
            due: BTreeSet::new(),
            open: Vec::new(),
            stopping: false,
            told_something: false,
        };
        (subject, seen)
    }

    fn write_down(&mut self, now: Now, event: &Event<'_>) {
        let told = match event {
            Event::Accepted { conn, peer } => {
                self.open.push(*conn);
                Told::Accepted(*conn, *peer)
            }
            Event::Connected { conn, token } => {
                self.open.push(*conn);
                Told::Connected(*conn, *token)
            }
            Event::ConnectFailed { token, error } => Told::ConnectFailed(*token, *error),
            Event::Received { conn, input } => Told::Received {
                conn: *conn,
                bytes: input.bytes().len(),
                ended: input.ended(),
            },
            Event::Sent { conn } => Told::Sent(*conn),
            Event::Closed { conn, cause } => {
                self.open.retain(|open| open != conn);
                Told::Closed(*conn, *cause)
            }
            Event::Mail(Mail::ViewsAsk(ShardId(number))) => Told::Mail(*number),
            Event::Mail(_) => return,
            Event::Tick => Told::Tick {
                due: Mono(self.due.first().copied().unwrap_or(u64::MAX)),
                at: now.mono,
            },
            Event::Drain => Told::Drain,
        };
        self.seen.push(told);
    }
}

impl Handler for Subject {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        self.told_something = true;
        if let Event::Mail(Mail::ViewsAsk(ShardId(NUDGE))) = event {
            *self.seen.nudges.lock().expect("no story panics with it") += 1;
            self.seen.changed.notify_all();
            return;
        }
        if let Event::Mail(Mail::StatsAsk) = event {
            self.stopping = true;
            fx.accept(false);
            fx.stop();
            for &conn in &self.open {
                fx.close(conn);
            }
            return;
        }
        self.write_down(now, &event);
        if let Event::Tick = event {
            self.due.pop_first();
        }
        if self.stopping {
            if let Event::Accepted { conn, .. } | Event::Connected { conn, .. } = event {
                fx.close(conn);
            }
            return;
        }
        let due = &mut self.due;
        (self.act)(&mut Ctx { now, fx, due }, event);
    }

    fn on_flush(&mut self, _: Now, _: &mut Effects) {
        if std::mem::take(&mut self.told_something) {
            self.seen.push(Told::Flush);
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.due.first().copied().map(Mono)
    }
}

/// Holds what was told in one story against what the seam promises in every one.
pub fn check(told: &[Told]) {
    let mut ids = HashSet::new();
    let mut open: HashMap<ConnId, bool> = HashMap::new(); // and whether its peer's end was shown
    for (at, event) in told.iter().enumerate() {
        match event {
            Told::Accepted(conn, _) | Told::Connected(conn, _) => {
                assert!(ids.insert(*conn), "{conn:?} came twice (event {at})");
                open.insert(*conn, false);
            }
            Told::Received { conn, bytes, ended } => {
                let shown = open.get_mut(conn).expect("received on a conn that is open");
                assert!(*bytes > 0 || (*ended && !*shown), "nothing new at {at}");
                assert!(*ended || !*shown, "bytes after the end at {at}");
                *shown = *ended;
            }
            Told::Sent(conn) => assert!(open.contains_key(conn), "sent on a conn that is gone"),
            Told::Closed(conn, _) => {
                assert!(open.remove(conn).is_some(), "closed twice or never open");
            }
            Told::Tick { due, at } => assert!(due <= at, "a tick at {at:?}, due {due:?}"),
            _ => {}
        }
    }
    assert!(open.is_empty(), "never told Closed: {open:?}");
    assert_eq!(told.last().unwrap_or(&Told::Flush), &Told::Flush);
}

/// Sends back what it gets; ends when the peer ends.
pub fn echo() -> Act {
    Box::new(|ctx, event| {
        if let Event::Received { conn, mut input } = event {
            ctx.fx.outbox(conn).extend_from_slice(input.bytes());
            input.consume(input.bytes().len());
            if input.ended() {
                ctx.fx.finish(conn);
            }
        }
    })
}
