//! Payment callbacks: to the worker and back. Their asks have places of their own and no in-flight slot.

use super::Shard;
use super::asks::{Kind, Pending, Wait};
use super::reply::Reply;
use super::{asks::ReplyTo, asks::RequestName};
use crate::mail::{Addr, Mail};
use crate::order::contract::{Money, PaymentAnswer, PaymentAsk, PaymentResult};
use crate::port::Effects;
use crate::time::{Now, WallMs};
use alloc::boxed::Box;
use weir_proto::answer::Reason;
use weir_proto::ids::{KeyId, SkuKey};
use weir_proto::payment::PaymentCallback;

impl Shard {
    /// Hands a verified payment to the worker.
    pub(super) fn payment(
        &mut self,
        now: Now,
        reply_to: ReplyTo,
        callback: &PaymentCallback,
        fx: &mut Effects,
    ) -> Option<Reply> {
        let sku = SkuKey {
            activity: callback.activity,
            sku: callback.sku,
        };
        if self.skus.find_key(sku).is_none() {
            return Some(Reply::new(Reason::UnknownSku));
        }
        if self.payments_out >= self.config.payments_max
            || fx.posts_waiting() > crate::limits::POSTS_WAITING_MAX
        {
            return Some(self.busy_reply(Reason::PaymentBusy));
        }
        let pending = Pending {
            reply_to: Some(reply_to),
            kind: Kind::Payment,
            request: RequestName {
                sku,
                user: weir_proto::ids::UserId(0),
                request_id: Default::default(),
            },
            quantity: 0,
            owner_boot: 0,
            due: now.mono.plus_ms(self.config.payment_budget_ms),
            slot: None,
            kid: KeyId::default(),
        };
        let Some(id) = self.asks.insert(pending, Wait::Payment) else {
            return Some(self.busy_reply(Reason::PaymentBusy));
        };
        self.payments_out += 1;
        let ask = PaymentAsk {
            from: self.addr(),
            id,
            payment: callback.payment_id,
            reservation: callback.reservation,
            sku,
            amount: Money {
                minor: callback.amount_minor,
                currency: callback.currency,
            },
            paid_at: WallMs(callback.paid_at_ms),
        };
        fx.post(Addr::Worker, Mail::PaymentAsk(Box::new(ask)));
        None
    }

    /// The worker's answer to a payment.
    pub(super) fn payment_answered(&mut self, now: Now, answer: &PaymentAnswer, fx: &mut Effects) {
        let Some(pending) = self.asks.remove(answer.id) else {
            self.counters.stale_answers += 1;
            return;
        };
        self.payments_out -= 1;
        let reason = match answer.result {
            PaymentResult::Paid => Reason::PaymentAccepted,
            PaymentResult::Repeated => Reason::PaymentRepeated,
            PaymentResult::Late => Reason::PaymentLate,
            PaymentResult::AmountDiffers => Reason::PaymentAmount,
            PaymentResult::PaidBefore => Reason::PaymentSurplus,
            PaymentResult::NoOrder => Reason::PaymentUnknown,
            PaymentResult::PaymentIdReused => Reason::PaymentConflict,
            PaymentResult::StoreFailed => Reason::PaymentUnavailable,
        };
        self.finish_ask(now, pending, Reply::new(reason), fx);
    }
}
