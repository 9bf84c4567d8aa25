//! The model of the ledger's store (design §12.15): batches become durable after a drawn delay, in order; a crash loses a
//! drawn suffix of what was not synced; after one failure nothing is taken until a restart.
//!
//! Survives crashes by being carried over: the director calls [`StoreModel::restart`]. Snapshots are made at recovery
//! from a drawn prefix of the batches, as the real store would hold them, so that restoring is exercised often.

use super::tally::{Fault, Faults};
use std::collections::VecDeque;
use weir_core::journal::{Batch, BatchResult, Image, StoreFault};
use weir_core::ledger::{Ledger, LedgerConfig};
use weir_core::mail::{Addr, Mail};
use weir_core::planted;
use weir_core::port::{Effects, Event, Handler};
use weir_core::rng::Rng;
use weir_core::time::{Mono, Now};
use weir_io::sim::Span;

/// A sync that takes so long counts as slow.
const SLOW_NS: u64 = 20_000_000;

/// A long journal takes so long to be read at a start.
const OPEN_NS_MAX: u64 = 150_000_000;

/// See the module.
pub struct StoreModel {
    ledger_config: LedgerConfig,
    rng: Rng,
    sync_ns: Span,
    /// Of a thousand syncs, so many take as long as this.
    slow_per_mille: u64,
    slow_ns: Span,
    /// Everything durable; only grows.
    pub disk: Vec<Batch>,
    unsynced: VecDeque<(Mono, Batch)>,
    busy_until: Mono,
    /// The next batch fails so.
    pub next_fault: Option<StoreFault>,
    poisoned: Option<StoreFault>,
    /// The image that was asked for is read then.
    opens_at: Option<Mono>,
    boot_epoch: u64,
    /// Faults that came true here.
    pub faults: Faults,
}

impl StoreModel {
    /// An empty disk.
    pub fn new(ledger_config: LedgerConfig, mut rng: Rng) -> Self {
        let slow_per_mille = if rng.chance(1, 3) { 60 } else { 2 };
        let sync_us = 100 + rng.below(3_000);
        Self {
            ledger_config,
            rng,
            sync_ns: Span {
                min: 50_000,
                max: sync_us * 1_000,
            },
            slow_per_mille,
            slow_ns: Span {
                min: SLOW_NS,
                max: 400_000_000,
            },
            disk: Vec::new(),
            unsynced: VecDeque::new(),
            busy_until: Mono(0),
            next_fault: None,
            poisoned: None,
            opens_at: None,
            boot_epoch: 0,
            faults: Faults::default(),
        }
    }

    /// From now on nothing is slow and nothing fails.
    pub fn calm(&mut self) {
        self.slow_per_mille = 0;
        self.next_fault = None;
    }

    /// True when it takes nothing more until a restart.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// The machine comes up again after a crash: a drawn suffix of what was not synced is gone.
    pub fn restart(&mut self) {
        let kept = self.rng.below(self.unsynced.len() as u64 + 1) as usize;
        for (place, (_, batch)) in self.unsynced.drain(..).enumerate() {
            if place < kept {
                self.faults.count(Fault::KeptSuffix);
                self.disk.push(batch);
            } else {
                self.faults.count(Fault::LostSuffix);
            }
        }
        self.poisoned = None;
        self.opens_at = None;
        self.next_fault = None;
        self.busy_until = Mono(0);
    }

    fn append(&mut self, now: Now, batch: Batch, fx: &mut Effects) {
        if let Some(fault) = self.poisoned {
            refuse(batch, fault, fx);
            return;
        }
        let mut sync_ns = self.sync_ns.draw(&mut self.rng);
        if self.rng.chance(self.slow_per_mille, 1_000) {
            self.faults.count(Fault::StoreSlow);
            sync_ns = self.slow_ns.draw(&mut self.rng);
        }
        self.busy_until = self.busy_until.max(now.mono).plus_ns(sync_ns);
        self.unsynced.push_back((self.busy_until, batch));
    }

    /// The sync of one batch ends.
    fn synced(&mut self, batch: Batch, fx: &mut Effects) {
        let Some(fault) = self.next_fault.take() else {
            let buffer = batch.bytes.clone();
            let seq = batch.seq;
            self.disk.push(batch);
            post(seq, Ok(()), buffer, fx);
            return;
        };
        self.poisoned = Some(fault);
        let kind = match fault {
            StoreFault::DiskFull => Fault::StoreFull,
            _ => Fault::StoreIo,
        };
        self.faults.count(kind);
        refuse(batch.clone(), fault, fx);
        if fault == StoreFault::Io {
            self.unsynced.push_front((Mono(u64::MAX), batch)); // written, not synced: a restart may find it
        }
    }

    fn image(&mut self) -> Image {
        self.boot_epoch += 1;
        let folded = if self.rng.chance(1, 2) {
            self.rng.below(self.disk.len() as u64 + 1) as usize
        } else {
            0
        };
        let mut snapshot = None;
        if folded > 0 {
            let bytes =
                planted::without(|| folded_ledger(&self.ledger_config, &self.disk[..folded]));
            snapshot = bytes.map(|bytes| (self.disk[folded - 1].seq, bytes));
        }
        let from = if snapshot.is_some() { folded } else { 0 };
        Image {
            snapshot,
            batches: self.disk[from..].to_vec(),
            boot_epoch: self.boot_epoch,
        }
    }
}

/// The snapshot that a store makes of its first batches; `None` when they are not a ledger's.
fn folded_ledger(config: &LedgerConfig, batches: &[Batch]) -> Option<Vec<u8>> {
    let mut ledger = Ledger::new(config.clone());
    for batch in batches {
        ledger.replay(&batch.bytes).ok()?;
    }
    let mut bytes = Vec::new();
    ledger.snapshot_into(&mut bytes);
    Some(bytes)
}

fn refuse(batch: Batch, fault: StoreFault, fx: &mut Effects) {
    post(batch.seq, Err(fault), batch.bytes, fx);
}

fn post(seq: u64, result: Result<(), StoreFault>, mut buffer: Vec<u8>, fx: &mut Effects) {
    buffer.clear();
    let result = BatchResult {
        seq,
        result,
        buffer,
    };
    fx.post(Addr::Owner, Mail::Appended(Box::new(result)));
}

impl Handler for StoreModel {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(Mail::Append(batch)) => self.append(now, *batch, fx),
            Event::Mail(Mail::RecoverAsk) => {
                let open_ns = if self.rng.chance(1, 3) {
                    self.rng.below(OPEN_NS_MAX)
                } else {
                    0
                };
                self.opens_at = Some(now.mono.plus_ns(open_ns));
            }
            _ => {}
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        if self.opens_at.take_if(|at| *at <= now.mono).is_some() {
            let image = self.image();
            fx.post(Addr::Owner, Mail::Recovered(Box::new(image)));
        }
        while self.poisoned.is_none()
            && self.unsynced.front().is_some_and(|(at, _)| *at <= now.mono)
            && let Some((_, batch)) = self.unsynced.pop_front()
        {
            self.synced(batch, fx);
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        let synced = match self.poisoned {
            None => self.unsynced.front().map(|(at, _)| *at),
            Some(_) => None,
        };
        [synced, self.opens_at].into_iter().flatten().min()
    }
}
