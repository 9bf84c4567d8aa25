//! The end of a shard: how it stops without leaving anybody without an answer.
//!
//! Called by the shard on `Event::Drain` and at each flush after it. Invariants: no reply that is owed is lost before
//! the drain's deadline; leases go back at once, for nothing is admitted any more; the loop stops exactly once.

use super::Shard;
use super::conns::Phase;
use crate::limits::DRAIN_AGAIN_MS;
use crate::mail::{Addr, Mail};
use crate::port::{ConnId, Effects};
use crate::time::Now;
use alloc::vec::Vec;

impl Shard {
    /// SIGTERM: no new connections, replies that are owed go out, idle connections end; then the loop ends.
    pub(super) fn drain(&mut self, now: Now, fx: &mut Effects) {
        if self.draining {
            return;
        }
        self.draining = true;
        self.drain_due = now.mono.plus_ms(self.config.drain_ms);
        fx.accept(false);
        for state in self.skus.states_mut() {
            if let Some(back) = state.budget.give_back(now.mono) {
                fx.post(Addr::Owner, Mail::LeaseReturn(back));
            }
        }
        let open: Vec<ConnId> = self.conns.ids().collect();
        for id in open {
            if self.conns.get(id).is_some_and(|conn| {
                conn.phase == Phase::Open && conn.outstanding() == 0 && !conn.parser.is_open()
            }) {
                self.finish(now, id, fx);
            }
        }
    }

    /// Each turn of a drain: over when no connection is open, and at its deadline whatever is.
    pub(super) fn drain_on(&mut self, now: Now, fx: &mut Effects) {
        if !self.draining || self.stopped {
            return;
        }
        if now.mono >= self.drain_due {
            for id in self.conns.ids().collect::<Vec<_>>() {
                fx.close(id);
            }
            self.drain_due = now.mono.plus_ms(DRAIN_AGAIN_MS); // whoever comes in between is closed, too
        }
        if self.conns.open_count() == 0 {
            self.stopped = true;
            fx.stop();
        }
    }
}
