//! What buyers were told, held against Redis and the order store when all is over; each broken promise is a finding.
//!
//! A grant that was told and has no order is *revoked* when its buyer was told so for good (FAILED, NOT_ACCEPTED), which
//! is allowed only where no write waits for a replica; otherwise it is lost.

use super::super::promises::{Findings, Sin, check_answers};
use super::super::told::Told;
use super::super::{Result, TortureError};
use crate::config::RedisPlan;
use crate::orders::schema;
use crate::serve::compare_redis;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weir_core::ask::ReservationState;
use weir_core::order::contract::OrderMessage;
use weir_proto::answer::RequestState;
use weir_proto::ids::{ReservationId, UserId};

/// Units of a SKU as its hash has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// Ever put on sale.
    pub total: u64,
    /// Nobody's.
    pub free: u64,
    /// Reserved, or ordered and unpaid.
    pub held: u64,
    /// Paid.
    pub sold: u64,
    /// Disputed.
    pub quarantined: u64,
}

/// One reservation, or one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose.
    pub user: UserId,
    /// By which request.
    pub request: String,
    /// Units.
    pub quantity: u64,
    /// It takes its units.
    pub is_live: bool,
    /// Its state in its own words.
    pub state: String,
}

/// Both sides, at the end.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The SKU.
    pub units: Units,
    /// In Redis.
    pub reservations: BTreeMap<ReservationId, Row>,
    /// In the order store.
    pub orders: BTreeMap<ReservationId, Row>,
}

/// What the checker counts beside its findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests that were granted something.
    pub grants: u64,
    /// Payments that were said to be booked.
    pub payments: u64,
    /// Grants that were taken back, each with a last word for its buyer.
    pub revoked: u64,
    /// Units that nobody bought.
    pub unsold: u64,
}

impl Facts {
    /// Reads the first SKU of `plan` in Redis, and the order store at `orders`; nobody may write to either. What
    /// `weir reconcile` finds there is a finding.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn read(plan: &RedisPlan, orders: &Path, findings: &mut Findings) -> Result<Self> {
        let (ledger, report) = compare_redis(plan, orders).map_err(TortureError::of)?;
        if !report.balanced {
            findings.note(Sin::Books, format!("after an orderly end: {report}"));
        }
        let books = ledger.books.values().next().copied();
        let books = books.ok_or_else(|| TortureError("Redis does not have the SKU".to_owned()))?;
        let reservations = ledger.reservations.into_iter();
        Ok(Self {
            units: Units {
                total: books.total,
                free: books.free,
                held: books.held,
                sold: books.sold,
                quarantined: books.quarantined,
            },
            reservations: reservations.map(|(id, found)| (id, row(&found))).collect(),
            orders: read_orders(orders)?,
        })
    }

    /// Everything, one promise after the other. `keeps_all`: Redis was made to lose nothing.
    pub fn check(&self, told: &[Told], keeps_all: bool, findings: &mut Findings) -> Counts {
        check_answers(told, findings);
        self.check_stock(findings);
        for (what, rows) in [
            ("reservations", &self.reservations),
            ("orders", &self.orders),
        ] {
            check_rows(what, rows, findings);
        }
        self.check_pairs(findings);
        let mut counts = Counts {
            unsold: self.units.free + self.units.quarantined,
            ..Counts::default()
        };
        let live = self.reservations.values().filter(|row| row.is_live);
        let held: BTreeSet<_> = live.map(|row| (row.user, row.request.as_str())).collect();
        let mut holders: BTreeMap<UserId, &Told> = BTreeMap::new();
        let mut owners: BTreeMap<ReservationId, &Told> = BTreeMap::new();
        for request in told {
            let Some(id) = request.reservation() else {
                // Everybody has asked at the end: who has something was told of it, unless it was "never".
                let name = request.request_id();
                if held.contains(&(request.user(), name.as_str())) {
                    findings.note(Sin::ChangedMind, words(request));
                }
                continue;
            };
            counts.grants += 1;
            counts.payments += u64::from(request.is_paid());
            if !self.check_granted(request, id, keeps_all, findings, &mut counts) {
                continue;
            }
            for other in [
                holders.insert(request.user(), request),
                owners.insert(id, request),
            ]
            .into_iter()
            .flatten()
            {
                let what = format!("{}, and {}", words(request), words(other));
                findings.note(Sin::DoubleGrant, what);
            }
        }
        if holders.len() as u64 > self.units.total {
            let what = format!("{} buyers were told of {:?}", holders.len(), self.units);
            findings.note(Sin::Oversold, what);
        }
        counts
    }

    fn check_stock(&self, findings: &mut Findings) {
        let live = |rows: &BTreeMap<ReservationId, Row>| -> u64 {
            let live = rows.values().filter(|row| row.is_live);
            live.map(|row| row.quantity).sum()
        };
        let (reserved, ordered) = (live(&self.reservations), live(&self.orders));
        let units = self.units;
        let what = format!("{units:?}, {reserved} units reserved, {ordered} ordered");
        if reserved > units.total || ordered > units.total {
            findings.note(Sin::Oversold, what.clone());
        }
        let parts = units.free + units.held + units.sold + units.quarantined;
        if parts != units.total || reserved != units.held + units.sold {
            findings.note(Sin::Books, what);
        }
    }

    /// Reservations and orders are about the same: each live order has its live reservation, and the other way round.
    fn check_pairs(&self, findings: &mut Findings) {
        for (ours, theirs, what) in [
            (
                &self.orders,
                &self.reservations,
                "order without reservation",
            ),
            (
                &self.reservations,
                &self.orders,
                "reservation without order",
            ),
        ] {
            for (id, row) in ours.iter().filter(|(_, row)| row.is_live) {
                let other = theirs.get(id);
                let fits = |other: &Row| {
                    other.is_live && other.user == row.user && other.request == row.request
                };
                if !other.is_some_and(fits) {
                    let what = format!("{what}: {id} {row:?}, {other:?}");
                    findings.note(Sin::Books, what);
                }
            }
        }
    }

    /// True when the grant stands, or should.
    fn check_granted(
        &self,
        request: &Told,
        id: ReservationId,
        keeps_all: bool,
        findings: &mut Findings,
        counts: &mut Counts,
    ) -> bool {
        let order = self.orders.get(&id);
        let is_theirs =
            |row: &&Row| row.user == request.user() && row.request == request.request_id().as_str();
        let order = order.filter(is_theirs);
        if request.is_paid() && order.is_none_or(|row| row.state != "PAID") {
            let what = format!("{}: its order is {order:?}", words(request));
            findings.note(Sin::LostPayment, what);
        }
        if order.is_some_and(|row| row.is_live) {
            return true;
        }
        let last = request.said.iter().rev().find(|said| said.is_status());
        match last.map(|said| said.state) {
            Some(RequestState::Failed | RequestState::NotAccepted) => {
                counts.revoked += 1;
                if keeps_all {
                    let what = format!("{}: its order is {order:?}", words(request));
                    findings.note(Sin::Revoked, what);
                }
                false
            }
            // Its order has ended as orders do.
            Some(RequestState::Closed | RequestState::PaidLate) if order.is_some() => false,
            _ => {
                let what = format!("{}: its order is {order:?}", words(request));
                findings.note(Sin::LostGrant, what);
                true
            }
        }
    }
}

fn words(request: &Told) -> String {
    format!("{}: {:?}", request.request_id().as_str(), request.said)
}

fn check_rows(what: &str, rows: &BTreeMap<ReservationId, Row>, findings: &mut Findings) {
    let (mut users, mut requests) = (BTreeSet::new(), BTreeSet::new());
    for (id, row) in rows {
        if row.is_live && !users.insert(row.user) {
            findings.note(
                Sin::DoubleGrant,
                format!("{what}: {id}: its user has another"),
            );
        }
        if !requests.insert((row.user, row.request.as_str())) {
            findings.note(
                Sin::DoubleGrant,
                format!("{what}: {id}: its request has another"),
            );
        }
    }
}

fn row((message, state): &(OrderMessage, ReservationState)) -> Row {
    Row {
        user: message.user,
        request: message.request_id.as_str().to_owned(),
        quantity: u64::from(message.quantity),
        is_live: state.is_live(),
        state: format!("{state:?}"),
    }
}

fn read_orders(path: &Path) -> Result<BTreeMap<ReservationId, Row>> {
    let file = schema::open_to_read(path).map_err(TortureError::of)?;
    let read = || -> rusqlite::Result<BTreeMap<ReservationId, Row>> {
        let sql = "SELECT reservation_id, user_id, request_id, quantity, live IS NOT NULL, state FROM orders";
        let mut rows = file.prepare(sql)?;
        let rows = rows.query_map([], |row| {
            let id = ReservationId(row.get::<_, i64>(0)?.cast_unsigned());
            let found = Row {
                user: UserId(row.get::<_, i64>(1)?.cast_unsigned()),
                request: row.get(2)?,
                quantity: row.get(3)?,
                is_live: row.get(4)?,
                state: row.get(5)?,
            };
            Ok((id, found))
        })?;
        rows.collect()
    };
    read().map_err(|error| TortureError(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::super::super::told::{Asked, Said};
    use super::*;
    use weir_proto::answer::Code;

    fn id(number: u64) -> ReservationId {
        ReservationId(number)
    }

    fn said(asked: Asked, code: Code, state: RequestState, of: Option<u64>) -> Said {
        Said {
            asked,
            code,
            state,
            reservation: of.map(ReservationId),
        }
    }

    fn status(state: RequestState, of: Option<u64>) -> Said {
        said(Asked::Status, Code::SeckillStatus, state, of)
    }

    /// A buyer who was granted a reservation of the same number and asked at the end.
    fn winner(buyer: u32, last: RequestState) -> Told {
        let mut told = Told::new(buyer, 0);
        let of = Some(u64::from(buyer));
        let still = of.filter(|_| last != RequestState::NotAccepted); // which names nothing
        told.said = vec![
            said(Asked::Submit, Code::SeckillQueued, RequestState::Queued, of),
            status(last, still),
        ];
        told
    }

    fn row(told: &Told, state: &str) -> Row {
        Row {
            user: told.user(),
            request: told.request_id().as_str().to_owned(),
            quantity: 1,
            is_live: ["0", "1", "2", "CREATED", "PAID"].contains(&state),
            state: state.to_owned(),
        }
    }

    /// Ten units, of which buyers 1 to 3 have one each; everything is in order.
    fn sale() -> (Facts, Vec<Told>) {
        let told: Vec<Told> = (1..=3)
            .map(|buyer| winner(buyer, RequestState::Created))
            .collect();
        let mut facts = Facts {
            units: Units {
                total: 10,
                free: 7,
                held: 3,
                ..Units::default()
            },
            ..Facts::default()
        };
        for request in &told {
            let number = id(u64::from(request.buyer));
            facts.reservations.insert(number, row(request, "1"));
            facts.orders.insert(number, row(request, "CREATED"));
        }
        (facts, told)
    }

    /// The sins that are found, and the counts.
    fn found(facts: &Facts, told: &[Told], keeps_all: bool) -> (Vec<Sin>, Counts) {
        let mut findings = Findings::default();
        let counts = facts.check(told, keeps_all, &mut findings);
        let mut sins: Vec<Sin> = findings.0.iter().map(|finding| finding.sin).collect();
        sins.dedup();
        (sins, counts)
    }

    #[test]
    fn a_sale_in_order_has_no_findings() {
        let (facts, mut told) = sale();
        let mut loser = Told::new(9, 0);
        let out = said(
            Asked::Submit,
            Code::SeckillSoldOut,
            RequestState::SoldOut,
            None,
        );
        loser.said = vec![out, status(RequestState::NotAccepted, None)];
        told.push(loser);
        let (sins, counts) = found(&facts, &told, true);
        assert_eq!(sins, []);
        assert_eq!((counts.grants, counts.revoked, counts.unsold), (3, 0, 7));
    }

    #[test]
    fn more_sold_than_there_is() {
        let (mut facts, told) = sale();
        facts.units = Units {
            total: 2,
            held: 2,
            ..Units::default()
        };
        assert_eq!(
            found(&facts, &told, true).0,
            [Sin::Oversold, Sin::Books, Sin::Oversold]
        );
        // Told to more people than there are units, although the books were made to fit.
        let (mut facts, mut told) = sale();
        facts.units.total = 3;
        facts.units.free = 0;
        assert_eq!(found(&facts, &told, true).0, []);
        let mut one_more = winner(4, RequestState::Created);
        one_more.said.truncate(1);
        told.push(one_more);
        assert_eq!(
            found(&facts, &told, true).0,
            [Sin::LostGrant, Sin::Oversold]
        );
    }

    #[test]
    fn units_that_are_nowhere() {
        let (mut facts, told) = sale();
        facts.units.free = 6;
        assert_eq!(found(&facts, &told, true).0, [Sin::Books]);
        facts.units.quarantined = 1;
        let (sins, counts) = found(&facts, &told, true);
        assert_eq!((sins, counts.unsold), (vec![], 7));
    }

    #[test]
    fn a_user_with_two() {
        // In the books: two live reservations and two live orders of one user.
        let (mut facts, told) = sale();
        let mut second = told[0].clone();
        second.number = 1;
        facts.reservations.insert(id(7), row(&second, "1"));
        facts.orders.insert(id(7), row(&second, "CREATED"));
        (facts.units.held, facts.units.free) = (4, 6);
        assert_eq!(found(&facts, &told, true).0, [Sin::DoubleGrant]);
        // Only in what the buyer was told.
        let (facts, mut told) = sale();
        let mut second = told[0].clone();
        second.number = 1;
        second.said.truncate(1);
        told.push(second);
        let (sins, _) = found(&facts, &told, true);
        assert_eq!(sins, [Sin::LostGrant, Sin::DoubleGrant]);
        // One request with two numbers.
        let (facts, mut told) = sale();
        told[1].said.push(status(RequestState::Created, Some(8)));
        assert_eq!(found(&facts, &told, true).0, [Sin::DoubleGrant]);
    }

    #[test]
    fn a_number_given_twice() {
        let (facts, mut told) = sale();
        let mut other = Told::new(5, 0);
        other.said = winner(1, RequestState::Created).said;
        told.push(other);
        let (sins, _) = found(&facts, &told, true);
        assert_eq!(sins, [Sin::LostGrant, Sin::DoubleGrant]);
    }

    #[test]
    fn a_grant_without_an_order() {
        let lose = |last: RequestState| {
            let (mut facts, mut told) = sale();
            facts.reservations.remove(&id(2));
            facts.orders.remove(&id(2));
            (facts.units.held, facts.units.free) = (2, 8);
            told[1] = winner(2, last);
            (facts, told)
        };
        // Nobody has told its buyer: lost, whatever Redis was made to keep.
        let (facts, told) = lose(RequestState::Queued);
        for keeps_all in [true, false] {
            let (sins, counts) = found(&facts, &told, keeps_all);
            assert_eq!((sins, counts.revoked), (vec![Sin::LostGrant], 0));
        }
        // Its buyer was told for good: taken back, where that may be.
        for last in [RequestState::Failed, RequestState::NotAccepted] {
            let (facts, told) = lose(last);
            let (sins, counts) = found(&facts, &told, false);
            assert_eq!((sins, counts.revoked), (vec![], 1));
            assert_eq!(found(&facts, &told, true).0, [Sin::Revoked]);
        }
    }

    #[test]
    fn a_payment_that_is_gone() {
        let (mut facts, mut told) = sale();
        let paid = said(
            Asked::Payment,
            Code::PaymentAccepted,
            RequestState::Paid,
            Some(1),
        );
        told[0].said.push(paid);
        assert_eq!(found(&facts, &told, true).0, [Sin::LostPayment]);
        facts.orders.insert(id(1), row(&told[0], "PAID"));
        assert_eq!(found(&facts, &told, true).0, []);
    }

    #[test]
    fn redis_and_orders_that_disagree() {
        let (mut facts, told) = sale();
        facts.reservations.insert(id(1), row(&told[0], "4"));
        (facts.units.held, facts.units.free) = (2, 8);
        assert_eq!(found(&facts, &told, true).0, [Sin::Books]);
        let (mut facts, mut told) = sale();
        facts.orders.remove(&id(3));
        told[2] = winner(3, RequestState::Failed);
        assert_eq!(found(&facts, &told, false).0, [Sin::Books]);
    }

    #[test]
    fn a_no_that_holds_a_unit_and_a_no_that_became_a_yes() {
        let (mut facts, mut told) = sale();
        let mut refused = Told::new(6, 0);
        refused.said = vec![status(RequestState::NotAccepted, None)];
        facts.reservations.insert(id(6), row(&refused, "1"));
        facts.orders.insert(id(6), row(&refused, "CREATED"));
        (facts.units.held, facts.units.free) = (4, 6);
        told.push(refused);
        assert_eq!(found(&facts, &told, true).0, [Sin::ChangedMind]);
        let late = said(
            Asked::Submit,
            Code::SeckillQueued,
            RequestState::Queued,
            Some(6),
        );
        told[3].said.push(late);
        assert_eq!(found(&facts, &told, true).0, [Sin::ChangedMind]);
    }
}
