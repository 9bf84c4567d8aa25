//! What is checked when load and faults have ended and the world has drained: limbo, lost, double, oversold, the books.

use super::check::Checker;
use super::crowd::Crowd;
use super::operator::Operator;
use super::plan::Plan;
use super::tally::{Sin, SinKind};
use std::collections::BTreeMap;
use weir_core::ask::ReservationState;
use weir_core::ledger::{Ledger, Reservation};
use weir_core::order::contract::PaymentId;
use weir_core::order::model::{OrderRow, Tables};
use weir_core::order::state::OrderState;
use weir_proto::answer::RequestState;
use weir_proto::ids::ReservationId;

/// Everything that the last check reads.
pub(super) struct End<'a> {
    pub plan: &'a Plan,
    pub checker: &'a Checker,
    pub crowd: &'a Crowd,
    pub operator: &'a Operator,
    pub orders: &'a Tables,
    /// Redis was replaced by one that lacked its last writes.
    pub is_replaced: bool,
    /// Who remembers what was granted may have ended, or not have reached Redis in time.
    pub is_forgotten: bool,
    /// The owner's own ledger; none where Redis has it.
    pub ledger: Option<&'a Ledger>,
}

/// Every promise that does not hold.
pub(super) fn sins(end: &End<'_>) -> Vec<Sin> {
    let mut sins = Vec::new();
    limbo(end, &mut sins);
    lost(end, &mut sins);
    orders(end, &mut sins);
    books(end, &mut sins);
    late_grants(end, &mut sins);
    silent_grants(end, &mut sins);
    payments(end, &mut sins);
    sins
}

/// A request whose client got 202 or no answer, without a terminal status (design §12.7). Orders that wait for their
/// payment are none either: the world runs on until each is paid or closed.
fn limbo(end: &End<'_>, sins: &mut Vec<Sin>) {
    for wish in end.crowd.wishes.iter().filter(|wish| !wish.is_settled()) {
        let row = wish.queued.and_then(|id| end.orders.orders.get(&id));
        let order = row.map(|row| (row.state, row.due));
        let what = format!(
            "{}: last told {:?}; its order {order:?}, the last at {:?}",
            wish.request_id, wish.told, end.orders.last_at
        );
        sins.push(Sin::new(SinKind::Limbo, what));
    }
    if end.crowd.outstanding() > 0 {
        let what = format!("{} requests without a reply", end.crowd.outstanding());
        sins.push(Sin::new(SinKind::Limbo, what));
    }
}

/// Acknowledged QUEUED without an order, a CLOSED or a FAILED.
fn lost(end: &End<'_>, sins: &mut Vec<Sin>) {
    for (reservation, wish) in &end.checker.told {
        let has_order = end.orders.orders.contains_key(reservation);
        if !has_order && !is_lost_for_good(end, *reservation) {
            let name = end.crowd.wishes[*wish as usize].request_id;
            let what = format!("{name} was told QUEUED as {reservation}, which has no order");
            sins.push(Sin::new(SinKind::Lost, what));
        }
    }
}

/// True for a grant that went with a Redis, and with who remembered it.
pub(super) fn is_lost_for_good(end: &End<'_>, reservation: ReservationId) -> bool {
    let lost = end.checker.truth.lost();
    (end.is_forgotten && lost.is_some_and(|lost| lost.contains_key(&reservation)))
        || is_revoked(end, reservation)
}

/// True for a grant that was offered to the next Redis, which had no unit for it: it is FAILED, and never gets an order.
/// A restock that was lost with the one before may be why.
fn is_revoked(end: &End<'_>, reservation: ReservationId) -> bool {
    let redis = end.plan.redis.as_ref();
    let may_be = end.is_replaced && redis.is_some_and(|redis| redis.wait.is_none());
    let found = end.checker.truth.reservation(reservation);
    may_be && found.is_some_and(|found| found.state == ReservationState::Failed)
}

/// Two live orders of a user; more live units than exist; a user over the quota.
fn orders(end: &End<'_>, sins: &mut Vec<Sin>) {
    let mut units = BTreeMap::new();
    let mut users = BTreeMap::new();
    for row in end.orders.orders.values().filter(|row| row.state.is_live()) {
        let message = &row.message;
        *units.entry(message.sku).or_insert(0) += u64::from(message.quantity);
        let before = users.insert((message.sku, message.user), message.reservation);
        if let Some(before) = before {
            let what = format!("orders {before} and {} are one user's", message.reservation);
            sins.push(Sin::new(SinKind::DoubleGrant, what));
        }
        let sku = end.plan.sale.sku(message.sku);
        if sku.is_none_or(|(_, sku)| message.quantity > sku.quantity_max) {
            let what = format!(
                "order {} has {} units",
                message.reservation, message.quantity
            );
            sins.push(Sin::new(SinKind::Broken, what));
        }
    }
    for (sku, live) in units {
        let total = end.checker.truth.sku(sku).map_or(0, |sku| sku.books.total);
        if live > total {
            let what = format!("{sku:?}: {live} units in live orders, {total} exist");
            sins.push(Sin::new(SinKind::Oversold, what));
        }
    }
    let mut live_users = BTreeMap::new();
    let reservations = end.checker.truth.reservations();
    for found in reservations.filter(|found| found.state.is_live()) {
        let message = found.message;
        let before = live_users.insert((message.sku, message.user), message.reservation);
        if let Some(before) = before {
            let what = format!(
                "reservations {before} and {} are one user's",
                message.reservation
            );
            sins.push(Sin::new(SinKind::DoubleGrant, what));
        }
    }
}

/// The ledger and the orders tell the same story, and the totals are what the operator put in.
fn books(end: &End<'_>, sins: &mut Vec<Sin>) {
    for difference in differences(end.checker, end.operator, end.orders, end.is_replaced) {
        sins.push(Sin::new(SinKind::Broken, difference));
    }
    for at in 0..end.plan.skus_count() {
        let key = end.plan.sku_key(at);
        let first = end.plan.sku(at).first_stock;
        let wanted = first + end.operator.restocked(key);
        let total = end.checker.truth.sku(key).map_or(0, |sku| sku.books.total);
        // A restock may be lost with the Redis that had it, and with who told the orders of it: units are missing then,
        // never too many.
        let is_short = end.is_replaced && end.is_forgotten && total < wanted;
        if total != wanted && !is_short {
            let what = format!("{key:?}: {total} units, but {wanted} were put on sale");
            sins.push(Sin::new(SinKind::Broken, what));
        }
    }
    for sku in end.ledger.into_iter().flat_map(Ledger::skus) {
        let durable = end.checker.truth.sku(sku.sku).map(|sku| sku.books);
        if durable != Some(sku.books) {
            let what = format!(
                "{:?}: {:?} in memory, {durable:?} durable",
                sku.sku, sku.books
            );
            sins.push(Sin::new(SinKind::Broken, what));
        }
    }
    if !end.operator.is_done() {
        sins.push(Sin::new(SinKind::Limbo, "an operator's step is not done"));
    }
}

/// Where ledger and orders differ, row by row; empty when the books are equal. `may_revoke`: a grant may have become FAILED
/// because a new Redis had no unit for it.
pub(super) fn differences(
    checker: &Checker,
    operator: &Operator,
    orders: &Tables,
    may_revoke: bool,
) -> Vec<String> {
    let mut differences = Vec::new();
    let mut known = 0;
    for found in checker.truth.reservations() {
        let row = orders.orders.get(&found.message.reservation);
        known += usize::from(row.is_some());
        let stray = operator.released(found.message.reservation);
        let revoked = may_revoke && row.is_none() && found.state == ReservationState::Failed;
        if !revoked && !agree(&found, row, stray) {
            let states = (found.state, row.map(|row| row.state));
            differences.push(format!("{}: {states:?}", found.message.reservation));
        }
    }
    if known != orders.orders.len() {
        differences.push("an order without a reservation".into());
    }
    differences
}

/// `stray`: the operator released it by mistake, so that the ledger may call the end FAILED where the order says CLOSED.
fn agree(found: &Reservation, row: Option<&OrderRow>, stray: bool) -> bool {
    let Some(row) = row else {
        return false; // a reservation without an order, whatever its state
    };
    let state = match found.state {
        ReservationState::Reserved => return false,
        ReservationState::Confirmed => OrderState::Created,
        ReservationState::Settled => OrderState::Paid,
        ReservationState::Closed => OrderState::Closed,
        ReservationState::Failed if stray && row.state == OrderState::Closed => OrderState::Closed,
        ReservationState::Failed => OrderState::Failed,
        ReservationState::PaidLate => OrderState::PaidLate,
    };
    row.state == state && row.message == found.message && row.acked == row.version
}

/// After a "no" no grant may follow (design §12.5), unless it was lost with a Redis before a replica had it.
fn late_grants(end: &End<'_>, sins: &mut Vec<Sin>) {
    let redis = end.plan.redis.as_ref();
    if end.is_replaced && redis.is_some_and(|redis| redis.wait.is_none()) {
        return;
    }
    let refused: BTreeMap<_, _> = end
        .crowd
        .wishes
        .iter()
        .filter(|wish| wish.told == Some(RequestState::NotAccepted))
        .map(|wish| ((wish.user, wish.request_id.as_bytes()), ()))
        .collect();
    for found in end.checker.truth.reservations() {
        let message = &found.message;
        if refused.contains_key(&(message.user, message.request_id.as_bytes())) {
            let what = format!("{} was told NOT_ACCEPTED, then granted", message.request_id);
            sins.push(Sin::new(SinKind::Broken, what));
        }
    }
}

/// Who was refused every time, each time with a reply, holds nothing. A doubled ask may be refused and granted, so worlds
/// with doubled mail show nothing here.
fn silent_grants(end: &End<'_>, sins: &mut Vec<Sin>) {
    if end.plan.weather.mail_doubled > 0 {
        return;
    }
    let mut refused = BTreeMap::new();
    for wish in &end.crowd.wishes {
        let heard = wish.doubt || wish.queued.is_some() || wish.told.is_some();
        if wish.tries > 0 && !heard {
            refused.insert((wish.user, wish.request_id.as_bytes()), ());
        }
    }
    for found in end.checker.truth.reservations() {
        let message = &found.message;
        if refused.contains_key(&(message.user, message.request_id.as_bytes())) {
            let what = format!("{} was granted, but only told refusals", message.request_id);
            sins.push(Sin::new(SinKind::Broken, what));
        }
    }
}

/// A payment that its provider was told is booked is booked.
fn payments(end: &End<'_>, sins: &mut Vec<Sin>) {
    for name in end.crowd.booked() {
        let id = PaymentId::new(name.as_bytes());
        if id.is_none_or(|id| !end.orders.payments.contains_key(&id)) {
            let what = format!("{name} was told to be booked, and is not");
            sins.push(Sin::new(SinKind::Lost, what));
        }
    }
}
