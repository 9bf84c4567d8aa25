//! All buyers of a world in one part: they connect, send, read, wait, hang up, come back, pay.
//!
//! Driven by the world; looked into by the checkers. A buyer's next acts wait in one agenda. Invariants held here and told
//! as sins: a reply answers a request that is out; `Closed` comes once per connection; who is barred is never queued.

mod buyer;
mod bytes;
mod flow;
mod lines;
mod vandal;

pub(super) use buyer::{Wish, device_name};

use super::plan::Plan;
use super::tally::{Sin, SinKind};
use buyer::{Buyer, Kind};
use lines::Lines;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use weir_core::port::{ConnId, Effects, Event, Handler, Input};
use weir_core::rng::Rng;
use weir_core::time::{Mono, NS_PER_MS, Now};
use weir_proto::addr::Source;
use weir_proto::ids::{RequestId, ReservationId};

/// What a buyer does when its time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    /// The buyer arrives, or comes back.
    Arrive(u32),
    /// Submit this wish.
    Submit(u32),
    /// Ask for its status.
    Poll(u32),
    /// Submit it again, though it is granted: the same answer must come.
    Again(u32),
    /// The provider reports a payment of it: which attempt.
    Pay(u32, u32),
    /// Hang up: line and stamp.
    HangUp(u32, u32),
    /// Is the first reply of this line overdue?
    Look(u32, u32),
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub wish: u32,
    pub what: What,
    pub due: Mono,
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Submit,
    /// A submit under the same request id with another body.
    OtherBody,
    /// The first submit again, after QUEUED was told.
    Again,
    Poll,
    Pay(u32),
    /// What must be answered with this status.
    Prank(u16),
}

/// What the checkers want to hear at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heard {
    /// The client was told QUEUED.
    Queued {
        wish: u32,
        reservation: ReservationId,
    },
    /// The client was told that the result is unknown.
    Unknown,
}

/// See the module.
pub(super) struct Crowd {
    plan: Arc<Plan>,
    rng: Rng,
    buyers: Vec<Buyer>,
    pub wishes: Vec<Wish>,
    lines: Lines,
    agenda: BinaryHeap<Reverse<(Mono, u64, Act)>>,
    acts: u64,
    closing: bool,
    pub heard: Vec<Heard>,
    pub sins: Vec<Sin>,
    pub hang_ups: u64,
    pub requests: u64,
}

impl Crowd {
    pub fn new(plan: Arc<Plan>, mut rng: Rng) -> Self {
        let buyers = (0..plan.buyers_count).map(|number| Buyer::draw(number, &plan, &mut rng));
        let buyers: Vec<Buyer> = buyers.collect();
        let mut crowd = Self {
            rng,
            wishes: Vec::with_capacity(buyers.len() * 3),
            buyers,
            lines: Lines::default(),
            agenda: BinaryHeap::new(),
            acts: 0,
            closing: false,
            heard: Vec::new(),
            sins: Vec::new(),
            hang_ups: 0,
            requests: 0,
            plan,
        };
        for buyer in 0..crowd.buyers.len() as u32 {
            let ms = 20 + crowd.rng.below(crowd.plan.burst_ms);
            crowd.plan_act(Mono(ms * NS_PER_MS), Act::Arrive(buyer));
        }
        crowd
    }

    /// No more wishes and payments; what is open is asked for until it is known.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// True when every buyer has a terminal answer to all that needs one, and no request is out.
    pub fn is_settled(&self) -> bool {
        self.wishes.iter().all(Wish::is_settled) && self.lines.outstanding() == 0
    }

    /// Names of the payments that were answered as booked.
    pub fn booked(&self) -> impl Iterator<Item = String> + '_ {
        let paid = self.wishes.iter().enumerate();
        paid.filter_map(|(wish, known)| {
            let pays = self.buyers[known.buyer as usize].pays;
            Some(flow::payment_name(wish as u32, pays, known.paid?))
        })
    }

    /// Requests that wait for their reply on a connection that is there.
    pub fn outstanding(&self) -> usize {
        self.lines.outstanding()
    }

    fn plan_act(&mut self, at: Mono, act: Act) {
        self.acts += 1;
        self.agenda.push(Reverse((at, self.acts, act)));
    }

    fn broken(&mut self, what: impl Into<String>) {
        self.sins.push(Sin::new(SinKind::Broken, what));
    }

    fn act(&mut self, now: Now, act: Act, fx: &mut Effects) {
        match act {
            Act::Arrive(buyer) => self.arrive(now, buyer, fx),
            Act::Submit(wish) => self.submit(now, wish, fx),
            Act::Again(wish) => self.again(now, wish, fx),
            Act::Poll(wish) => self.poll(now, wish, fx),
            Act::Pay(wish, attempt) => self.pay(now, wish, attempt, fx),
            Act::HangUp(line, stamp) => {
                if self.lines.hang_up(line, stamp, fx) {
                    self.hang_ups += 1;
                }
            }
            Act::Look(line, stamp) => {
                if let Some(due) = self.lines.first_due(line, stamp) {
                    if due <= now.mono {
                        self.lines.hang_up(line, stamp, fx);
                    } else {
                        self.plan_act(due, Act::Look(line, stamp));
                    }
                }
            }
        }
    }

    /// A new wish of a buyer; its ticket is its own, or that of `like`.
    fn wish(&mut self, buyer: u32, like: Option<u32>) -> u32 {
        let index = self.wishes.len() as u32;
        let who = &mut self.buyers[buyer as usize];
        who.wishes += 1;
        let sku = self.plan.sku(who.sku);
        let quantity = match who.kind {
            Kind::TooMany => sku.quantity_max + 1,
            Kind::OtherBody => 1,
            _ => 1 + self.rng.below(u64::from(sku.quantity_max)) as u32,
        };
        let name = format!("r{:07}-{}", who.user.0, who.wishes);
        let request_id = RequestId::new(name.as_bytes()).expect("a short visible name");
        let ticket = match like {
            Some(like) => self.wishes[like as usize].ticket.clone(),
            None => buyer::ticket(&self.plan, who, who.wishes, &mut self.rng),
        };
        self.wishes.push(Wish {
            buyer,
            user: who.user,
            sku: who.sku,
            quantity,
            request_id,
            ticket,
            tries: 0,
            doubt: false,
            bodies: [false; 2],
            queued: None,
            told: None,
            polling: false,
            paying: false,
            paid: None,
        });
        index
    }

    /// Sends `bytes` on the buyer's connection, or on a new one.
    fn send(
        &mut self,
        now: Now,
        sent: Sent,
        bytes: &[u8],
        fresh: bool,
        fx: &mut Effects,
    ) -> (u32, u32) {
        self.requests += 1;
        let buyer = self.wishes[sent.wish as usize].buyer;
        let known = self.buyers[buyer as usize].line;
        let reuse = !fresh && self.rng.chance(3, 4);
        let kept = known.filter(|&(line, stamp)| reuse && self.lines.is_open(line, stamp));
        let (line, stamp) = match kept {
            Some(kept) => kept,
            None => self.connect(now, buyer, sent.what, fx),
        };
        self.buyers[buyer as usize].line = Some((line, stamp));
        let is_first = self.lines.send(line, sent, bytes, fx);
        if is_first {
            self.plan_act(sent.due, Act::Look(line, stamp));
        }
        (line, stamp)
    }

    /// A new connection, from the buyer or from the proxy in front.
    fn connect(&mut self, now: Now, buyer: u32, what: What, fx: &mut Effects) -> (u32, u32) {
        let from = match self.plan.shard.source {
            Source::Peer => self.plan.address(buyer),
            _ => Ipv4Addr::from(0x7F01_0000 | buyer),
        };
        let mut greeting = bytes::greeting(&self.plan, buyer);
        if matches!(what, What::Prank(_)) && self.rng.chance(1, 4) {
            greeting.clear();
        }
        self.lines.connect(now, from, &greeting, fx)
    }

    fn received(&mut self, now: Now, conn: ConnId, mut input: Input<'_>, fx: &mut Effects) {
        let Some(line) = self.lines.of_conn(conn) else {
            self.broken("bytes came on a connection that is gone");
            return;
        };
        while let Some(reply) = bytes::read_reply(input.bytes()) {
            input.consume(reply.bytes);
            let Some(sent) = self.lines.answered(line) else {
                // A timeout of an idle connection may be answered before any request.
                if reply.status != 408 {
                    self.broken(format!("reply {} without a request", reply.status));
                }
                continue;
            };
            self.replied(now, sent, reply.status, reply.body);
            if let Some((stamp, due)) = self.lines.next_due(line) {
                self.plan_act(due, Act::Look(line, stamp));
            }
        }
        if input.ended() {
            let rest = input.bytes().len();
            input.consume(rest);
            fx.close(conn);
        }
    }

    /// A line is gone: what it had out has no answer.
    fn gone(&mut self, now: Now, line: Option<u32>, reached: bool) {
        let Some(line) = line else {
            self.broken("a connection was closed twice");
            return;
        };
        for sent in self.lines.close(line) {
            self.unanswered(now, sent, reached);
        }
    }
}

impl Handler for Crowd {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Received { conn, input } => self.received(now, conn, input, fx),
            Event::Connected { conn, token } => self.lines.connected(conn, token, fx),
            Event::ConnectFailed { token, .. } => {
                let line = self.lines.of_token(token);
                self.gone(now, line, false);
            }
            Event::Closed { conn, .. } => {
                let line = self.lines.of_conn(conn);
                self.gone(now, line, true);
            }
            Event::Tick => {
                while let Some(Reverse((at, _, act))) = self.agenda.peek().copied()
                    && at <= now.mono
                {
                    self.agenda.pop();
                    self.act(now, act, fx);
                }
            }
            _ => {}
        }
    }

    fn on_flush(&mut self, _now: Now, _fx: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        self.agenda.peek().map(|Reverse((at, ..))| *at)
    }
}
