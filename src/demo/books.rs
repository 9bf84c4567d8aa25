//! The books after the sale: read from the two files (or Redis and the orders' file) by plain SQL and by reconcile, and held against what buyers were told.

use super::DemoError;
use super::tally::Told;
use crate::config::Plan;
use crate::orders::facts::LedgerFacts;
use crate::orders::report::Report;
use crate::orders::{reconcile::reconcile, schema};
use rusqlite::Connection;
use std::collections::BTreeMap;
use weir_proto::answer::RequestState;

/// Orders of a user beyond the first that are alive. README shows it.
const DOUBLE_SQL: &str = "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM orders \
     WHERE state IN ('CREATED', 'PAID') GROUP BY activity_id, sku_id, user_id HAVING count(*) > 1)";
/// Units in live orders.
const LIVE_SQL: &str =
    "SELECT coalesce(sum(quantity), 0) FROM orders WHERE state IN ('CREATED', 'PAID')";

/// What the files say.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Reconcile's report.
    pub report: Report,
    /// Order rows.
    pub orders: u64,
    /// Units in live orders.
    pub live_units: u64,
    /// Live orders of users beyond their first, and users told to hold two units.
    pub double_grants: u64,
    /// Units that somebody was told to hold, without an order of that user.
    pub lost_orders: u64,
    /// Orders that nobody was told of.
    pub untold_orders: u64,
    /// Orders that stand elsewhere than their buyer was told.
    pub untrue_ends: u64,
}

/// Reads the ledger and the orders; the servers have ended.
/// # Errors
/// A file cannot be read.
pub fn read(plan: &Plan, told: &[Told]) -> Result<Books, DemoError> {
    let path = plan.store.orders();
    let orders = schema::open_to_read(&path).map_err(DemoError::input)?;
    let of_sql = |error: rusqlite::Error| DemoError::Input(format!("{}: {error}", path.display()));
    let report = match &plan.redis {
        Some(redis) => {
            crate::serve::compare_redis(redis, &path)
                .map_err(DemoError::input)?
                .1
        }
        None => {
            let facts = LedgerFacts::read(&plan.store.dir, &plan.sale).map_err(DemoError::input)?;
            reconcile(&facts, &orders).map_err(of_sql)?
        }
    };
    let mut books = Books {
        report,
        ..Books::default()
    };
    let number = |sql: &str| {
        orders
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .map(i64::cast_unsigned)
    };
    books.live_units = number(LIVE_SQL).map_err(of_sql)?;
    books.double_grants = number(DOUBLE_SQL).map_err(of_sql)? + told_twice(told);
    compare(&orders, told, &mut books).map_err(of_sql)?;
    Ok(books)
}

/// Users who were told to hold another unit while they held one, and units told to two users.
fn told_twice(told: &[Told]) -> u64 {
    let mut users: BTreeMap<u64, u64> = BTreeMap::new();
    let mut units: BTreeMap<u64, u64> = BTreeMap::new();
    for told in told {
        let ended = matches!(
            told.end,
            Some(RequestState::Closed | RequestState::PaidLate | RequestState::Failed)
        );
        *users.entry(told.user).or_default() += u64::from(!ended);
        *units.entry(told.reservation.0).or_default() += 1;
    }
    let beyond = |counts: BTreeMap<u64, u64>| {
        counts
            .values()
            .map(|count| count.saturating_sub(1))
            .sum::<u64>()
    };
    beyond(users) + beyond(units)
}

fn compare(orders: &Connection, told: &[Told], books: &mut Books) -> rusqlite::Result<()> {
    let mut waiting: BTreeMap<u64, &Told> =
        told.iter().map(|told| (told.reservation.0, told)).collect();
    let mut statement = orders.prepare("SELECT reservation_id, user_id, state FROM orders")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let reservation = row.get::<_, i64>(0)?.cast_unsigned();
        let user = row.get::<_, i64>(1)?.cast_unsigned();
        let state: String = row.get(2)?;
        books.orders += 1;
        match waiting.remove(&reservation) {
            None => books.untold_orders += 1,
            Some(told) if told.user != user => books.lost_orders += 1,
            Some(told) => books.untrue_ends += u64::from(!agrees(told.end, &state)),
        }
    }
    books.lost_orders += waiting.len() as u64;
    Ok(())
}

/// A refund that was announced may have become a sale when a unit was free; every other end stays.
fn agrees(end: Option<RequestState>, state: &str) -> bool {
    match end {
        None => true,
        Some(RequestState::PaidLate) => matches!(state, "PAID_LATE" | "PAID"),
        Some(end) => end.as_str() == state,
    }
}

/// A fault put into the files on purpose, so that a test sees it found (issue 3 §6).
#[cfg(any(debug_assertions, weir_planted))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A second live order of one user.
    DoubleOrder,
    /// An order row disappears.
    LostOrder,
}

/// Puts the fault into the orders' file.
/// # Errors
/// The file cannot be written.
#[cfg(any(debug_assertions, weir_planted))]
pub fn plant(plan: &Plan, plant: Plant) -> Result<(), DemoError> {
    let path = plan.store.orders();
    let orders = schema::open(&path).map_err(DemoError::input)?;
    let sql = match plant {
        // `live` NULL slips past the unique key, as a program with a bug could.
        Plant::DoubleOrder => {
            "INSERT INTO orders SELECT (SELECT max(reservation_id) + 1 FROM orders), activity_id, sku_id, user_id, quantity, \
             request_id, unit_price_minor, currency, message_version, state, version, acked_version, NULL, reserved_ms, due_ms, \
             created_ms, updated_ms FROM orders WHERE state = 'PAID' LIMIT 1"
        }
        Plant::LostOrder => {
            "DELETE FROM orders WHERE reservation_id = (SELECT min(reservation_id) FROM orders WHERE state = 'PAID')"
        }
    };
    let changed = orders.execute(sql, []).map_err(DemoError::input)?;
    match changed {
        1 => Ok(()),
        _ => Err(DemoError::Input(
            "there is no paid order to plant a fault in".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_proto::ids::ReservationId;

    #[test]
    fn who_is_told_of_two_units_is_found() {
        let told = |reservation, user, end| Told {
            reservation: ReservationId(reservation),
            user,
            end,
        };
        let paid = Some(RequestState::Paid);
        let closed = Some(RequestState::Closed);
        assert_eq!(told_twice(&[told(1, 1, paid), told(2, 2, paid)]), 0);
        assert_eq!(told_twice(&[told(1, 1, closed), told(2, 1, paid)]), 0);
        assert_eq!(told_twice(&[told(1, 1, None), told(2, 1, paid)]), 1);
        assert_eq!(told_twice(&[told(1, 1, paid), told(1, 2, paid)]), 1);
    }
}
