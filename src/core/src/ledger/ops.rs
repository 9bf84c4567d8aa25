//! Operators' steps: open, close, mode, restock; each once per request id, however often it comes (field bug R18).

use super::Ledger;
use super::codec::Entry;
use super::decide::Decision;
use super::sku::OpsStep;
use crate::ask::{LedgerAnswer, OpsRef};
use crate::limits::UNITS_MAX;
use crate::planted::{self, Planted};
use crate::time::WallMs;

impl Ledger {
    pub(super) fn decide_ops(&self, at: WallMs, target: OpsRef, step: OpsStep) -> Decision {
        use Decision::{Answer, Write};
        let write = Write(Entry::Ops {
            sku: target.sku,
            request_id: target.request_id,
            step,
            at,
        });
        let Some(index) = self.find_sku(target.sku) else {
            return match step {
                OpsStep::Open { stock, .. } if stock > UNITS_MAX => {
                    Answer(LedgerAnswer::QuantityRefused)
                }
                OpsStep::Open { .. } if self.plan(target.sku).is_none() => {
                    Answer(LedgerAnswer::NotOpen)
                }
                OpsStep::Open { .. } => write,
                _ => Answer(LedgerAnswer::NotOpen),
            };
        };
        let sku = &self.skus[usize::from(index)];
        let done = sku.ops_done(target.request_id);
        if let Some(done) = done.filter(|_| !planted::is(Planted::RestockTwice)) {
            return Answer(if done == step {
                LedgerAnswer::OpsDone(sku.books)
            } else {
                LedgerAnswer::RequestIdConflict
            });
        }
        if !sku.ops_room(at) {
            return Answer(LedgerAnswer::TableFull);
        }
        if let OpsStep::Restock(units) = step
            && (units == 0 || units > UNITS_MAX - sku.books.total)
        {
            return Answer(LedgerAnswer::QuantityRefused);
        }
        write
    }
}
