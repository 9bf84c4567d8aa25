//! `weir reconcile`: holds the ledger's books against the orders, row by row (requirement G7).
//!
//! What is merely under way (an order message in the outbox, a step that the worker repeats at the
//! next start) is counted, everything else that disagrees is a difference. Repairs are idempotent steps: a row is marked
//! so that the worker asks the ledger again, a missing order is inserted from the ledger's own message, a derived count
//! is corrected by its delta. Live stock is never overwritten (field bug R11). Money and disputed units are left to a
//! person.

use super::facts::{LedgerFacts, RedisSide, Slack};
use super::report::{Difference, Kind, Repair, Report, SkuReport};
use super::step;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::ask::{Books, ReservationState};
use weir_core::order::state::OrderState;
use weir_proto::ids::{ActivityId, ReservationId, SkuId, SkuKey};

/// Differences that one look remembers; all are counted.
const REMEMBERED_MAX: usize = 100_000;

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
    let mut report = look(facts, orders)?;
    report.shorten();
    Ok(report)
}

/// As [`reconcile`], with the first 100,000 differences. While a sale runs `facts` must be older than `orders`, and only
/// what a second look still sees is a difference: [`Report::keep_lasting`].
///
/// # Errors
/// When the order store cannot be read.
pub fn look(facts: &LedgerFacts, orders: &Connection) -> rusqlite::Result<Report> {
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
    if let Some(redis) = &facts.redis {
        comparison.add_redis(redis, &snapshot)?;
    }
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
        if self.report.differences.len() < REMEMBERED_MAX {
            self.report.differences.push(Difference {
                kind: kind.text(),
                activity_id: sku.activity.0,
                sku_id: sku.sku.0,
                reservation_id: reservation.map(|id| id.to_string()),
                what,
                remedy: repair.remedy(),
                repair,
                is_of_one_moment: kind.is_of_one_moment(),
            });
        }
    }

    /// Walks the orders; gives the reservations that have one.
    fn compare_orders(&mut self, orders: &Connection) -> rusqlite::Result<BTreeSet<ReservationId>> {
        let (mut ordered, mut unread) = (BTreeSet::new(), 0_u64);
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
            if !self.is_compared(order.sku) {
                unread += 1;
                continue;
            }
            ordered.insert(order.reservation);
            let units = self.units.entry(order.sku).or_default();
            match order.state {
                OrderState::Created => units.created += order.quantity,
                OrderState::Paid => units.paid += order.quantity,
                _ => {}
            }
            self.compare_order(&order);
        }
        if unread > 0 {
            self.report.notes.push(format!(
                "{unread} orders were not compared: the configuration does not name their SKUs, or their history in Redis is over"
            ));
        }
        Ok(ordered)
    }

    fn is_compared(&self, sku: SkuKey) -> bool {
        let redis = self.facts.redis.as_ref();
        redis.is_none_or(|redis| redis.skus.contains(&sku))
    }

    fn is_absent(&self, sku: SkuKey) -> bool {
        let redis = self.facts.redis.as_ref();
        redis.is_some_and(|redis| redis.absent.contains(&sku))
    }

    fn compare_order(&mut self, order: &OrderFacts) {
        let id = order.reservation;
        let Some((message, ledger)) = self.facts.reservations.get(&id) else {
            if order.state.is_live() && !self.is_absent(order.sku) {
                let repair = match self.facts.redis {
                    Some(_) => Repair::Rebuild,
                    None => Repair::Person,
                };
                let what = format!(
                    "{} order, the ledger knows no reservation",
                    order.state.text()
                );
                self.differ(Kind::ReservationMissing, order.sku, Some(id), repair, what);
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
            if !self.is_compared(sku) {
                continue;
            }
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
        if self.is_absent(sku) {
            let total = units.stock_total;
            let what =
                format!("Redis does not have it; here: {live} units in live orders of {total}");
            self.differ(Kind::SkuMissing, sku, None, Repair::Running, what);
            return;
        }
        let redis = self.facts.redis.as_ref();
        let slack = redis.and_then(|redis| redis.slack.get(&sku)).copied();
        let Slack { held, sold } = slack.unwrap_or_default();
        if !books.balance() {
            let what = format!(
                "total {} is not free {} + held {} + sold {} + quarantined {}",
                books.total, books.free, books.held, books.sold, books.quarantined
            );
            self.differ(Kind::BooksUnbalanced, sku, None, Repair::Person, what);
        }
        if books.held.abs_diff(units.held) > held || books.sold.abs_diff(units.sold) > sold {
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
            let repair = if units.stock_total < books.total && redis.is_some() {
                Repair::Running // it tells the restocks by name, too
            } else if units.stock_total < books.total {
                Repair::RaiseTotal(sku)
            } else {
                Repair::Person
            };
            let what = format!("stock row {}, ledger {}", units.stock_total, books.total);
            self.differ(Kind::TotalDiffers, sku, None, repair, what);
        }
    }
}

impl Comparison<'_> {
    /// What a look at Redis saw by itself, and whose orders they are.
    fn add_redis(&mut self, redis: &RedisSide, orders: &Connection) -> rusqlite::Result<()> {
        self.report.in_stream = Some(redis.in_stream);
        self.report.notes.extend(redis.notes.iter().cloned());
        for odd in &redis.odd {
            let repair = match odd.kind {
                Kind::SkuFenced => Repair::Running,
                _ => Repair::Freeze,
            };
            self.differ(odd.kind, odd.sku, odd.reservation, repair, odd.what.clone());
        }
        let sql = "SELECT value FROM meta WHERE key = 'store_id'";
        let here = orders.query_row(sql, [], |row| row.get::<_, i64>(0));
        let here = here.optional()?.map(i64::cast_unsigned);
        for (&sku, &maker) in &redis.makers {
            if here != Some(maker) {
                let what = format!(
                    "order store {maker} makes the orders of this stock, this one does not"
                );
                self.differ(Kind::OtherStore, sku, None, Repair::OtherStore, what);
            }
        }
        Ok(())
    }
}

/// Carries out the safe repairs of a report in one transaction; gives how many rows were changed. The process
/// that makes the orders must be stopped, and the report must be of the same ledger and orders.
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
            Repair::Rebuild
            | Repair::Running
            | Repair::Freeze
            | Repair::OtherStore
            | Repair::Person => 0,
        } as u64;
    }
    transaction.commit()?;
    Ok(changed)
}
