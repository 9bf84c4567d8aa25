//! One connection to a Redis, as a value: greeting, a bounded ring of what was sent, replies matched in its order.
//!
//! Used by [`Desk`](super::desk::Desk), which owns one link per node. Invariants: a link is ready only after its whole
//! greeting was answered in time; a reply is given to the oldest thing sent and to nothing else; after a timeout, a
//! reply without an ask, bytes that are no RESP or a wrong type the connection is closed and never used again, and what
//! was sent on it is unknown. A link sends nothing twice. Not here: what is asked, where, and what an error means.

pub mod fault;
pub mod greeting;

use crate::limits::{LINK_BACKOFF_FIRST_MS, LINK_BACKOFF_MAX_MS, LINK_UNSENT_BYTES_MAX};
use crate::planted::{self, Planted};
use crate::port::{ConnId, Connect, ConnectError, ConnectToken, Effects};
use crate::rng::Rng;
use crate::time::{Mono, NS_PER_MS, Now};
use crate::tls::TlsPeer;
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use fault::LinkFault;
use greeting::{Heard, HomeId, Part, ServerFacts, Words};
use weir_proto::resp::{Scan, Scanner, Value};

/// Times of a link.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connect, and again for its greeting; 1..=60,000 ms.
    pub greeting_ms_max: u64,
    /// For each reply once it was sent; 1..=60,000 ms. Longer than any ask's deadline, or late answers cost the link.
    pub reply_ms_max: u64,
    /// A link that sent nothing for so long sends a PING; 1..=60,000 ms.
    pub ping_every_ms: u64,
}

/// What was sent and waits for its reply; `W` is what the desk wants to know of it.
#[derive(Debug)]
struct Sent<W> {
    what: What<W>,
    at: Mono,
}

#[derive(Debug)]
enum What<W> {
    Greeting(Part),
    Ping,
    Desk(W),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connection; the next connect is due then.
    Down { retry_at: Mono },
    /// Waits for the driver.
    Connecting(ConnectToken),
    /// Open, not usable yet.
    Greeting { conn: ConnId, until: Mono },
    /// In use.
    Ready(ConnId),
    /// Closed by us; the driver's `Closed` has not come.
    Closing { conn: ConnId, retry_at: Mono },
}

/// What the bytes of a link came to.
#[derive(Debug)]
pub enum Took<'a, W> {
    /// The answer to what was sent first; `bytes` of the input are done.
    Reply {
        /// What it answers.
        to: W,
        /// The answer.
        value: Value<'a>,
        /// Length in the input.
        bytes: usize,
    },
    /// A push frame (RESP3): it answers nothing.
    Push {
        /// The frame.
        value: Value<'a>,
        /// Length in the input.
        bytes: usize,
    },
    /// The link's own business; `bytes` of the input are done.
    Own {
        /// Length in the input.
        bytes: usize,
        /// The greeting ended well: the link is ready now.
        became_ready: bool,
    },
    /// Nothing whole is left.
    NeedMore,
    /// The connection must go.
    Fault(LinkFault),
}

/// See the module.
#[derive(Debug)]
pub struct Link<W> {
    to: Option<SocketAddr>,
    /// Encrypted, and to whom.
    tls: Option<TlsPeer>,
    words: Words,
    patience: Patience,
    under_way_max: usize,
    phase: Phase,
    sent: VecDeque<Sent<W>>,
    scanner: Scanner,
    facts: ServerFacts,
    /// [`ServerFacts::home`] of them, made once a greeting.
    home: HomeId,
    /// Connections in a row that never became ready, or were lost.
    failures: u32,
    last_sent: Mono,
    last_fault: Option<LinkFault>,
}

impl<W> Link<W> {
    /// A link that connects at the next [`Self::turn`]; without `to` when it has been told one.
    /// `under_way_max`: what may be sent and not answered; 8..=4,096.
    pub fn new(
        to: Option<SocketAddr>,
        words: Words,
        patience: Patience,
        under_way_max: usize,
    ) -> Self {
        Self {
            to,
            tls: None,
            words,
            patience,
            under_way_max,
            phase: Phase::Down { retry_at: Mono(0) },
            sent: VecDeque::with_capacity(under_way_max),
            scanner: Scanner::new(),
            facts: ServerFacts::default(),
            home: HomeId::default(),
            failures: 0,
            last_sent: Mono(0),
            last_fault: None,
        }
    }

    /// Its connections are encrypted, to this peer; `None`: they are not.
    pub fn over_tls(self, tls: Option<TlsPeer>) -> Self {
        Self { tls, ..self }
    }

    /// Where the next connect goes; `None`: nowhere until it is told.
    pub fn set_to(&mut self, to: Option<SocketAddr>) {
        self.to = to;
    }

    /// True when it would connect and has been told no address.
    pub fn lacks_address(&self, now: Now) -> bool {
        self.to.is_none() && matches!(self.phase, Phase::Down { retry_at } if retry_at <= now.mono)
    }

    /// Who answered the last greeting that ended well or got so far.
    pub fn facts(&self) -> &ServerFacts {
        &self.facts
    }

    /// The server's name for itself, as the last whole greeting told it; empty until there was one.
    pub fn home(&self) -> HomeId {
        self.home
    }

    /// Why the last connection was closed or not made.
    pub fn last_fault(&self) -> Option<LinkFault> {
        self.last_fault
    }

    /// True when asks may be sent.
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready(_))
    }

    /// True while a connection is being made or greeted: it may be ready soon.
    pub fn is_coming(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_) | Phase::Greeting { .. })
    }

    /// True when nothing that was sent waits for a reply.
    pub fn is_quiet(&self) -> bool {
        self.sent.is_empty()
    }

    /// True when the connection was closed by us and its last event has not come.
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// True when `conn` is this link's.
    pub fn owns(&self, conn: ConnId) -> bool {
        match self.phase {
            Phase::Greeting { conn: mine, .. }
            | Phase::Ready(mine)
            | Phase::Closing { conn: mine, .. } => mine == conn,
            Phase::Down { .. } | Phase::Connecting(_) => false,
        }
    }

    /// True when this link waits for the connection named `token`.
    pub fn awaits(&self, token: ConnectToken) -> bool {
        self.phase == Phase::Connecting(token)
    }

    /// Things that may still be sent before the ring is full.
    pub fn room(&self) -> usize {
        self.under_way_max.saturating_sub(self.sent.len())
    }

    /// Does what time asks for: connects, pings. `token` names the connect if one is made.
    ///
    /// # Errors
    /// What took too long; the caller calls [`Self::fail`].
    pub fn turn(
        &mut self,
        now: Now,
        token: impl FnOnce() -> ConnectToken,
        fx: &mut Effects,
    ) -> Result<(), LinkFault> {
        match self.phase {
            Phase::Down { retry_at } if retry_at <= now.mono => {
                let Some(to) = self.to else {
                    return Ok(());
                };
                let token = token();
                self.phase = Phase::Connecting(token);
                let connect = Connect {
                    token,
                    to,
                    from: None,
                    deadline: now.mono.plus_ms(self.patience.greeting_ms_max),
                };
                match &self.tls {
                    Some(peer) => fx.connect_tls(connect, peer.clone()),
                    None => fx.connect(connect),
                }
            }
            Phase::Greeting { until, .. } if until <= now.mono => {
                return Err(LinkFault::GreetingTimedOut);
            }
            Phase::Ready(conn) => {
                if self.reply_due().is_some_and(|due| due <= now.mono) {
                    return Err(LinkFault::ReplyTimedOut);
                }
                if self.sent.is_empty() && self.ping_due() <= now.mono {
                    weir_proto::resp::command(fx.outbox(conn), &[b"PING"]);
                    self.push(now, What::Ping);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// When [`Self::turn`] has something to do.
    pub fn next_deadline(&self) -> Option<Mono> {
        match self.phase {
            Phase::Down { retry_at } => self.to.map(|_| retry_at),
            Phase::Greeting { until, .. } => Some(until),
            Phase::Ready(_) => Some(self.reply_due().unwrap_or_else(|| self.ping_due())),
            Phase::Connecting(_) | Phase::Closing { .. } => None,
        }
    }

    fn reply_due(&self) -> Option<Mono> {
        let oldest = self.sent.front()?;
        Some(oldest.at.plus_ms(self.patience.reply_ms_max))
    }

    fn ping_due(&self) -> Mono {
        self.last_sent.plus_ms(self.patience.ping_every_ms)
    }

    fn push(&mut self, now: Now, what: What<W>) {
        debug_assert!(
            self.sent.len() < self.under_way_max,
            "callers ask for room first"
        );
        self.last_sent = now.mono;
        self.sent.push_back(Sent { what, at: now.mono });
    }

    /// Its name has no address: that is a failure like any other of a connect.
    pub fn unresolved(&mut self, now: Now, rng: &mut Rng) {
        self.last_fault = Some(LinkFault::NoAddress);
        let retry_at = self.retry_at(now, rng);
        self.phase = Phase::Down { retry_at };
    }

    /// The connection is there: the greeting begins.
    pub fn connected(&mut self, now: Now, conn: ConnId, fx: &mut Effects) {
        self.scanner = Scanner::new();
        self.facts = ServerFacts::default();
        self.home = HomeId::default();
        self.phase = Phase::Greeting {
            conn,
            until: now.mono.plus_ms(self.patience.greeting_ms_max),
        };
        self.words.hello(fx.outbox(conn));
        self.push(now, What::Greeting(Part::Hello));
    }

    /// The connection could not be made.
    pub fn connect_failed(&mut self, now: Now, error: ConnectError, rng: &mut Rng) {
        self.last_fault = Some(LinkFault::Connect(error));
        let retry_at = self.retry_at(now, rng);
        self.phase = Phase::Down { retry_at };
    }

    /// Sends one thing: `write` appends it to the outbox. Its reply comes as [`Took::Reply`] with `what`; when the
    /// connection is lost first, [`Self::fail`] gives `what` back.
    ///
    /// # Errors
    /// `what`, when the link is not ready or has no room: nothing was sent.
    pub fn send(
        &mut self,
        now: Now,
        what: W,
        fx: &mut Effects,
        write: impl FnOnce(&mut alloc::vec::Vec<u8>),
    ) -> Result<(), W> {
        let Phase::Ready(conn) = self.phase else {
            return Err(what);
        };
        if self.room() == 0 || fx.unsent_bytes(conn) > LINK_UNSENT_BYTES_MAX {
            return Err(what);
        }
        write(fx.outbox(conn));
        self.push(now, What::Desk(what));
        Ok(())
    }

    /// Takes the next whole reply of `bytes`, which start where the last one ended.
    pub fn take<'a>(&mut self, now: Now, bytes: &'a [u8], fx: &mut Effects) -> Took<'a, W> {
        let bytes_done = match self.scanner.scan(bytes) {
            Scan::NeedMore => return Took::NeedMore,
            Scan::Reject(reject) => return Took::Fault(LinkFault::Protocol(reject)),
            Scan::Done { bytes } => bytes,
        };
        let value = weir_proto::resp::read(&bytes[..bytes_done]);
        if let Value::Push(_) = value {
            return Took::Push {
                value,
                bytes: bytes_done,
            };
        }
        if planted::is(Planted::ReplyToOther) && self.is_ready() && self.sent.len() > 1 {
            self.sent.swap(0, 1);
        }
        let Some(sent) = self.sent.pop_front() else {
            return Took::Fault(LinkFault::Unsolicited);
        };
        match sent.what {
            What::Desk(to) => Took::Reply {
                to,
                value,
                bytes: bytes_done,
            },
            What::Ping if value == Value::Simple(b"PONG") => Took::Own {
                bytes: bytes_done,
                became_ready: false,
            },
            What::Ping => Took::Fault(match value {
                Value::Error(error) if error.code == b"LOADING" => LinkFault::Loading,
                _ => LinkFault::WrongShape,
            }),
            What::Greeting(part) => match self.hear(now, part, &value, fx) {
                Ok(became_ready) => Took::Own {
                    bytes: bytes_done,
                    became_ready,
                },
                Err(fault) => Took::Fault(fault),
            },
        }
    }

    fn hear(
        &mut self,
        now: Now,
        part: Part,
        value: &Value<'_>,
        fx: &mut Effects,
    ) -> Result<bool, LinkFault> {
        let heard = self.facts.hear(part, value)?;
        let Phase::Greeting { conn, .. } = self.phase else {
            return Ok(false);
        };
        if part == Part::Hello {
            let has_hello = matches!(heard, Heard::Fine);
            let sent = &mut self.sent;
            self.words.rest(has_hello, fx.outbox(conn), |part| {
                let what = What::Greeting(part);
                sent.push_back(Sent { what, at: now.mono });
            });
        }
        let is_ready = self.sent.is_empty();
        if is_ready {
            self.phase = Phase::Ready(conn);
            self.home = self.facts.home();
            self.failures = 0;
            self.last_fault = None;
        }
        Ok(is_ready)
    }

    /// Closes the connection and gives back what was sent on it and never answered: all of that is unknown.
    /// The next connect comes after a pause with full jitter that doubles with each failure in a row.
    pub fn fail(
        &mut self,
        now: Now,
        fault: LinkFault,
        rng: &mut Rng,
        fx: &mut Effects,
    ) -> impl Iterator<Item = W> {
        if let Phase::Greeting { conn, .. } | Phase::Ready(conn) = self.phase {
            fx.close(conn);
            let retry_at = self.retry_at(now, rng);
            self.phase = Phase::Closing { conn, retry_at };
            self.last_fault = Some(fault);
        }
        self.sent.drain(..).filter_map(|sent| match sent.what {
            What::Desk(what) => Some(what),
            What::Greeting(_) | What::Ping => None,
        })
    }

    /// Closes the connection because its owner ends.
    pub fn close(&self, fx: &mut Effects) {
        if let Phase::Greeting { conn, .. } | Phase::Ready(conn) = self.phase {
            fx.close(conn);
        }
    }

    /// The driver has closed the connection. Before it, [`Self::fail`] was called for whatever reason it was.
    pub fn closed(&mut self) {
        if let Phase::Closing { retry_at, .. } = self.phase {
            self.phase = Phase::Down { retry_at };
        }
    }

    fn retry_at(&mut self, now: Now, rng: &mut Rng) -> Mono {
        let doubled = LINK_BACKOFF_FIRST_MS << self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        let pause_ns = rng.below(doubled.min(LINK_BACKOFF_MAX_MS) * NS_PER_MS);
        now.mono.plus_ns(pause_ns)
    }
}
