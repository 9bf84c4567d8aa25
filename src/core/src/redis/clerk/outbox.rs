//! Reservations without an order, read from Redis by their state and handed to the worker; at least once (G3, R40).
//!
//! The safety net under the stream (`stream`): every few seconds it begins again and goes through all pages, so that what
//! was lost on the way to the worker, or what the stream does not have, is sent. Before the orders of restocked units go
//! their totals.

use super::stream::Stream;
use crate::limits::{OUTBOX_POLL_MS, OUTBOX_RESCAN_MS};
use crate::mail::{Addr, Mail};
use crate::order::contract::StockTotal;
use crate::port::Effects;
use crate::redis::desk::{Desk, OutboxFound, Pull};
use crate::time::{Mono, Now, WallMs};
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
    /// Order messages sent.
    pub sent: u64,
    /// Pending numbers without a record.
    pub orphans: u64,
}

impl Outbox {
    pub fn new(skus: &[SkuKey]) -> Self {
        let lines = skus.iter().map(|sku| Line {
            sku: *sku,
            next: BEGINNING,
            total: None,
            is_out: false,
            again: false,
            due: Mono(0),
        });
        Self {
            is_asked: false,
            lines: lines.collect(),
            sent: 0,
            orphans: 0,
        }
    }

    /// The worker is new, or asks for everything again.
    pub fn ask_all(&mut self, now: Now) {
        self.is_asked = true;
        for line in &mut self.lines {
            line.next = BEGINNING;
            line.total = None;
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
            let (from, skip) = line.next;
            line.is_out = desk.pull(now, line.sku, Pull::Outbox { from, skip }, fx);
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
        let is_over = found.is_last || again;
        line.next = if is_over { BEGINNING } else { found.next };
        line.due = match found.is_last && !again {
            true => now.mono.plus_ms(OUTBOX_RESCAN_MS),
            false => now.mono,
        };
        if let Some(total) = found.total.filter(|_| line.total != found.total) {
            line.total = Some(total);
            let sku = found.sku;
            fx.post(Addr::Worker, Mail::StockTotal(StockTotal { sku, total }));
        }
        self.orphans += found.orphans;
        self.sent += found.messages.len() as u64;
        if !found.messages.is_empty() {
            fx.post(Addr::Worker, Mail::Reserved(found.messages.clone()));
        }
    }

    pub fn lost(&mut self, now: Now, sku: SkuKey) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.sku == sku) {
            line.is_out = false;
            line.due = now.mono.plus_ms(OUTBOX_POLL_MS);
        }
    }
}
