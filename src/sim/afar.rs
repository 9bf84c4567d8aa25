//! What is seen of a ledger that is in Redis: reserves asked for, results that were unknown, orders handed out twice; and
//! machines that do not reach it for a while.
//!
//! A part of the sky, which sees all that travels. With an embedded ledger it sees the same and says nothing.

use super::marks::{Happened, Marks};
use super::plan::{REDIS, REDIS_LISTEN};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use weir_core::ask::{Answer, Ask, AskId, LedgerAnswer, LedgerOp, Outcome};
use weir_core::order::contract::OrderMessage;
use weir_core::time::{Mono, Now};
use weir_io::sim::{Route, Seat};
use weir_proto::ids::{RequestId, ReservationId, SkuKey, UserId};

/// A request by its name.
pub(super) type Name = (SkuKey, UserId, RequestId);

/// See the module.
#[derive(Default)]
pub(super) struct Afar {
    is_on: bool,
    /// Reserves that were posted to a clerk, copies included.
    reserves: BTreeMap<Name, u64>,
    /// Asks whose result is not known.
    unknown: BTreeSet<(Seat, AskId)>,
    /// What the worker was handed.
    handed: BTreeSet<ReservationId>,
    /// Of each machine's clerk: how often its breaker had opened, and whether it is open.
    breakers: BTreeMap<u16, (u64, bool)>,
    /// Tokens that each run of a clerk drew.
    drawn: BTreeMap<(SkuKey, u64), u64>,
    /// Redis was replaced by one that lacked its last writes: a new clerk knows nothing of what others were shown.
    pub is_replaced: bool,
    /// Machines that do not reach Redis until then.
    apart: BTreeMap<u16, Mono>,
}

impl Afar {
    /// The ledger of this world is in Redis.
    pub fn begin(&mut self) {
        self.is_on = true;
    }

    /// How often a reserve of this name was posted.
    pub fn reserves_asked(&self, name: Name) -> u64 {
        self.reserves.get(&name).copied().unwrap_or(0)
    }

    fn counts_reserve(&mut self, ask: &Ask) {
        if let LedgerOp::Reserve(reserve) = ask.op {
            let name = (reserve.sku, reserve.user, reserve.request_id);
            *self.reserves.entry(name).or_default() += 1;
        }
    }

    pub fn sees_ask(&mut self, from: Seat, ask: &Ask, marks: &mut Marks) {
        if !self.is_on {
            return;
        }
        self.counts_reserve(ask);
        if matches!(ask.op, LedgerOp::Lookup(_)) && self.unknown.contains(&(from, ask.id)) {
            marks.happened(Happened::LookedUp, 1);
        }
    }

    /// A copy of an ask is on its way, too.
    pub fn doubles(&mut self, ask: &Ask) {
        if self.is_on {
            self.counts_reserve(ask);
        }
    }

    pub fn sees_answer(&mut self, asker: Seat, answer: &Answer, marks: &mut Marks) {
        if !self.is_on {
            return;
        }
        let name = (asker, answer.id);
        let happened = match answer.outcome {
            Outcome::Unknown => {
                self.unknown.insert(name);
                return;
            }
            Outcome::Failed(_) => return,
            Outcome::Done(LedgerAnswer::NotFound) => {
                marks.happened(Happened::Tombstoned, 1);
                Happened::LookedUpNotFound
            }
            Outcome::Done(LedgerAnswer::Found(_)) => Happened::LookedUpFound,
            Outcome::Done(LedgerAnswer::Tombstoned) => {
                marks.happened(Happened::TombstoneMet, 1);
                return;
            }
            Outcome::Done(_) => return,
        };
        if self.unknown.remove(&name) {
            marks.happened(happened, 1);
        }
    }

    pub fn sees_outbox(&mut self, messages: &[OrderMessage], marks: &mut Marks) {
        for message in messages {
            if self.is_on && !self.handed.insert(message.reservation) {
                marks.happened(Happened::OutboxAgain, 1);
            }
        }
    }

    /// A run of a clerk drew tokens.
    pub fn draws(&mut self, sku: SkuKey, boot: u64, tokens: u64) {
        *self.drawn.entry((sku, boot)).or_default() += tokens;
    }

    /// What a run of a clerk may hand out; `None` where no clerk does.
    pub fn drawn(&self, sku: SkuKey, boot: u64) -> Option<u64> {
        let drawn = self.drawn.get(&(sku, boot)).copied().unwrap_or(0);
        self.is_on.then_some(drawn)
    }

    pub fn sees_breaker(&mut self, machine: u16, opened: u64, is_open: bool, marks: &mut Marks) {
        let before = self.breakers.insert(machine, (opened, is_open));
        let (known, was_open) = before.unwrap_or_default();
        marks.happened(Happened::BreakerOpened, opened.saturating_sub(known));
        if was_open && !is_open && opened >= known {
            marks.happened(Happened::BreakerClosed, 1);
        }
    }

    /// From now on this machine and Redis do not reach each other.
    pub fn part(&mut self, machine: u16, until: Mono) {
        self.apart.insert(machine, until);
    }

    /// Everybody reaches everybody.
    pub fn calm(&mut self) {
        self.apart.clear();
    }

    /// True for a connect that goes nowhere.
    pub fn is_apart(&self, now: Now, from: Seat, to: SocketAddr) -> bool {
        let until = self.apart.get(&from.machine);
        to == REDIS_LISTEN && until.is_some_and(|until| now.mono < *until)
    }

    /// How long a segment waits for the way to be open again.
    pub fn holds_back(&self, now: Now, route: Route) -> Option<u64> {
        let machine = match (route.from.addr, route.to.addr) {
            (_, REDIS) => route.from.machine,
            (REDIS, _) => route.to.machine,
            _ => return None,
        };
        let until = self.apart.get(&machine).filter(|until| now.mono < **until);
        until.map(|until| until.since(now.mono))
    }
}
