//! Reservations without an order, read from Redis by their state and handed to the worker; at least once (G3, R40).
//!
//! The safety net under the stream (`stream`): every few seconds it begins again and goes through all pages, so that what
//! was lost on the way to the worker, or what the stream does not have, is sent. Restocks go by their names, so that the
//! order store can give a server back those that it lost. Invariants: a total is told only when every restock in it was,
//! and orders of restocked units only behind their total; a restock that was acknowledged here is told in the same turn.

use super::stream::Stream;
use crate::ask::{Answer, Ask, AskId, LedgerAnswer, LedgerOp, Outcome, Restock};
use crate::limits::{OUTBOX_POLL_MS, OUTBOX_RESCAN_MS};
use crate::mail::{Addr, Mail};
use crate::order::contract::{Restocked, RestocksTold};
use crate::port::Effects;
use crate::redis::desk::{Desk, OutboxFound, Pull};
use crate::redis::link::greeting::HomeId;
use crate::time::{Mono, Now, WallMs};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use weir_proto::ids::SkuKey;

/// The start of everything.
const BEGINNING: (WallMs, u64) = (WallMs(0), 0);

#[derive(Debug)]
struct Line {
    sku: SkuKey,
    next: (WallMs, u64),
    /// As the worker was told.
    total: Option<u64>,
    /// A total was told once, and every restock in it by name: one that is new to the orders is new.
    is_named: bool,
    /// All is being told again.
    retells: bool,
    /// The operators' requests of `home` before that number were looked at.
    request: u64,
    home: Option<HomeId>,
    is_out: bool,
    /// Everything is asked for again although a page is on its way.
    again: bool,
    due: Mono,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Nothing is read before the worker has asked.
    is_asked: bool,
    lines: Vec<Line>,
    /// On their way, and who asked.
    restocks_out: Vec<(Addr, AskId, Restock)>,
    /// Order messages sent.
    pub sent: u64,
    /// Pending numbers without a record, or with one that cannot be read.
    pub orphans: u64,
}

impl Outbox {
    pub fn new(skus: &[SkuKey]) -> Self {
        let lines = skus.iter().map(|sku| Line {
            sku: *sku,
            next: BEGINNING,
            total: None,
            is_named: false,
            retells: false,
            request: 0,
            home: None,
            is_out: false,
            again: false,
            due: Mono(0),
        });
        Self {
            is_asked: false,
            lines: lines.collect(),
            restocks_out: Vec::new(),
            sent: 0,
            orphans: 0,
        }
    }

    /// The worker asks for everything again; `lacks`: it is new, or has dropped something.
    pub fn ask_all(&mut self, now: Now, lacks: bool) {
        self.is_asked = true;
        for line in &mut self.lines {
            line.next = BEGINNING;
            if lacks {
                (line.total, line.is_named) = (None, false);
            }
            // A log may be so long that it is not all told from one time to the next.
            if lacks || !line.retells {
                line.home = None;
            }
            line.retells = true;
            line.again = line.is_out;
            line.due = now.mono;
        }
    }

    pub fn turn(&mut self, now: Now, stream: &Stream, desk: &mut Desk, fx: &mut Effects) {
        for line in self.lines.iter_mut().filter(|_| self.is_asked) {
            if line.is_out || line.due > now.mono {
                continue;
            }
            if !stream.is_ours(line.sku) {
                line.due = now.mono.plus_ms(OUTBOX_POLL_MS);
                continue;
            }
            // Another server may have given numbers again.
            let here = desk.here(line.sku);
            if line.home != here {
                (line.home, line.request) = (here, 0);
            }
            let (from, skip) = line.next;
            let pull = Pull::Outbox {
                from,
                skip,
                request: line.request,
            };
            line.is_out = desk.pull(now, line.sku, pull, fx);
            line.due = now.mono.plus_ms(OUTBOX_POLL_MS);
        }
    }

    pub fn next_deadline(&self) -> Option<Mono> {
        let idle = self
            .lines
            .iter()
            .filter(|line| self.is_asked && !line.is_out);
        idle.map(|line| line.due).min()
    }

    pub fn found(&mut self, now: Now, found: &OutboxFound, fx: &mut Effects) {
        let Some(line) = self.lines.iter_mut().find(|line| line.sku == found.sku) else {
            return;
        };
        line.is_out = false;
        let again = core::mem::take(&mut line.again);
        line.request = found.next_request;
        // A page that was asked for before everything is told again is not all.
        let is_told = found.has_all_restocks && !again;
        let total = found
            .total
            .filter(|_| is_told && (line.retells || line.total != found.total));
        line.retells &= !is_told;
        line.total = total.or(line.total);
        line.is_named |= line.total.is_some();
        // Orders of restocked units go behind their total.
        let goes_on = found
            .total
            .is_none_or(|all| line.total.is_some_and(|told| told >= all));
        line.next = match (again || (found.is_last && goes_on), goes_on) {
            (true, _) => BEGINNING,
            (false, true) => found.next,
            (false, false) => line.next,
        };
        line.due = match (found.is_last && is_told, goes_on || again) {
            (true, _) => now.mono.plus_ms(OUTBOX_RESCAN_MS),
            (false, true) => now.mono,
            // The worker takes some of them at a time.
            (false, false) => now.mono.plus_ms(OUTBOX_POLL_MS),
        };
        if total.is_some() || !found.restocks.is_empty() {
            let told = RestocksTold {
                sku: found.sku,
                restocks: found.restocks.clone(),
                total,
                adds: false,
            };
            fx.post(Addr::Worker, Mail::Restocked(Box::new(told)));
        }
        if !goes_on {
            return;
        }
        self.orphans += found.orphans;
        self.sent += found.messages.len() as u64;
        if !found.messages.is_empty() {
            fx.post(Addr::Worker, Mail::Reserved(found.messages.clone()));
        }
    }

    /// True when the worker has heard of all these units; else they are looked for.
    pub fn has_told(&mut self, now: Now, sku: SkuKey, total: u64) -> bool {
        let mut lines = self.lines.iter_mut();
        let Some(line) = lines.find(|line| line.sku == sku) else {
            return false;
        };
        let is_told = line.total.is_some_and(|told| told >= total);
        if !is_told {
            line.due = now.mono;
        }
        is_told
    }

    /// Something was asked of the ledger.
    pub fn asked(&mut self, ask: &Ask) {
        if let LedgerOp::Restock(restock) = ask.op {
            self.restocks_out.push((ask.from, ask.id, restock));
        }
    }

    /// An ask came to its end: a restock that the operator hears of now is told at once, a scan may come too late.
    pub fn answered(&mut self, now: Now, from: Addr, answer: &Answer, fx: &mut Effects) {
        let mut out = self.restocks_out.iter();
        let Some(at) = out.position(|(asker, id, _)| (*asker, *id) == (from, answer.id)) else {
            return;
        };
        let (_, _, restock) = self.restocks_out.swap_remove(at);
        let sku = restock.target.sku;
        let mut lines = self.lines.iter_mut();
        let line = lines.find(|line| line.sku == sku);
        let (Outcome::Done(LedgerAnswer::OpsDone(_)), Some(line)) = (&answer.outcome, line) else {
            return;
        };
        line.due = now.mono;
        let restocked = Restocked {
            sku,
            request_id: restock.target.request_id,
            units: restock.units,
            at: now.wall,
        };
        let told = RestocksTold {
            sku,
            restocks: vec![restocked],
            total: None,
            // Before that, what the store has may have its units already: only its name is new then.
            adds: line.is_named,
        };
        fx.post(Addr::Worker, Mail::Restocked(Box::new(told)));
    }

    pub fn lost(&mut self, now: Now, sku: SkuKey) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.sku == sku) {
            line.is_out = false;
            line.due = now.mono.plus_ms(OUTBOX_POLL_MS);
        }
    }
}
