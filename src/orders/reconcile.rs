//! `weir reconcile`: holds the ledger's books against the orders, row by row (requirement G7).
//!
//! Reads both files; what is merely under way (an order message in the outbox, a step that the worker repeats at the
//! next start) is counted, everything else that disagrees is a difference. Repairs are idempotent steps: a row is marked
//! so that the worker asks the ledger again, a missing order is inserted from the ledger's own message, a derived count
//! is corrected by its delta. Live stock is never overwritten (field bug R11). Money and disputed units are left to a
//! person.

use super::facts::LedgerFacts;
use super::report::{Difference, Kind, Repair, Report, SkuReport};
use super::step;
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::ask::{Books, ReservationState};
use weir_core::order::state::OrderState;
use weir_proto::ids::{ActivityId, ReservationId, SkuId, SkuKey};

/// Differences that a report lists; all are counted.
const LISTED_MAX: usize = 1_000;

/// An order row, as far as it is compared.
struct OrderFacts {
    reservation: ReservationId,
    sku: SkuKey,
    user: u64,
    quantity: u64,
    state: OrderState,
    acked: bool,
}

/// Units by SKU.
#[derive(Clone, Copy, Default)]
struct Units {
    created: u64,
    paid: u64,
    held: u64,
    sold: u64,
    stock_total: u64,
    stock_taken: u64,
}

struct Comparison<'a> {
    facts: &'a LedgerFacts,
    report: Report,
    units: BTreeMap<SkuKey, Units>,
}

/// Compares the ledger with the orders; changes nothing.
///
/// # Errors
/// When the order store cannot be read.
pub fn reconcile(facts: &LedgerFacts, orders: &Connection) -> rusqlite::Result<Report> {
    let snapshot = orders.unchecked_transaction()?; // all queries read one state
    let mut comparison = Comparison {
        facts,
        report: Report::default(),
        units: BTreeMap::new(),
    };
    let ordered = comparison.compare_orders(&snapshot)?;
    comparison.compare_reservations(&ordered);
    comparison.find_double_orders(&snapshot)?;
    comparison.read_stock(&snapshot)?;
    comparison.compare_books();
    let mut report = comparison.report;
    let count = |sql: &str| snapshot.query_row(sql, [], |row| row.get::<_, i64>(0));
    report.refunds_due = count("SELECT count(*) FROM refunds WHERE state = 'DUE'")?.cast_unsigned();
    report.dead_letters = count("SELECT count(*) FROM dead_letters")?.cast_unsigned();
    report.balanced = report.counts.is_empty();
    Ok(report)
}

impl Comparison<'_> {
    fn differ(
        &mut self,
        kind: Kind,
        sku: SkuKey,
        reservation: Option<ReservationId>,
        repair: Repair,
        what: String,
    ) {
        *self.report.counts.entry(kind.text()).or_default() += 1;
        if self.report.differences.len() < LISTED_MAX {
            self.report.differences.push(Difference {
                kind: kind.text(),
                activity_id: sku.activity.0,
                sku_id: sku.sku.0,
                reservation_id: reservation.map(|id| id.to_string()),
                what,
                remedy: repair.remedy(),
                repair,
            });
        }
    }

    /// Walks the orders; gives the reservations that have one.
    fn compare_orders(&mut self, orders: &Connection) -> rusqlite::Result<BTreeSet<ReservationId>> {
        let mut ordered = BTreeSet::new();
        let mut statement = orders.prepare(
            "SELECT reservation_id, activity_id, sku_id, user_id, quantity, state, acked_version >= version FROM orders",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let nat = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            let state: String = row.get(5)?;
            let order = OrderFacts {
                reservation: ReservationId(nat(0)?),
                sku: SkuKey {
                    activity: ActivityId(nat(1)?),
                    sku: SkuId(nat(2)?),
                },
                user: nat(3)?,
                quantity: nat(4)?,
                state: OrderState::from_text(&state).ok_or(rusqlite::Error::InvalidQuery)?,
                acked: row.get(6)?,
            };
            ordered.insert(order.reservation);
            let units = self.units.entry(order.sku).or_default();
            match order.state {
                OrderState::Created => units.created += order.quantity,
                OrderState::Paid => units.paid += order.quantity,
                _ => {}
            }
            self.compare_order(&order);
        }
        Ok(ordered)
    }

    fn compare_order(&mut self, order: &OrderFacts) {
        let id = order.reservation;
        let Some((message, ledger)) = self.facts.reservations.get(&id) else {
            if order.state.is_live() {
                let what = format!(
                    "{} order, the ledger knows no reservation",
                    order.state.text()
                );
                self.differ(
                    Kind::ReservationMissing,
                    order.sku,
                    Some(id),
                    Repair::Person,
                    what,
                );
            }
            return;
        };
        if (message.sku, message.user.0, u64::from(message.quantity))
            != (order.sku, order.user, order.quantity)
        {
            let what = "user, SKU or quantity of order and reservation differ".to_owned();
            self.differ(
                Kind::IdentityDiffers,
                order.sku,
                Some(id),
                Repair::Person,
                what,
            );
        }
        if !order.acked {
            self.report.steps_open += 1;
            return;
        }
        let expected = match order.state {
            OrderState::Paid => ReservationState::Settled,
            OrderState::Closed => ReservationState::Closed,
            OrderState::Failed => ReservationState::Failed,
            OrderState::PaidLate => ReservationState::PaidLate,
            OrderState::Created | OrderState::Reserved | OrderState::Queued => {
                ReservationState::Confirmed
            }
        };
        // Ended on both sides is agreement on units, whatever the word for it.
        let agree = *ledger == expected || (!ledger.is_live() && !expected.is_live());
        if !agree {
            let what = format!("order {}, ledger {ledger:?}", order.state.text());
            self.differ(
                Kind::StatesDiffer,
                order.sku,
                Some(id),
                Repair::AskAgain(id),
                what,
            );
        }
    }

    fn compare_reservations(&mut self, ordered: &BTreeSet<ReservationId>) {
        for (id, (message, state)) in &self.facts.reservations {
            let units = self.units.entry(message.sku).or_default();
            let quantity = u64::from(message.quantity);
            match state {
                ReservationState::Reserved | ReservationState::Confirmed => units.held += quantity,
                ReservationState::Settled => units.sold += quantity,
                _ => {}
            }
            if ordered.contains(id) {
                continue;
            }
            match state {
                ReservationState::Reserved => self.report.in_outbox += 1,
                ReservationState::Confirmed => {
                    let what = "the ledger says CREATED, there is no order".to_owned();
                    let repair = Repair::InsertOrder(*id);
                    self.differ(Kind::OrderMissing, message.sku, Some(*id), repair, what);
                }
                ReservationState::Settled => {
                    let what = "the ledger says PAID, there is no order".to_owned();
                    self.differ(
                        Kind::OrderMissing,
                        message.sku,
                        Some(*id),
                        Repair::Person,
                        what,
                    );
                }
                _ => {}
            }
        }
    }

    fn find_double_orders(&mut self, orders: &Connection) -> rusqlite::Result<()> {
        let mut statement = orders.prepare(
            "SELECT activity_id, sku_id, count(*), min(reservation_id) FROM orders WHERE state IN ('CREATED', 'PAID') \
             GROUP BY activity_id, sku_id, user_id HAVING count(*) > 1",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let nat = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            let sku = SkuKey {
                activity: ActivityId(nat(0)?),
                sku: SkuId(nat(1)?),
            };
            let what = format!("{} live orders of one user", nat(2)?);
            let first = ReservationId(nat(3)?);
            self.differ(Kind::TwoLiveOrders, sku, Some(first), Repair::Person, what);
        }
        Ok(())
    }

    fn read_stock(&mut self, orders: &Connection) -> rusqlite::Result<()> {
        let mut statement =
            orders.prepare("SELECT activity_id, sku_id, total, taken FROM stock")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let nat = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            let sku = SkuKey {
                activity: ActivityId(nat(0)?),
                sku: SkuId(nat(1)?),
            };
            let units = self.units.entry(sku).or_default();
            units.stock_total = nat(2)?;
            units.stock_taken = nat(3)?;
        }
        Ok(())
    }

    fn compare_books(&mut self) {
        let skus: BTreeSet<SkuKey> = self
            .units
            .keys()
            .chain(self.facts.books.keys())
            .copied()
            .collect();
        for sku in skus {
            let books = self.facts.books.get(&sku).copied().unwrap_or_default();
            let units = self.units.get(&sku).copied().unwrap_or_default();
            self.report.skus.push(SkuReport {
                activity_id: sku.activity.0,
                sku_id: sku.sku.0,
                total: books.total,
                free: books.free,
                held: books.held,
                sold: books.sold,
                quarantined: books.quarantined,
                orders_created: units.created,
                orders_paid: units.paid,
                stock_total: units.stock_total,
                stock_taken: units.stock_taken,
            });
            self.compare_sku(sku, books, units);
        }
    }

    fn compare_sku(&mut self, sku: SkuKey, books: Books, units: Units) {
        let live = units.created + units.paid;
        if !books.balance() {
            let what = format!(
                "total {} is not free {} + held {} + sold {} + quarantined {}",
                books.total, books.free, books.held, books.sold, books.quarantined
            );
            self.differ(Kind::BooksUnbalanced, sku, None, Repair::Person, what);
        }
        if (books.held, books.sold) != (units.held, units.sold) {
            let what = format!(
                "books hold {} and sold {}, reservations hold {} and sold {}",
                books.held, books.sold, units.held, units.sold
            );
            self.differ(Kind::BooksNotReservations, sku, None, Repair::Person, what);
        }
        if live > books.total {
            let what = format!("{live} units in live orders of {} on sale", books.total);
            self.differ(Kind::Oversold, sku, None, Repair::Person, what);
        }
        if units.stock_taken != live {
            let what = format!("{} units taken, {live} in live orders", units.stock_taken);
            self.differ(Kind::TakenDiffers, sku, None, Repair::Recount(sku), what);
        }
        // Below: the worker was not told yet. Above: the ledger went back, which only a lost file can do.
        if units.stock_total != books.total {
            let repair = if units.stock_total < books.total {
                Repair::RaiseTotal(sku)
            } else {
                Repair::Person
            };
            let what = format!("stock row {}, ledger {}", units.stock_total, books.total);
            self.differ(Kind::TotalDiffers, sku, None, repair, what);
        }
    }
}

/// Carries out the safe repairs of a report in one transaction; gives how many rows were changed. The server must be
/// stopped, and the report must be of the same two files.
///
/// # Errors
/// When the order store cannot be written; then nothing is changed.
pub fn repair(
    facts: &LedgerFacts,
    report: &Report,
    orders: &mut Connection,
) -> rusqlite::Result<u64> {
    let transaction = orders.transaction()?;
    let mut changed = 0;
    let mut repairs: Vec<Repair> = report.differences.iter().map(|d| d.repair).collect();
    repairs.sort(); // the stock rows first: an order that is inserted takes from them
    for repair in repairs {
        changed += match repair {
            Repair::AskAgain(id) => transaction.execute(
                "UPDATE orders SET acked_version = 0 WHERE reservation_id = ?1",
                params![id.0.cast_signed()],
            )?,
            Repair::InsertOrder(id) => match facts.reservations.get(&id) {
                Some((message, _)) => usize::from(step::insert_for_repair(&transaction, message)?),
                None => 0,
            },
            Repair::Recount(sku) => transaction.execute(
                "UPDATE stock SET taken = taken + ((SELECT coalesce(sum(quantity), 0) FROM orders \
                 WHERE orders.activity_id = ?1 AND orders.sku_id = ?2 AND live = 1) - taken) \
                 WHERE activity_id = ?1 AND sku_id = ?2",
                params![sku.activity.0.cast_signed(), sku.sku.0.cast_signed()],
            )?,
            Repair::RaiseTotal(sku) => {
                let total = facts.books.get(&sku).map_or(0, |books| books.total);
                transaction.execute(
                    "INSERT INTO stock (activity_id, sku_id, total) VALUES (?1, ?2, ?3) \
                     ON CONFLICT (activity_id, sku_id) DO UPDATE SET total = max(total, excluded.total)",
                    params![
                        sku.activity.0.cast_signed(),
                        sku.sku.0.cast_signed(),
                        total.cast_signed()
                    ],
                )?
            }
            Repair::Person => 0,
        } as u64;
    }
    transaction.commit()?;
    Ok(changed)
}
