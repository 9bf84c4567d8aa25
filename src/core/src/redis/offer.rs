//! A reservation as it is put into a Redis that may have lost it: by an instance that acknowledged it, or by the order
//! store (design §5).

use crate::ask::{ReservationState, Reserve};
use crate::order::contract::{ORDER_MESSAGE_VERSION, OrderMessage};
use crate::order::state::OrderState;
use crate::redis::step::StepPlan;
use crate::time::WallMs;
use weir_proto::ids::{Nonce, ReservationId};

/// One reservation and where it must stand at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What the order store is told of it.
    pub message: OrderMessage,
    /// The ticket's nonce; `None`: not known any more.
    pub nonce: Option<Nonce>,
    /// The state to which it is moved, never back.
    pub state: ReservationState,
}

/// What an offer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It stands there.
    Stands,
    /// Its units are gone, or its user holds another: it is FAILED now.
    Revoked,
    /// Behind a fence what is in its way may go: offer it again.
    Later,
    /// The SKU is not there, or is neither fenced nor at home: nothing was done.
    Nowhere,
}

impl Offer {
    /// The grant of `reserve`, as Redis answered it.
    pub fn granted(plan: &StepPlan, reserve: &Reserve, number: ReservationId, at: WallMs) -> Self {
        Self {
            message: OrderMessage {
                version: ORDER_MESSAGE_VERSION,
                reservation: number,
                sku: reserve.sku,
                user: reserve.user,
                quantity: reserve.quantity,
                request_id: reserve.request_id,
                unit_price: plan.unit_price,
                reserved_at: at,
            },
            nonce: Some(reserve.nonce),
            state: ReservationState::Reserved,
        }
    }

    /// A row of the order store.
    pub const fn row(message: OrderMessage, state: OrderState) -> Self {
        Self {
            message,
            nonce: None,
            state: match state {
                OrderState::Reserved | OrderState::Queued => ReservationState::Reserved,
                OrderState::Created => ReservationState::Confirmed,
                OrderState::Paid => ReservationState::Settled,
                OrderState::Closed => ReservationState::Closed,
                OrderState::Failed => ReservationState::Failed,
                OrderState::PaidLate => ReservationState::PaidLate,
            },
        }
    }
}
