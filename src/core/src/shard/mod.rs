//! The shard: one core's whole state. Turns connections, mail and time into replies, asks and mail.
//!
//! Driven by a driver of weir-io through [`Handler`]; asks the ledger's owner and the orders' worker by mail. In a turn
//! [`intake`] reads and stages, [`admit`] decides at the end in arrival order, [`answers`] takes what comes back.
//! Invariants: every request read gets exactly one reply, in order; nothing here waits, allocates per request after
//! warm-up, or grows; when a part that decides is missing, fewer get in.

mod admit;
mod answers;
mod asks;
mod checks;
mod closing;
pub mod config;
pub mod conns;
pub mod counters;
mod door;
mod drain;
#[cfg(debug_assertions)]
mod echo;
mod gates;
mod intake;
mod known;
mod limits;
mod log;
mod paused;
mod payments;
mod replies;
mod reply;
mod route;
mod skus;
mod staged;
mod wheel;

pub use wheel::ARM_AHEAD_MS;

use self::asks::{Asks, ReplyTo, RequestName};
use self::config::ShardConfig;
use self::conns::{Conn, Conns, Overdue, Phase};
use self::counters::Counters;
use self::door::Door;
use self::gates::Gates;
use self::intake::Intake;
use self::known::KnownCache;
use self::limits::{Limits, Told};
use self::paused::Paused;
use self::replies::Replies;
use self::reply::{Reply, Stationery};
use self::skus::Skus;
use self::staged::{Call, Staged};
use crate::limit::gcra::Bucket;
use crate::limit::inflight::{SlotCaps, Slots};
use crate::limits::HELD_REPLIES_MAX;
use crate::mail::{Addr, Mail};
use crate::port::{ConnId, Effects, Event, Handler, Input};
use crate::rng::Rng;
use crate::time::{Mono, Now};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_proto::addr::unmapped;
use weir_proto::answer::Reason;
use weir_proto::http::date::DateCache;
use weir_proto::http::letter::Letters;
use weir_proto::ids::KeyId;
use weir_proto::limits::BODY_BYTES_MAX;

/// How long a shard that has every view waits for its first tokens before it calls itself ready.
const FIRST_TOKENS_MS: u64 = 1_000;

/// One core's whole state.
pub struct Shard {
    config: ShardConfig,
    conns: Conns,
    replies: Replies,
    staged: Staged,
    scratch: Box<[u8; BODY_BYTES_MAX]>,
    skus: Skus,
    asks: Asks,
    slots: Slots,
    known: KnownCache,
    instance: Bucket,
    door: Door,
    limits: Limits,
    gates: Gates,
    payments_out: u32,
    /// The key that the ticket of the request in hand verified under; empty before that, and when it did not.
    verified_kid: KeyId,
    counters: Counters,
    rng: Rng,
    date: DateCache,
    letters: Letters,
    paused: Paused,
    due_slots: Vec<u32>,
    /// Since when every SKU has a view.
    views_since: Option<Mono>,
    draining: bool,
    drain_due: Mono,
    stopped: bool,
    #[cfg(debug_assertions)]
    echo: bool,
}

impl core::fmt::Debug for Shard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shard")
            .field("shard", &self.config.shard)
            .field("conns", &self.conns.open_count())
            .finish_non_exhaustive()
    }
}

impl Shard {
    /// A shard that knows nothing yet: it accepts when it has a view of every SKU.
    pub fn new(now: Now, config: ShardConfig) -> Self {
        let mut rng = Rng::new(config.seed);
        let mut secret = || {
            let mut secret = [0; 16];
            secret[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
            secret[8..].copy_from_slice(&rng.next_u64().to_le_bytes());
            secret
        };
        let limits = Limits::new(now.mono, &config, &mut secret);
        let by_connect = limits::table(now.mono, &config.connect, secret());
        let known = KnownCache::new(config.known_max, secret());
        let door = Door::new(&config, by_connect, secret());
        let gates = Gates::new(&config, &mut secret);
        let skus = Skus::new(
            now.mono,
            config.sale.clone(),
            config.shard,
            config.shard_boot,
        );
        let asks_max =
            (config.inflight_max + config.status_inflight_max + config.payments_max) as usize;
        Self {
            conns: Conns::new(now.mono, config.conns_max, config.timeouts),
            replies: Replies::new(HELD_REPLIES_MAX),
            staged: Staged::new(),
            scratch: Box::new([0; BODY_BYTES_MAX]),
            slots: Slots::new(slot_caps(&config), skus.count() as u16, secret()),
            skus,
            asks: Asks::new(asks_max, config.shard_boot),
            known,
            instance: Bucket::full(config.instance, now.mono),
            door,
            limits,
            gates,
            payments_out: 0,
            verified_kid: KeyId::default(),
            counters: Counters::new(),
            rng: Rng::new(config.seed).fork(),
            date: DateCache::default(),
            letters: Letters::new(),
            paused: Paused::new(config.conns_max),
            due_slots: Vec::with_capacity(config.conns_max),
            views_since: None,
            draining: false,
            drain_due: Mono(u64::MAX),
            stopped: false,
            #[cfg(debug_assertions)]
            echo: false,
            config,
        }
    }

    /// True when a submit can be granted: every SKU has a view, and has had tokens or a second to get some (a budget of
    /// a few units an hour does not keep a server from being ready). A shard that sells nothing needs no tokens.
    pub fn is_ready(&self, now: Now) -> bool {
        self.views_since.is_some_and(|since| {
            !self.config.role.sells()
                || now.mono >= since.plus_ms(FIRST_TOKENS_MS)
                || self
                    .skus
                    .states()
                    .all(|state| state.budget.books().granted > 0)
        })
    }

    /// Counters, for checkers and benches.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn addr(&self) -> Addr {
        Addr::Shard(self.config.shard)
    }

    fn intake(&mut self) -> Intake<'_> {
        Intake {
            config: &self.config,
            conns: &mut self.conns,
            replies: &mut self.replies,
            staged: &mut self.staged,
            door: &mut self.door,
            scratch: &mut self.scratch,
            draining: self.draining,
            #[cfg(debug_assertions)]
            echo: self.echo,
        }
    }

    fn received(&mut self, now: Now, id: ConnId, mut input: Input<'_>, fx: &mut Effects) {
        if self
            .conns
            .get(id)
            .is_some_and(|conn| conn.phase == Phase::Lingering)
        {
            self.drained(id, &mut input, fx);
            return;
        }
        let ended = input.ended();
        let reads_on = self.intake().received(now, id, input, fx);
        if !reads_on {
            self.paused.pause(&mut self.conns, id, fx);
        } else if ended {
            self.peer_ended(now, id, fx);
        }
    }

    /// Gives one reply: counts it, logs it, writes it in its order.
    fn reply(
        &mut self,
        now: Now,
        reply_to: &ReplyTo,
        reply: &Reply,
        request: Option<&RequestName>,
        fx: &mut Effects,
    ) {
        self.date.update(now.wall.0);
        let told;
        let reply = if reply_to.told == Told::default() {
            reply
        } else {
            told = reply.told(&reply_to.told);
            &told
        };
        let latency_us = now.mono.since(reply_to.arrived) / 1_000;
        if !reply.preflight {
            self.counters.reply(reply.reason, latency_us);
            self.log(now, reply, request, latency_us, fx);
        }
        let stationery = Stationery {
            date: &self.date,
            letters: &self.letters,
            origins: &self.config.origins,
        };
        let place = (reply_to.conn, reply_to.seq);
        self.replies.give(
            now.mono,
            &mut self.conns,
            place,
            (&reply_to.manner, reply),
            &stationery,
            fx,
        );
        self.paused.stir(&mut self.conns, reply_to.conn);
        // Paused: requests that came before the peer's end are still to be read.
        let no_more =
            |conn: &Conn| (conn.ended || self.draining) && conn.is_quiet() && !conn.paused;
        if self.conns.get(reply_to.conn).is_some_and(no_more) {
            self.finish(now, reply_to.conn, fx);
        }
    }

    /// Decides all that was staged in this turn, in arrival order.
    fn decide(&mut self, now: Now, fx: &mut Effects) {
        let (calls, answers) = self.staged.take();
        self.limits.touch(&calls);
        for staged in &calls {
            self.verified_kid = KeyId::default();
            let reply_to = staged.reply_to();
            let reply = match &staged.call {
                Call::Submit(call) => {
                    self.admit(now, reply_to, call, fx);
                    continue;
                }
                Call::Answered(at) => {
                    self.reply(now, &reply_to, &answers[*at as usize], None, fx);
                    continue;
                }
                Call::Status(call) => self.status(now, reply_to, call, fx),
                Call::Payment(callback) => self.payment(now, reply_to, callback, fx),
            };
            if let Some(reply) = reply {
                self.reply(now, &reply_to, &reply, None, fx);
            }
        }
        self.staged.clear(calls, answers);
    }

    fn expire_conns(&mut self, now: Now, fx: &mut Effects) {
        let mut due = core::mem::take(&mut self.due_slots);
        self.conns.expire(now.mono, &mut due);
        for slot in due.drain(..) {
            let Some((id, overdue)) = self.conns.look(now.mono, slot, fx) else {
                continue;
            };
            self.counters.timeouts += 1;
            match overdue {
                Overdue::Head => self.refuse_bytes(now, id, Reason::HttpHeadTimeout, fx),
                Overdue::Body => self.refuse_bytes(now, id, Reason::HttpBodyTimeout, fx),
                Overdue::Idle => self.finish(now, id, fx),
                Overdue::Write | Overdue::Linger => fx.close(id),
            }
        }
        self.due_slots = due;
    }

    fn mail(&mut self, now: Now, mail: Mail, fx: &mut Effects) {
        match mail {
            Mail::Answer(answer) => self.answered(now, answer, fx),
            Mail::View(view) => self.viewed(now, view, fx),
            Mail::LeaseGrant(grant) => self.leased(now, &grant),
            Mail::PaymentAnswer(answer) => self.payment_answered(now, &answer, fx),
            Mail::LimitChange(change) => self.limits.change(now, &self.config, &change),
            Mail::Deny(list) => self.door.set_deny(list),
            Mail::BanLift(lift) => self.gates.lift(now, lift, &self.config.user_hash_key),
            Mail::StatsAsk => fx.post(Addr::Ops, Mail::Stats(Box::new(self.stats(now)))),
            other => self.counters.misdirected(&other),
        }
    }
}

fn slot_caps(config: &ShardConfig) -> SlotCaps {
    SlotCaps {
        submits_max: config.inflight_max,
        status_max: config.status_inflight_max,
        sku_max: config.sku_inflight_max,
        sku_min: config.sku_inflight_min,
        user_max: config.user_inflight_max,
    }
}

impl Handler for Shard {
    fn on_start(&mut self, _now: Now, fx: &mut Effects) {
        fx.accept(false);
        fx.post(Addr::Owner, Mail::ViewsAsk(self.config.shard));
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Received { conn, input } => self.received(now, conn, input, fx),
            Event::Sent { conn } => self.sent(now, conn, fx),
            Event::Accepted { conn, peer } => self.accepted(now, conn, unmapped(peer.ip()), fx),
            Event::Closed { conn, .. } => self.closed(conn),
            Event::Mail(mail) => self.mail(now, mail, fx),
            Event::Tick => {
                self.expire_conns(now, fx);
                self.expire_asks(now, fx);
            }
            Event::Drain => self.drain(now, fx),
            Event::Connected { .. } | Event::ConnectFailed { .. } => {
                unreachable!("a shard does not connect")
            }
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        self.decide(now, fx);
        self.draw_leases(now, fx); // after the decisions: it sees what they used
        self.paused.resume(&mut self.conns, &self.replies, fx); // after the replies: they made room
        self.drain_on(now, fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        let budgets = self
            .skus
            .states()
            .filter_map(|state| state.budget.next_deadline())
            .min();
        let (leases, drain) = match (self.draining, self.stopped) {
            (false, _) => (budgets.filter(|_| self.config.role.sells()), None),
            (true, false) => (None, Some(self.drain_due)), // nothing is drawn any more
            (true, true) => (None, None),
        };
        [
            self.conns.next_deadline(),
            self.asks.next_deadline(),
            leases,
            drain,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
