//! What the scripts wrote, read by code of the checker's own: numbers and records as `lua/README.md` gives them.

use super::redis::FieldSet;
use weir_core::ask::ReservationState;
use weir_core::ledger::Reservation;
use weir_core::order::contract::{Money, ORDER_MESSAGE_VERSION, OrderMessage};
use weir_core::redis::step::StepPlan;
use weir_core::time::WallMs;
use weir_proto::ids::{RequestId, ReservationId, UserId};

/// By the digit of a record.
pub(super) const STATES: [ReservationState; 6] = [
    ReservationState::Reserved,
    ReservationState::Confirmed,
    ReservationState::Settled,
    ReservationState::Closed,
    ReservationState::Failed,
    ReservationState::PaidLate,
];

/// A decimal number.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `state quantity granted_at moved_at user price currency request_id nonce`, as `lua/README.md` says.
pub(super) fn record(plan: &StepPlan, set: &FieldSet) -> Option<(Reservation, Vec<u8>)> {
    let mut words = set.value.split(|byte| *byte == b' ');
    let state = *STATES.get(number(words.next()?)? as usize)?;
    let quantity = number(words.next()?)? as u32;
    let (granted_at, moved_at) = (number(words.next()?)?, number(words.next()?)?);
    let user = UserId(number(words.next()?)?);
    let minor = number(words.next()?)?;
    let currency = words.next()?.try_into().ok()?;
    let request_id = RequestId::new(words.next()?)?;
    let nonce = words.next()?.to_vec();
    let found = Reservation {
        message: OrderMessage {
            version: ORDER_MESSAGE_VERSION,
            reservation: ReservationId(plan.ids_above + number(&set.field)?),
            sku: plan.sku,
            user,
            quantity,
            request_id,
            unit_price: Money { minor, currency },
            reserved_at: WallMs(granted_at),
        },
        state,
        moved_at: WallMs(moved_at),
    };
    Some((found, nonce))
}
