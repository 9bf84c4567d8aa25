//! What the results of a batch mean to the worker: what is answered, asked of the ledger, tried again, buried.
//!
//! Called once per committed or failed batch. Only what committed is answered or asked.

use super::{
    BATCH_PAUSE_MS, BATCH_PAUSE_MS_MAX, InFlight, SWEEP_PAUSE_MS, SWEEP_PERIOD_MS, Sweep, Worker,
};
use crate::limits::ORDER_ATTEMPTS_MAX;
use crate::mail::{Addr, Mail, OrderRows};
use crate::order::contract::{
    DeadLetter, DeadWhy, NewOrder, OrderCommand, OrderDone, OrderFault, OrderResult, PaymentResult,
    Standing,
};
use crate::order::intake::Waiting;
use crate::order::state::OrderState;
use crate::port::Effects;
use crate::redis::offer::Offer;
use crate::time::Now;
use alloc::boxed::Box;

impl Worker {
    pub(super) fn take_results(&mut self, now: Now, done: OrderDone, fx: &mut Effects) {
        let expected = |in_flight: &mut InFlight| in_flight.batch.seq == done.seq;
        let Some(mut in_flight) = self.in_flight.take_if(expected) else {
            return; // the answer to a batch that was sent twice
        };
        match done.results {
            Ok(results) if results.len() == in_flight.batch.commands.len() => {
                if in_flight.resends > 0 {
                    // The first run may have closed orders whose answer was lost.
                    self.steps.left_some = true;
                }
                let InFlight {
                    batch, attempts, ..
                } = in_flight;
                for ((command, result), tried) in batch.commands.iter().zip(results).zip(attempts) {
                    self.take_result(now, *command, result, tried, fx);
                }
            }
            Err(OrderFault::Busy) => {
                let pause = BATCH_PAUSE_MS << in_flight.resends.min(10);
                in_flight.resend_at = now.mono.plus_ms(pause.min(BATCH_PAUSE_MS_MAX));
                self.in_flight = Some(in_flight);
            }
            Err(fault) => self.fail(fault, in_flight, fx),
            Ok(_) => self.fail(OrderFault::Io, in_flight, fx),
        }
    }

    /// The store is gone until a restart: takes nothing, answers who waits, keeps what the ledger has anyway.
    fn fail(&mut self, fault: OrderFault, in_flight: InFlight, fx: &mut Effects) {
        self.fault = Some(fault);
        fx.post(Addr::Owner, Mail::OrdersStopped);
        for command in &in_flight.batch.commands {
            if let OrderCommand::Pay(ask) = command {
                self.answer_payment(ask, PaymentResult::StoreFailed, fx);
            }
        }
        for ask in self.intake.abandon() {
            self.answer_payment(&ask, PaymentResult::StoreFailed, fx);
        }
    }

    fn take_result(
        &mut self,
        now: Now,
        command: OrderCommand,
        result: OrderResult,
        tried: u32,
        fx: &mut Effects,
    ) {
        match (command, result) {
            (command, OrderResult::Moved(standing)) => {
                self.note_due(&command, &standing);
                self.tally.dead_letters += u64::from(matches!(command, OrderCommand::Bury(_)));
                self.moved(now, standing);
            }
            (OrderCommand::Pay(ask), OrderResult::Payment(result, standing)) => {
                if let Some(standing) = standing {
                    self.moved(now, standing);
                }
                self.answer_payment(&ask, result, fx);
            }
            (OrderCommand::Pay(ask), _) => {
                self.answer_payment(&ask, PaymentResult::StoreFailed, fx);
            }
            (command, OrderResult::Stands(standing)) => self.unmoved(now, &command, standing),
            (OrderCommand::CloseDue { .. }, OrderResult::Closed { orders, next_due }) => {
                self.next_due = next_due;
                for standing in orders {
                    self.moved(now, standing);
                }
            }
            (OrderCommand::Unacked { .. }, page @ OrderResult::Unacked { .. }) => {
                self.take_page(now, page);
            }
            (
                OrderCommand::Rows { sku, after, .. },
                OrderResult::Rows {
                    total,
                    restocks,
                    orders,
                    more,
                },
            ) => {
                let rows = OrderRows {
                    sku,
                    after,
                    total,
                    restocks,
                    offers: orders
                        .iter()
                        .map(|(message, state)| Offer::row(*message, *state))
                        .collect(),
                    more,
                };
                fx.post(Addr::Owner, Mail::Rows(Box::new(rows)));
            }
            (OrderCommand::Insert(order), OrderResult::StockShort) => {
                // The total of a restock may still be on its way.
                self.dropped_some = true;
                self.try_again(now, order, tried + 1, DeadWhy::StockShort);
            }
            (OrderCommand::Insert(order), _) => {
                self.try_again(now, order, tried + 1, DeadWhy::Statement);
            }
            (
                OrderCommand::Ack(_) | OrderCommand::StockTotal(_) | OrderCommand::Restocked { .. },
                OrderResult::Done,
            ) => {}
            (command, _) => self.broken(now, &command),
        }
    }

    /// The command changed nothing: the order was there, or has moved on.
    fn unmoved(&mut self, now: Now, command: &OrderCommand, standing: Standing) {
        match command {
            // The ledger sent it again, so it may not know: its step is asked again even when acknowledged.
            OrderCommand::Insert(_) | OrderCommand::Bury(_) => {
                self.note_due(command, &standing); // the word of its making may have been lost
                self.steps.want(now.mono, standing);
            }
            // The ledger sold a unit that SQL does not see free (a total on its way) or not for this user: again with
            // the sweep.
            OrderCommand::Resell(at) if standing.version == at.version => {
                self.steps.disputes += 1;
                self.steps.left_some = true;
                self.dropped_some = true;
            }
            _ if standing.acked < standing.version => self.steps.want(now.mono, standing),
            _ => {}
        }
    }

    fn take_page(&mut self, now: Now, page: OrderResult) {
        let OrderResult::Unacked {
            orders,
            more,
            last_at,
        } = page
        else {
            return;
        };
        self.wall = self.wall.max(last_at);
        self.sweep = match orders.last() {
            Some(last) if more => Sweep::After(last.reservation),
            _ => Sweep::At(now.mono.plus_ms(SWEEP_PERIOD_MS)),
        };
        for standing in orders {
            self.steps.want(now.mono, standing);
        }
    }

    /// A command of the worker's own left nothing; the rows still say what is to be done.
    fn broken(&mut self, now: Now, command: &OrderCommand) {
        self.tally.commands_broken += 1;
        match command {
            // What is due is still due; the pause between closings keeps it from filling every batch.
            OrderCommand::CloseDue { .. } => {}
            OrderCommand::Rows { .. } => {} // the clerk asks again
            OrderCommand::Restocked { .. } => self.dropped_some = true,
            OrderCommand::Unacked { .. } => {
                self.sweep = Sweep::At(now.mono.plus_ms(SWEEP_PAUSE_MS));
            }
            _ => self.steps.left_some = true,
        }
    }

    fn try_again(&mut self, now: Now, order: NewOrder, attempts: u32, why: DeadWhy) {
        let message = order.message;
        if attempts < ORDER_ATTEMPTS_MAX {
            self.intake
                .try_later(now.mono, Waiting { message, attempts });
            return;
        }
        let letter = DeadLetter {
            message,
            why,
            attempts,
        };
        if !self.intake.inner(OrderCommand::Bury(letter)) {
            self.intake.try_later(
                now.mono,
                Waiting {
                    message,
                    attempts: attempts - 1,
                },
            );
        }
    }

    fn note_due(&mut self, command: &OrderCommand, standing: &Standing) {
        if let OrderCommand::Insert(order) = command
            && standing.state == OrderState::Created
        {
            let due = self
                .next_due
                .map_or(order.due, |known| known.min(order.due));
            self.next_due = Some(due);
        }
    }

    fn moved(&mut self, now: Now, standing: Standing) {
        self.tally.moved(standing.state);
        if standing.acked < standing.version {
            self.steps.want(now.mono, standing);
        }
    }
}
