//! Whole decisions without sockets: request bytes into a shard, the turn's end, reply bytes out.
//!
//! A turn here does what a driver's turn does with the handler: deadline, `Received`, `on_flush`, take what is to be
//! sent, `Sent`, ops, mail. Requests of different users take turns, each with its own ticket.

use crate::pieces::WINNERS;
use crate::requests::{Form, forged, submit, submit_to, ticket_of};
use crate::shard_kit::{Kit, config, keyed, submit as plain_submit};
use crate::{Scenario, Work};
use std::cell::Cell;
use std::sync::Arc;
use weir_core::ask::LedgerAnswer;
use weir_core::limit::dimension::Dim;
use weir_core::limit::gcra::{Policy, Rate};
use weir_core::mail::{LimitChange, Mail};
use weir_core::port::{ConnId, Effects, Event, Handler, Input, Op};
use weir_core::shard::Shard;
use weir_core::shard::config::ShardConfig;
use weir_core::time::{Now, WallMs};
use weir_core::view::WinnersFilter;
use weir_proto::addr::{Cidr, Source};
use weir_proto::ids::UserId;

/// Requests that take turns.
const USERS: u64 = 64;
/// Requests in one buffer of a pipelining client.
const DEEP: u64 = 16;

pub fn scenarios() -> [Scenario; 11] {
    let deep = |scenario: Scenario| Scenario {
        per_turn: DEEP,
        ..scenario
    };
    [
        Scenario::new("decide-sold-out-jws", 200, || sold_out(Form::Jws, 1)).with_mac("mac-hs256"),
        Scenario::new("decide-sold-out-compact", 200, || {
            sold_out(Form::Compact, 1)
        })
        .with_mac("mac-blake3"),
        deep(Scenario::new("decide-16-sold-out-jws", 200, || {
            sold_out(Form::Jws, DEEP)
        }))
        .with_mac("mac-hs256"),
        deep(Scenario::new("decide-16-sold-out-compact", 200, || {
            sold_out(Form::Compact, DEEP)
        }))
        .with_mac("mac-blake3"),
        Scenario::new("decide-limited-compact", 429, limited).with_mac("mac-blake3"),
        Scenario::new("decide-bad-mac-jws", 403, || bad_mac(Form::Jws)).with_mac("mac-hs256"),
        Scenario::new("decide-bad-mac-compact", 403, || bad_mac(Form::Compact))
            .with_mac("mac-blake3"),
        Scenario::new("decide-not-open-compact", 403, not_open).with_mac("mac-blake3"),
        Scenario::new("decide-bad-path", 404, || {
            let users = 1..=USERS;
            let requests =
                users.map(|user| submit_to("p_nobody", user, &ticket_of(user, Form::Compact)));
            Turns::boxed(Kit::open(free()), requests.collect())
        }),
        deep(Scenario::new("decide-16-crowd-1K", 200, || {
            Crowd::boxed(1_000)
        })),
        deep(Scenario::new("decide-16-crowd-10M", 200, || {
            Crowd::boxed(10_000_000)
        })),
    ]
}

/// A configuration in which nothing but the stage in question refuses.
fn free() -> ShardConfig {
    let mut config = config();
    config.instance = Policy::new(Rate::per_second(100_000_000), 1_000_000).expect("enforceable");
    config.ip = keyed(Rate::per_second(100_000_000), 1_000_000);
    config.bans.user.strikes = 0;
    config.bans.ip.strikes = 0;
    let sale = Arc::make_mut(&mut config.sale);
    sale.activities[0].skus[0].sold_out_ttl_ms = 3_600_000;
    config
}

fn sold_out(form: Form, deep: u64) -> Box<dyn Work> {
    let buffers = (0..USERS).map(|first| {
        let users = first..first + deep;
        let requests = users.map(|user| submit(1 + user, &ticket_of(1 + user, form)));
        requests.flatten().collect()
    });
    Turns::boxed(sold_out_kit(free()), buffers.collect())
}

fn sold_out_kit(config: ShardConfig) -> Kit {
    let mut kit = Kit::open(config);
    let winners = WinnersFilter::build(7, (1_000_000..1_000_000 + WINNERS).map(UserId));
    kit.view(|view| {
        view.version = 2;
        view.stock_epoch = 1;
        view.sold_out = true;
        view.winners = Arc::new(winners);
    });
    kit
}

fn limited() -> Box<dyn Work> {
    let mut config = free();
    let hourly = Rate {
        tokens: 1,
        per_ns: 3_600_000_000_000,
    };
    config.user = keyed(hourly, 1);
    let mut kit = Kit::open(config);
    kit.connect(1);
    for user in 1..=USERS {
        let first = plain_submit(user, "another-request", &ticket_of(user, Form::Compact));
        kit.bytes(1, &first);
        kit.end_turn();
        let asks = kit.asks();
        assert_eq!(asks.len(), 1, "the first request of a user passes");
        kit.answer(&asks[0], LedgerAnswer::SoldOut { epoch: 0 });
    }
    let users = 1..=USERS;
    let requests = users.map(|user| submit(user, &ticket_of(user, Form::Compact)));
    Turns::boxed(kit, requests.collect())
}

fn bad_mac(form: Form) -> Box<dyn Work> {
    let users = 1..=USERS;
    let requests = users.map(|user| submit(user, &forged(&ticket_of(user, form))));
    Turns::boxed(Kit::open(free()), requests.collect())
}

fn not_open() -> Box<dyn Work> {
    let mut config = free();
    let sale = Arc::make_mut(&mut config.sale);
    sale.activities[0].opens_at = WallMs(sale.activities[0].opens_at.0 + 1_800_000);
    let users = 1..=USERS;
    let requests = users.map(|user| submit(user, &ticket_of(user, Form::Compact)));
    Turns::boxed(Kit::open(config), requests.collect())
}

/// Each request comes from another address, behind a proxy. For times: what differs with their number is where the
/// limiter's lines are.
struct Crowd {
    turns: Turns,
    /// Where the addresses begin, of each buffer.
    at: Vec<Vec<usize>>,
    addresses: u64,
    number: u64,
}

/// An address of the crowd; its /64 is limited, and the lower half of that is exchanged in place.
const ADDRESS: &str = "2001:db8:0000:0000::1";
/// The digits that are exchanged.
const DIGITS: [usize; 8] = [9, 10, 11, 12, 14, 15, 16, 17];

impl Crowd {
    fn boxed(addresses: u64) -> Box<dyn Work> {
        let mut config = free();
        config.ip.slots = 2 * addresses as usize;
        config.source = Source::XForwardedFor;
        config.trusted = Arc::new([Cidr::parse("0.0.0.0/0").expect("a network")]);
        let change = LimitChange {
            dim: Dim::Ip,
            policy: *config.ip.rule.policy(),
        };
        let mut kit = sold_out_kit(config);
        kit.event(Event::Mail(Mail::LimitChange(change))); // walks the table: no page of it is new later
        let request = |user| {
            let request = submit(user, &ticket_of(user, Form::Compact));
            let request = String::from_utf8(request).expect("ASCII");
            let line = format!("\r\nX-Forwarded-For: {ADDRESS}\r\nOrigin:");
            request.replacen("\r\nOrigin:", &line, 1)
        };
        let buffer = |first| (first..first + DEEP).map(request).collect::<String>();
        let buffers: Vec<String> = (1..=USERS).map(buffer).collect();
        let at_of = |buffer: &String| buffer.match_indices(ADDRESS).map(|(at, _)| at).collect();
        let at = buffers.iter().map(at_of).collect();
        let buffers = buffers.into_iter().map(String::into_bytes);
        Box::new(Self {
            turns: Turns::new(kit, buffers.collect()),
            at,
            addresses,
            number: 0,
        })
    }
}

impl Work for Crowd {
    fn once(&mut self) -> u64 {
        let next = self.turns.next;
        let buffer = &mut self.turns.requests[next];
        for at in &self.at[next] {
            self.number = (self.number + 1) % self.addresses;
            for (place, digit) in DIGITS.iter().rev().enumerate() {
                buffer[at + digit] =
                    b"0123456789abcdef"[(self.number >> (4 * place) & 15) as usize];
            }
        }
        self.turns.once()
    }
}

struct Turns {
    shard: Shard,
    fx: Effects,
    start: Now,
    now: Now,
    conn: ConnId,
    requests: Vec<Vec<u8>>,
    next: usize,
    sent: Vec<u8>,
    ops: Vec<Op>,
}

impl Turns {
    fn boxed(kit: Kit, requests: Vec<Vec<u8>>) -> Box<dyn Work> {
        Box::new(Self::new(kit, requests))
    }

    fn new(mut kit: Kit, requests: Vec<Vec<u8>>) -> Self {
        kit.connect(0);
        kit.end_turn();
        let Kit { shard, fx, now, .. } = kit;
        Self {
            shard,
            fx,
            start: now,
            now,
            conn: Kit::conn(0),
            requests,
            next: 0,
            sent: Vec::with_capacity(64 * 1024),
            ops: Vec::with_capacity(64),
        }
    }
}

impl Work for Turns {
    fn once(&mut self) -> u64 {
        self.now.mono = self.now.mono.plus_ns(1_000);
        self.now.wall = self
            .start
            .wall
            .plus_ms(self.now.mono.since(self.start.mono) / 1_000_000);
        let is_due = |due| due <= self.now.mono;
        if self.shard.next_deadline().is_some_and(is_due) {
            self.shard.on_event(self.now, Event::Tick, &mut self.fx);
        }
        let request = &self.requests[self.next];
        self.next = (self.next + 1) % self.requests.len();
        let consumed = Cell::new(0);
        let event = Event::Received {
            conn: self.conn,
            input: Input::new(request, false, &consumed),
        };
        self.shard.on_event(self.now, event, &mut self.fx);
        self.shard.on_flush(self.now, &mut self.fx);
        #[allow(clippy::result_large_err)] // a full mailbox gives the mail back by value
        self.fx.deliver_posts(|_, _| Ok(()));
        let mut witness = 0;
        while let Some(conn) = self.fx.next_dirty() {
            self.sent.clear();
            self.fx.take_pending(conn, &mut self.sent);
            self.fx.sent(conn, self.sent.len());
            self.shard
                .on_event(self.now, Event::Sent { conn }, &mut self.fx);
            witness = status_of(&self.sent);
        }
        self.ops.clear();
        self.fx.take_ops(&mut self.ops);
        assert_eq!(consumed.get(), request.len(), "every request was read");
        witness
    }
}

/// The status of the first reply: `HTTP/1.1 nnn`.
fn status_of(replies: &[u8]) -> u64 {
    let digits = replies.get(9..12).unwrap_or(b"000");
    digits
        .iter()
        .fold(0, |status, &digit| 10 * status + u64::from(digit - b'0'))
}
