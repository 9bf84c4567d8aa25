//! Asks every part for its counters by mail and waits for all of them, at most [`GATHER_MS_MAX`].
//!
//! One round at a time; who comes during a round waits for the next one, so that every answer was asked for after its
//! request came (an operator who restocks and then looks sees the restock). A part has one question at most in its box.

use super::limits::{GATHER_MS_MAX, GATHER_RESEND_MS};
use std::fmt::Write as _;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{ConnId, Effects};
use weir_core::stats::Stats;
use weir_core::time::Mono;
use weir_proto::ids::SkuKey;

/// What a client wants of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Metrics,
    Readiness,
    Sku(SkuKey),
    Hot,
    /// What came of a change of a budget.
    Budget,
}

/// One part and what it said in this round.
#[derive(Debug)]
pub(super) struct Part {
    pub addr: Addr,
    /// When it was asked; `None` once it answered.
    asked_at: Option<Mono>,
    pub stats: Option<Stats>,
}

#[derive(Debug)]
pub(super) struct Gather {
    parts: Vec<Part>,
    /// When the round ends without the silent ones; `None`: no round.
    due: Option<Mono>,
    waiting: Vec<(ConnId, Wanted)>,
    next: Vec<(ConnId, Wanted)>,
}

impl Gather {
    pub(super) fn new(parts: &[Addr]) -> Self {
        let parts = parts.iter().map(|&addr| Part {
            addr,
            asked_at: None,
            stats: None,
        });
        Self {
            parts: parts.collect(),
            due: None,
            waiting: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Puts a client in line. Lines are as short as the table of connections: each has one request.
    pub(super) fn want(&mut self, conn: ConnId, wanted: Wanted) {
        self.next.push((conn, wanted));
    }

    /// Takes a client out of line.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|(waiting, _)| *waiting != conn);
        self.next.retain(|(waiting, _)| *waiting != conn);
    }

    /// Starts a round when clients wait and none runs.
    pub(super) fn start(&mut self, now: Mono, fx: &mut Effects) {
        if self.due.is_some() || self.next.is_empty() {
            return;
        }
        std::mem::swap(&mut self.waiting, &mut self.next);
        self.due = Some(now.plus_ms(GATHER_MS_MAX));
        for part in &mut self.parts {
            part.stats = None;
            let is_lost = |at: Mono| at.plus_ms(GATHER_RESEND_MS) <= now;
            if part.asked_at.is_none_or(is_lost) {
                part.asked_at = Some(now);
                fx.post(part.addr, Mail::StatsAsk);
            }
        }
    }

    /// A part's counters; of a part that is slower than a round they count for the round they come in.
    pub(super) fn take(&mut self, stats: Stats) {
        let in_round = self.due.is_some();
        if let Some(part) = self.parts.iter_mut().find(|part| part.addr == stats.from) {
            part.asked_at = None;
            part.stats = in_round.then_some(stats);
        }
    }

    /// Ends the round when all have answered or its time is over; gives the clients whose answer is [`Self::parts`].
    pub(super) fn end(&mut self, now: Mono) -> Option<Vec<(ConnId, Wanted)>> {
        let due = self.due?;
        if now < due && self.parts.iter().any(|part| part.stats.is_none()) {
            return None;
        }
        self.due = None;
        Some(std::mem::take(&mut self.waiting))
    }

    /// All parts; those without stats did not answer in time.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.due
    }
}

/// The name of a part for people.
pub(super) fn part_name(addr: Addr) -> String {
    let mut name = String::new();
    let _ = match addr {
        Addr::Shard(id) => write!(name, "shard-{}", id.0),
        Addr::Owner => write!(name, "owner"),
        Addr::Store => write!(name, "store"),
        Addr::Worker => write!(name, "worker"),
        Addr::OrderStore => write!(name, "order-store"),
        Addr::Resolver => write!(name, "resolver"),
        Addr::Ops => write!(name, "ops"),
        Addr::Log => write!(name, "log"),
        Addr::Client(number) => write!(name, "client-{number}"),
    };
    name
}
