//! The worker's counters, and how they are shown to the ops listener.

use super::contract::{OrderFault, PaymentResult};
use super::state::OrderState;
use super::steps::Steps;
use crate::mail::Addr;
use crate::stats::{Label, Sample, Stats};
use alloc::vec::Vec;

/// Counters since the start of this run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    moved: [u64; OrderState::ALL.len()],
    payments: [u64; PaymentResult::ALL.len()],
    pub(super) dead_letters: u64,
    /// Messages that found no room; the ledger's outbox has them.
    pub(super) messages_dropped: u64,
    pub(super) batches_resent: u64,
    pub(super) commands_broken: u64,
    pub(super) strange_mail: u64,
}

impl PaymentResult {
    /// Every result, in the order of the counters.
    pub const ALL: [Self; 8] = [
        Self::Paid,
        Self::Repeated,
        Self::Late,
        Self::AmountDiffers,
        Self::PaidBefore,
        Self::NoOrder,
        Self::PaymentIdReused,
        Self::StoreFailed,
    ];

    /// The word in rows, labels and answers.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Repeated => "repeated",
            Self::Late => "late",
            Self::AmountDiffers => "amount_differs",
            Self::PaidBefore => "paid_before",
            Self::NoOrder => "no_order",
            Self::PaymentIdReused => "payment_id_reused",
            Self::StoreFailed => "store_failed",
        }
    }

    /// The result of that word.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|result| result.text() == text)
    }
}

impl Tally {
    pub(super) fn moved(&mut self, to: OrderState) {
        self.moved[to as usize] += 1;
    }

    pub(super) fn payment(&mut self, result: PaymentResult) {
        self.payments[result as usize] += 1;
    }

    pub(super) fn stats(
        &self,
        messages_waiting: usize,
        payments_waiting: usize,
        steps: &Steps,
        fault: Option<OrderFault>,
    ) -> Stats {
        let sample = |name, label, value| Sample { name, label, value };
        let mut samples = Vec::with_capacity(32);
        for state in OrderState::ALL {
            let label = Label::Result(state.text());
            samples.push(sample(
                "weir_orders_total",
                label,
                self.moved[state as usize],
            ));
        }
        for result in PaymentResult::ALL {
            let label = Label::Result(result.text());
            samples.push(sample(
                "weir_payments_total",
                label,
                self.payments[result as usize],
            ));
        }
        let plain = [
            ("weir_orders_queue_length", messages_waiting as u64),
            ("weir_payments_queue_length", payments_waiting as u64),
            ("weir_orders_ledger_steps_open", steps.len() as u64),
            ("weir_orders_ledger_disputes_total", steps.disputes),
            ("weir_orders_dead_letters_total", self.dead_letters),
            ("weir_orders_messages_dropped_total", self.messages_dropped),
            ("weir_orders_batches_resent_total", self.batches_resent),
            ("weir_orders_commands_broken_total", self.commands_broken),
            ("weir_orders_strange_mail_total", self.strange_mail),
            ("weir_orders_store_healthy", u64::from(fault.is_none())),
        ];
        samples.extend(plain.map(|(name, value)| sample(name, Label::None, value)));
        Stats {
            from: Addr::Worker,
            samples,
            hot: Vec::new(),
        }
    }
}
