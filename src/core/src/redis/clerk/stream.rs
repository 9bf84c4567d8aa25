//! Order messages by the stream of each SKU: handed to the worker once the ledger says that they wait, forgotten when it
//! says that they do not (G3, R40).
//!
//! A message is read, its reservation looked at, the message handed out, and the reservation looked at again until its
//! order is confirmed or it has ended; only then the message leaves the stream. What an earlier run held, or a lost reply
//! had, is claimed. Invariant: nothing is handed out in the name of a store whose stock has another maker. What the
//! stream does not tell, the scan by state does (`outbox`).

use super::outbox::Outbox;
use crate::ledger::SkuState;
use crate::limits::{
    OUTBOX_POLL_MS, OUTBOX_RESCAN_MS, TAKE_PAGE, TAKE_SOLD_OUT_MS, TAKEN_IDLE_MS, TAKEN_MAX,
};
use crate::mail::{Addr, Mail};
use crate::order::contract::OrderMessage;
use crate::port::Effects;
use crate::redis::desk::Desk;
use crate::redis::reply::{Taken, TakenPage};
use crate::redis::step::{Maker, StreamId, Take};
use crate::time::{Mono, Now};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_proto::ids::{ReservationId, SkuKey};

/// A message that was taken and not forgotten.
#[derive(Debug)]
struct Held {
    id: StreamId,
    /// `None`: it was handed out.
    message: Option<OrderMessage>,
}

#[derive(Debug)]
struct Line {
    sku: SkuKey,
    /// The ledger took our word that we make the orders.
    is_ours: bool,
    /// What was handed out before is claimed from there on; `None`: not now.
    claim: Option<StreamId>,
    claim_due: Mono,
    /// So old must it be; 0 at first: an earlier run is over.
    idle_ms: u64,
    held: BTreeMap<ReservationId, Held>,
    done: Vec<StreamId>,
    /// Of `done`, in the take that is out.
    done_out: usize,
    looked_at: Vec<ReservationId>,
    /// Nothing is granted at present.
    is_sold_out: bool,
    is_out: bool,
    due: Mono,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stream {
    /// `None`: no orders are made here.
    maker: Option<Maker>,
    /// Nothing is taken before the worker has asked.
    is_asked: bool,
    lines: Vec<Line>,
    /// Another store, or a later run, makes the orders: a restart alone does not change that.
    pub is_elsewhere: bool,
    /// Messages handed out.
    pub sent: u64,
    /// Messages forgotten.
    pub forgotten: u64,
    /// Entries that were no order messages.
    pub unreadable: u64,
}

impl Stream {
    pub fn new(maker: Option<Maker>, skus: &[SkuKey]) -> Self {
        let lines = skus.iter().map(|sku| Line {
            sku: *sku,
            is_ours: false,
            claim: Some(StreamId::default()),
            claim_due: Mono(0),
            idle_ms: 0,
            held: BTreeMap::new(),
            done: Vec::new(),
            done_out: 0,
            looked_at: Vec::new(),
            is_sold_out: false,
            is_out: false,
            due: Mono(0),
        });
        Self {
            maker,
            is_asked: false,
            lines: lines.collect(),
            is_elsewhere: false,
            sent: 0,
            forgotten: 0,
            unreadable: 0,
        }
    }

    /// True when the reservations of this SKU are ours to hand out.
    pub fn is_ours(&self, sku: SkuKey) -> bool {
        let mut lines = self.lines.iter();
        !self.is_elsewhere && lines.any(|line| line.sku == sku && line.is_ours)
    }

    /// The worker is new, or asks for everything again: what waits, the scan sends.
    pub fn ask_all(&mut self, now: Now) {
        self.is_asked = true;
        for line in &mut self.lines {
            line.due = now.mono;
        }
    }

    /// As the last page of the SKU says: while it is sold out, no message comes.
    pub fn note_state(&mut self, now: Now, sku: SkuKey, state: Option<&SkuState>) {
        let is_sold_out = state.is_some_and(|state| state.sold_out);
        if let Some(line) = self.lines.iter_mut().find(|line| line.sku == sku) {
            if line.is_sold_out && !is_sold_out {
                line.due = now.mono;
            }
            line.is_sold_out = is_sold_out;
        }
    }

    pub fn turn(&mut self, now: Now, desk: &mut Desk, fx: &mut Effects) {
        let Some(maker) = self.maker.filter(|_| self.is_asked && !self.is_elsewhere) else {
            return;
        };
        for line in &mut self.lines {
            if !line.is_out && line.due <= now.mono {
                line.take(now, maker, desk, fx);
            }
        }
    }

    pub fn next_deadline(&self) -> Option<Mono> {
        let works = self.maker.is_some() && self.is_asked && !self.is_elsewhere;
        let idle = self.lines.iter().filter(|line| works && !line.is_out);
        idle.map(|line| line.due).min()
    }

    /// What came of a take; `scan` tells the totals.
    pub fn taken(
        &mut self,
        now: Now,
        (sku, taken): (SkuKey, &Taken),
        scan: &mut Outbox,
        fx: &mut Effects,
    ) {
        let Some(line) = self.lines.iter_mut().find(|line| line.sku == sku) else {
            return;
        };
        line.is_out = false;
        match taken {
            Taken::NotOpen => {}
            Taken::Elsewhere => self.is_elsewhere = true,
            Taken::Page(page) => {
                self.forgotten += line.done_out as u64;
                let is_told = scan.has_told(now, sku, page.total);
                self.unreadable += page.unreadable.len() as u64;
                self.sent += line.heard(now, page, is_told, fx);
            }
        }
    }

    pub fn lost(&mut self, now: Now, sku: SkuKey) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.sku == sku) {
            line.is_out = false;
            line.due = now.mono.plus_ms(OUTBOX_POLL_MS);
        }
    }
}

impl Line {
    fn take(&mut self, now: Now, maker: Maker, desk: &mut Desk, fx: &mut Effects) {
        let page = TAKE_PAGE as usize;
        if self.claim.is_none() && self.claim_due <= now.mono {
            self.claim = Some(StreamId::default());
        }
        // What is not handed out yet first; then in turn, so that one that waits long keeps no other from its end.
        let last = self.looked_at.last().copied().unwrap_or(ReservationId(0));
        let new = self.held.iter().filter(|(_, held)| held.message.is_some());
        let (before, behind) = (
            self.held.range(..=last),
            self.held.range(last..).skip_while(|(id, _)| **id == last),
        );
        let handed = behind
            .chain(before)
            .filter(|(_, held)| held.message.is_none());
        self.looked_at = new.chain(handed).map(|(id, _)| *id).take(page).collect();
        self.done_out = self.done.len().min(page);
        // A claim may bring a page of its own.
        let has_room = self.held.len() + 2 * page <= TAKEN_MAX;
        let take = Take {
            maker,
            count: if has_room { TAKE_PAGE } else { 0 },
            claim_from: self.claim.filter(|_| has_room),
            idle_ms: self.idle_ms,
            done: &self.done[..self.done_out],
            look_at: &self.looked_at,
        };
        self.is_out = desk.take(now, self.sku, &take, fx);
        self.due = now.mono.plus_ms(OUTBOX_POLL_MS);
    }

    /// How many messages were handed out.
    /// Nothing is, while the worker has not heard of all units (`is_told`).
    fn heard(&mut self, now: Now, page: &TakenPage, is_told: bool, fx: &mut Effects) -> u64 {
        self.is_ours = true;
        self.done.drain(..self.done_out);
        if self.claim.is_some() {
            self.claim = page.claim_next;
            if page.claim_next.is_none() {
                self.claim_due = now.mono.plus_ms(OUTBOX_RESCAN_MS);
                self.idle_ms = TAKEN_IDLE_MS;
            }
        }
        let mut ready = Vec::new();
        for (reservation, waits) in self.looked_at.iter().zip(&page.waits) {
            let Some(held) = self.held.get_mut(reservation) else {
                continue;
            };
            if *waits && !is_told {
                continue;
            }
            if *waits {
                ready.extend(held.message.take());
            } else {
                self.done.push(held.id);
                self.held.remove(reservation);
            }
        }
        for &(id, message) in &page.messages {
            match self.held.get(&message.reservation) {
                Some(known) if known.id == id => {} // we have it
                Some(_) => self.done.push(id),      // a second message of one reservation
                None => {
                    let message_of = message.reservation;
                    let message = Some(message);
                    self.held.insert(message_of, Held { id, message });
                }
            }
        }
        // Nobody can make an order of these: they go, and what was meant is found by its state.
        self.done.extend(&page.unreadable);
        let is_idle = page.messages.is_empty() && self.held.is_empty() && self.done.is_empty();
        if self.is_sold_out && is_idle {
            self.due = now.mono.plus_ms(TAKE_SOLD_OUT_MS);
        }
        // More is there, or what came is to be looked at: not only at the next tick.
        if !page.messages.is_empty()
            || self.claim.is_some()
            || self.done.len() >= TAKE_PAGE as usize
        {
            self.due = now.mono;
        }
        let sent = ready.len() as u64;
        if !ready.is_empty() {
            fx.post(Addr::Worker, Mail::Reserved(ready));
        }
        sent
    }
}
