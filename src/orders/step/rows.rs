//! A page of a SKU's orders, as what they were made of: what a ledger that lost some is mended with.

use super::{Sql, Step, currency, int, nat};
use rusqlite::{OptionalExtension, Row, params};
use weir_core::limits::RESTOCKS_MENDED_MAX;
use weir_core::order::contract::{Money, OrderMessage, OrderResult, Restocked};
use weir_core::order::state::OrderState;
use weir_core::time::WallMs;
use weir_proto::ids::{RequestId, ReservationId, SkuKey, UserId};

impl Step<'_> {
    pub(super) fn rows(&self, sku: SkuKey, after: ReservationId, limit: u32) -> Sql<OrderResult> {
        let key = params![int(sku.activity.0), int(sku.sku.0)];
        let total = self
            .connection
            .prepare_cached("SELECT total FROM stock WHERE activity_id = ?1 AND sku_id = ?2")?
            .query_row(key, |row| nat(row, 0))
            .optional()?;
        let orders: Vec<(OrderMessage, OrderState)> = self
            .connection
            .prepare_cached(
                "SELECT reservation_id, user_id, quantity, request_id, unit_price_minor, currency, message_version, \
                 reserved_ms, state FROM orders WHERE reservation_id > ?1 AND activity_id = ?2 AND sku_id = ?3 \
                 ORDER BY reservation_id LIMIT ?4",
            )?
            .query_map(
                params![int(after.0), int(sku.activity.0), int(sku.sku.0), limit],
                |row| order(sku, row),
            )?
            .collect::<Sql<_>>()?;
        let restocks = match after {
            ReservationId(0) => self.restocks(sku)?,
            _ => Vec::new(),
        };
        Ok(OrderResult::Rows {
            restocks,
            total: total.unwrap_or(0),
            more: orders.len() == limit as usize,
            orders,
        })
    }

    fn restocks(&self, sku: SkuKey) -> Sql<Vec<Restocked>> {
        let mut newest: Vec<Restocked> = self
            .connection
            .prepare_cached(
                "SELECT request_id, units, at_ms FROM restocks WHERE activity_id = ?1 AND sku_id = ?2 \
                 ORDER BY number DESC LIMIT ?3",
            )?
            .query_map(
                params![int(sku.activity.0), int(sku.sku.0), RESTOCKS_MENDED_MAX],
                |row| {
                    let request_id: String = row.get(0)?;
                    let request_id = RequestId::new(request_id.as_bytes());
                    Ok(Restocked {
                        sku,
                        request_id: request_id.ok_or(rusqlite::Error::InvalidQuery)?,
                        units: nat(row, 1)?,
                        at: WallMs(nat(row, 2)?),
                    })
                },
            )?
            .collect::<Sql<_>>()?;
        newest.reverse();
        Ok(newest)
    }
}

fn order(sku: SkuKey, row: &Row<'_>) -> Sql<(OrderMessage, OrderState)> {
    let request_id: String = row.get(3)?;
    let state: String = row.get(8)?;
    let message = OrderMessage {
        version: row.get(6)?,
        reservation: ReservationId(nat(row, 0)?),
        sku,
        user: UserId(nat(row, 1)?),
        quantity: row.get(2)?,
        request_id: RequestId::new(request_id.as_bytes()).ok_or(rusqlite::Error::InvalidQuery)?,
        unit_price: Money {
            minor: nat(row, 4)?,
            currency: currency(row, 5)?,
        },
        reserved_at: WallMs(nat(row, 7)?),
    };
    let state = OrderState::from_text(&state).ok_or(rusqlite::Error::InvalidQuery)?;
    Ok((message, state))
}
