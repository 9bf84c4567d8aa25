//! One order command as SQL statements inside the open transaction.
//!
//! Called by the store only. Every transition goes through weir-core's state table and [`Step::shift`], which keeps
//! the row, its history, the user's live slot and the conditional stock together. An error leaves the transaction to
//! the caller, which undoes it.

mod pay;
mod rows;

use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use weir_core::order::contract::{
    DeadLetter, Fenced, Money, NewOrder, OrderCommand, OrderMessage, OrderResult, Restocked,
    Standing, StockTotal,
};
use weir_core::order::state::{OrderEvent, OrderState};
use weir_core::time::WallMs;
use weir_proto::ids::{ActivityId, ReservationId, SkuId, SkuKey, UserId};

type Sql<T> = rusqlite::Result<T>;

/// The open transaction and the wall time that its rows carry.
pub(super) struct Step<'a> {
    pub(super) connection: &'a Connection,
    pub(super) at: WallMs,
}

/// What a transition needs to know of an order.
#[derive(Clone, Copy)]
struct Found {
    standing: Standing,
    user: UserId,
    quantity: u32,
    unit_price: Money,
}

impl Step<'_> {
    pub(super) fn run(&self, command: &OrderCommand) -> Sql<OrderResult> {
        match command {
            OrderCommand::Insert(order) => self.insert(order),
            OrderCommand::Pay(ask) => self.pay(ask),
            OrderCommand::Close(fenced) => self.fenced(*fenced, OrderEvent::Close),
            OrderCommand::CloseDue { limit } => self.close_due(*limit),
            OrderCommand::Resell(fenced) => self.resell(*fenced),
            OrderCommand::LoseUnit(fenced) => self.lose_unit(*fenced),
            OrderCommand::Ack(fenced) => self.ack(*fenced),
            OrderCommand::Bury(letter) => self.bury(letter),
            OrderCommand::StockTotal(told) => self.stock_total(*told),
            OrderCommand::Restocked { restock, adds } => self.restocked(restock, *adds),
            OrderCommand::Unacked { after, limit } => self.unacked(*after, *limit),
            OrderCommand::Rows { sku, after, limit } => self.rows(*sku, *after, *limit),
        }
    }

    /// Keeps the newest `at`, so that stored time never goes back after a restart (design §12.14).
    pub(super) fn note_time(&self) -> Sql<()> {
        self.write(
            "UPDATE meta SET value = max(value, ?1) WHERE key = 'last_at_ms'",
            params![int(self.at.0)],
        )?;
        Ok(())
    }

    fn write(&self, sql: &str, values: impl Params) -> Sql<usize> {
        self.connection.prepare_cached(sql)?.execute(values)
    }

    fn insert(&self, order: &NewOrder) -> Sql<OrderResult> {
        let message = &order.message;
        if self.add(message, order.due, OrderState::Created)? {
            if !self.take_stock(message.sku, message.quantity)? {
                self.write(
                    "DELETE FROM orders WHERE reservation_id = ?1",
                    params![int(message.reservation.0)],
                )?;
                return Ok(OrderResult::StockShort);
            }
            return self.first_history(message, OrderState::Created, OrderEvent::Insert);
        }
        if let Some(found) = self.find(message.reservation)? {
            return Ok(OrderResult::Stands(found.standing));
        }
        // Not the reservation's own key, so it is the user's: another live order of this SKU.
        self.add(message, order.due, OrderState::Failed)?;
        self.first_history(message, OrderState::Failed, OrderEvent::Refuse)
    }

    fn bury(&self, letter: &DeadLetter) -> Sql<OrderResult> {
        let message = &letter.message;
        if let Some(found) = self.find(message.reservation)? {
            return Ok(OrderResult::Stands(found.standing));
        }
        self.write(
            "INSERT INTO dead_letters VALUES (?1, ?2, ?3, ?4)",
            params![
                int(message.reservation.0),
                letter.why.text(),
                letter.attempts,
                int(self.at.0)
            ],
        )?;
        self.add(message, WallMs(0), OrderState::Failed)?;
        self.first_history(message, OrderState::Failed, OrderEvent::Refuse)
    }

    /// Makes the row; false when a unique key is taken.
    fn add(&self, message: &OrderMessage, due: WallMs, state: OrderState) -> Sql<bool> {
        let written = self.write(
            "INSERT INTO orders (reservation_id, activity_id, sku_id, user_id, quantity, request_id, unit_price_minor, \
             currency, message_version, state, version, live, reserved_ms, due_ms, created_ms, updated_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 1, ?11, ?12, ?13, ?14, ?14) ON CONFLICT DO NOTHING",
            params![
                int(message.reservation.0),
                int(message.sku.activity.0),
                int(message.sku.sku.0),
                int(message.user.0),
                message.quantity,
                message.request_id.as_str(),
                int(message.unit_price.minor),
                currency_text(&message.unit_price),
                message.version,
                state.text(),
                live(state),
                int(message.reserved_at.0),
                int(due.0),
                int(self.at.0),
            ],
        )?;
        Ok(written == 1)
    }

    fn first_history(
        &self,
        message: &OrderMessage,
        state: OrderState,
        event: OrderEvent,
    ) -> Sql<OrderResult> {
        let standing = Standing {
            reservation: message.reservation,
            sku: message.sku,
            state,
            version: 1,
            acked: 0,
        };
        self.history(&standing, OrderState::Queued, event)?;
        Ok(OrderResult::Moved(standing))
    }

    fn history(&self, now: &Standing, from: OrderState, event: OrderEvent) -> Sql<()> {
        self.write(
            "INSERT INTO order_history VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                int(now.reservation.0),
                now.version,
                from.text(),
                now.state.text(),
                event.text(),
                int(self.at.0)
            ],
        )?;
        Ok(())
    }

    /// The last line of defence: units are taken only while they are there (field bugs R38, Q1).
    fn take_stock(&self, sku: SkuKey, quantity: u32) -> Sql<bool> {
        let written = self.write(
            "UPDATE stock SET taken = taken + ?3 WHERE activity_id = ?1 AND sku_id = ?2 AND taken + ?3 <= total",
            params![int(sku.activity.0), int(sku.sku.0), quantity],
        )?;
        Ok(written == 1)
    }

    fn find(&self, reservation: ReservationId) -> Sql<Option<Found>> {
        self.connection
            .prepare_cached(
                "SELECT reservation_id, activity_id, sku_id, state, version, acked_version, user_id, quantity, \
                 unit_price_minor, currency FROM orders WHERE reservation_id = ?1",
            )?
            .query_row(params![int(reservation.0)], |row| {
                Ok(Found {
                    standing: standing(row)?,
                    user: UserId(nat(row, 6)?),
                    quantity: row.get(7)?,
                    unit_price: Money {
                        minor: nat(row, 8)?,
                        currency: currency(row, 9)?,
                    },
                })
            })
            .optional()
    }

    fn has_live(&self, found: &Found) -> Sql<bool> {
        self.connection
            .prepare_cached(
                "SELECT 1 FROM orders WHERE activity_id = ?1 AND sku_id = ?2 AND user_id = ?3 AND live = 1",
            )?
            .exists(params![
                int(found.standing.sku.activity.0),
                int(found.standing.sku.sku.0),
                int(found.user.0)
            ])
    }

    /// Moves an order by the table; `None` when table, user or stock forbid it (nothing is written then).
    fn shift(&self, found: &Found, event: OrderEvent) -> Sql<Option<Standing>> {
        let from = found.standing;
        let Ok(state) = from.state.after(event) else {
            return Ok(None);
        };
        let comes_alive = state.is_live() && !from.state.is_live();
        let ends = !state.is_live() && from.state.is_live();
        if comes_alive && (self.has_live(found)? || !self.take_stock(from.sku, found.quantity)?) {
            return Ok(None);
        }
        let written = self.write(
            "UPDATE orders SET state = ?3, version = ?2 + 1, live = ?4, updated_ms = ?5 \
             WHERE reservation_id = ?1 AND version = ?2",
            params![
                int(from.reservation.0),
                from.version,
                state.text(),
                live(state),
                int(self.at.0)
            ],
        )?;
        debug_assert_eq!(written, 1, "the row was read in this transaction");
        if ends {
            self.write(
                "UPDATE stock SET taken = taken - ?3 WHERE activity_id = ?1 AND sku_id = ?2",
                params![
                    int(from.sku.activity.0),
                    int(from.sku.sku.0),
                    found.quantity
                ],
            )?;
        }
        let now = Standing {
            state,
            version: from.version + 1,
            ..from
        };
        self.history(&now, from.state, event)?;
        Ok(Some(now))
    }

    fn fenced(&self, fenced: Fenced, event: OrderEvent) -> Sql<OrderResult> {
        let Some(found) = self.find(fenced.reservation)? else {
            return Ok(OrderResult::Missing);
        };
        if found.standing.version != fenced.version {
            return Ok(OrderResult::Stands(found.standing));
        }
        Ok(match self.shift(&found, event)? {
            Some(now) => OrderResult::Moved(now),
            None => OrderResult::Stands(found.standing),
        })
    }

    fn resell(&self, fenced: Fenced) -> Sql<OrderResult> {
        let result = self.fenced(fenced, OrderEvent::Resell)?;
        let OrderResult::Moved(mut now) = result else {
            return Ok(result);
        };
        // The ledger settled it before this command was sent.
        now.acked = now.version;
        self.ack(Fenced {
            reservation: now.reservation,
            version: now.version,
        })?;
        self.write(
            "UPDATE refunds SET state = 'VOID', updated_ms = ?2 \
             WHERE reservation_id = ?1 AND why IN ('late', 'unit_lost')",
            params![int(now.reservation.0), int(self.at.0)],
        )?;
        Ok(OrderResult::Moved(now))
    }

    fn lose_unit(&self, fenced: Fenced) -> Sql<OrderResult> {
        let result = self.fenced(fenced, OrderEvent::LoseUnit)?;
        if matches!(result, OrderResult::Moved(_)) {
            self.write(
                "INSERT INTO refunds SELECT payment_id, reservation_id, amount_minor, currency, 'unit_lost', 'DUE', ?2 \
                 FROM payments WHERE reservation_id = ?1 AND result IN ('paid', 'late') \
                 ON CONFLICT (payment_id) DO UPDATE SET why = 'unit_lost', state = 'DUE', updated_ms = ?2",
                params![int(fenced.reservation.0), int(self.at.0)],
            )?;
        }
        Ok(result)
    }

    fn ack(&self, fenced: Fenced) -> Sql<OrderResult> {
        self.write(
            "UPDATE orders SET acked_version = ?2 WHERE reservation_id = ?1 AND acked_version < ?2 AND version >= ?2",
            params![int(fenced.reservation.0), fenced.version],
        )?;
        Ok(OrderResult::Done)
    }

    fn stock_total(&self, told: StockTotal) -> Sql<OrderResult> {
        self.write(
            "INSERT INTO stock (activity_id, sku_id, total) VALUES (?1, ?2, ?3) \
             ON CONFLICT (activity_id, sku_id) DO UPDATE SET total = max(total, excluded.total)",
            params![
                int(told.sku.activity.0),
                int(told.sku.sku.0),
                int(told.total)
            ],
        )?;
        Ok(OrderResult::Done)
    }

    fn restocked(&self, told: &Restocked, adds: bool) -> Sql<OrderResult> {
        let (activity, sku) = (int(told.sku.activity.0), int(told.sku.sku.0));
        let is_new = self.write(
            "INSERT INTO restocks (activity_id, sku_id, request_id, units, at_ms) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO NOTHING",
            params![activity, sku, told.request_id.as_str(), int(told.units), int(told.at.0)],
        )? == 1;
        if is_new && adds {
            self.write(
                "INSERT INTO stock (activity_id, sku_id, total) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (activity_id, sku_id) DO UPDATE SET total = total + excluded.total",
                params![activity, sku, int(told.units)],
            )?;
        }
        Ok(OrderResult::Done)
    }

    fn close_due(&self, limit: u32) -> Sql<OrderResult> {
        let due: Vec<ReservationId> = self
            .connection
            .prepare_cached(
                "SELECT reservation_id FROM orders WHERE state = 'CREATED' AND due_ms <= ?1 \
                 ORDER BY due_ms, reservation_id LIMIT ?2",
            )?
            .query_map(params![int(self.at.0), limit], |row| {
                Ok(ReservationId(nat(row, 0)?))
            })?
            .collect::<Sql<_>>()?;
        let mut orders = Vec::with_capacity(due.len());
        for reservation in due {
            if let Some(found) = self.find(reservation)?
                && let Some(now) = self.shift(&found, OrderEvent::Close)?
            {
                orders.push(now);
            }
        }
        let next_due = self
            .connection
            .prepare_cached(
                "SELECT due_ms FROM orders WHERE state = 'CREATED' ORDER BY due_ms, reservation_id LIMIT 1",
            )?
            .query_row([], |row| Ok(WallMs(nat(row, 0)?)))
            .optional()?;
        Ok(OrderResult::Closed { orders, next_due })
    }

    fn unacked(&self, after: ReservationId, limit: u32) -> Sql<OrderResult> {
        let orders: Vec<Standing> = self
            .connection
            .prepare_cached(
                "SELECT reservation_id, activity_id, sku_id, state, version, acked_version FROM orders \
                 WHERE reservation_id > ?1 AND acked_version < version ORDER BY reservation_id LIMIT ?2",
            )?
            .query_map(params![int(after.0), limit], standing)?
            .collect::<Sql<_>>()?;
        Ok(OrderResult::Unacked {
            more: orders.len() == limit as usize,
            orders,
            last_at: last_at(self.connection)?,
        })
    }
}

/// Inserts the order that reconcile found missing; true when a row was made (CREATED, or FAILED for a second order of
/// its user). It may be paid for a quarter of an hour of the store's time.
pub(super) fn insert_for_repair(connection: &Connection, message: &OrderMessage) -> Sql<bool> {
    let at = last_at(connection)?.max(message.reserved_at);
    let order = NewOrder {
        message: *message,
        due: at.plus_ms(15 * 60 * 1_000),
    };
    let made = Step { connection, at }.insert(&order)?;
    Ok(matches!(made, OrderResult::Moved(_)))
}

fn last_at(connection: &Connection) -> Sql<WallMs> {
    connection.query_row(
        "SELECT value FROM meta WHERE key = 'last_at_ms'",
        [],
        |row| Ok(WallMs(nat(row, 0)?)),
    )
}

/// A row that starts with reservation, activity, SKU, state, version, acked version.
fn standing(row: &Row<'_>) -> Sql<Standing> {
    let state: String = row.get(3)?;
    Ok(Standing {
        reservation: ReservationId(nat(row, 0)?),
        sku: SkuKey {
            activity: ActivityId(nat(row, 1)?),
            sku: SkuId(nat(row, 2)?),
        },
        state: OrderState::from_text(&state).ok_or(rusqlite::Error::InvalidQuery)?,
        version: row.get(4)?,
        acked: row.get(5)?,
    })
}

/// SQLite's integers are signed; ours are below 2^63 wherever an order is live, and a dead letter keeps its bits.
fn int(value: u64) -> i64 {
    value.cast_signed()
}

fn nat(row: &Row<'_>, column: usize) -> Sql<u64> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

fn live(state: OrderState) -> Option<u8> {
    state.is_live().then_some(1)
}

fn currency_text(money: &Money) -> &str {
    core::str::from_utf8(&money.currency).unwrap_or("???")
}

fn currency(row: &Row<'_>, column: usize) -> Sql<[u8; 3]> {
    let text: String = row.get(column)?;
    text.as_bytes()
        .try_into()
        .map_err(|_| rusqlite::Error::InvalidQuery)
}
