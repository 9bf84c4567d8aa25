//! Payments in SQL: one result per payment id, for ever; money that buys nothing gets a refund row.

use super::{Sql, Step, currency, currency_text, int, nat};
use rusqlite::{OptionalExtension, params};
use weir_core::order::contract::{Money, OrderResult, PaymentAsk, PaymentResult};
use weir_core::order::model::RefundWhy;
use weir_core::order::state::{OrderEvent, OrderState};

impl Step<'_> {
    pub(super) fn pay(&self, ask: &PaymentAsk) -> Sql<OrderResult> {
        if let Some(result) = self.known_payment(ask)? {
            return Ok(OrderResult::Payment(result, None));
        }
        let found = match self.find(ask.reservation)? {
            Some(found) if found.standing.sku == ask.sku => found,
            _ => return Ok(OrderResult::Payment(PaymentResult::NoOrder, None)),
        };
        let price = u128::from(found.unit_price.minor) * u128::from(found.quantity);
        let fits = u128::from(ask.amount.minor) == price
            && ask.amount.currency == found.unit_price.currency;
        let (result, refund) = match found.standing.state {
            OrderState::Paid | OrderState::PaidLate => {
                (PaymentResult::PaidBefore, Some(RefundWhy::PaidBefore))
            }
            _ if !fits => (PaymentResult::AmountDiffers, Some(RefundWhy::AmountDiffers)),
            OrderState::Created => (PaymentResult::Paid, None),
            _ => (PaymentResult::Late, Some(RefundWhy::Late)),
        };
        self.write(
            "INSERT INTO payments VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                ask.payment.as_str(),
                int(ask.reservation.0),
                int(ask.amount.minor),
                currency_text(&ask.amount),
                result.text(),
                int(ask.paid_at.0),
                int(self.at.0),
            ],
        )?;
        if let Some(why) = refund {
            self.write(
                "INSERT INTO refunds VALUES (?1, ?2, ?3, ?4, ?5, 'DUE', ?6)",
                params![
                    ask.payment.as_str(),
                    int(ask.reservation.0),
                    int(ask.amount.minor),
                    currency_text(&ask.amount),
                    why.text(),
                    int(self.at.0),
                ],
            )?;
        }
        let moves = matches!(result, PaymentResult::Paid | PaymentResult::Late);
        let now = if moves {
            self.shift(&found, OrderEvent::Pay)?
        } else {
            None
        };
        Ok(OrderResult::Payment(result, now))
    }

    /// What a payment id that was used before means for this ask; `None` for a fresh one.
    fn known_payment(&self, ask: &PaymentAsk) -> Sql<Option<PaymentResult>> {
        self.connection
            .prepare_cached(
                "SELECT reservation_id, amount_minor, currency, result FROM payments WHERE payment_id = ?1",
            )?
            .query_row(params![ask.payment.as_str()], |row| {
                let amount = Money {
                    minor: nat(row, 1)?,
                    currency: currency(row, 2)?,
                };
                let same = nat(row, 0)? == ask.reservation.0 && amount == ask.amount;
                let text: String = row.get(3)?;
                Ok(match PaymentResult::from_text(&text) {
                    _ if !same => PaymentResult::PaymentIdReused,
                    Some(PaymentResult::Paid) => PaymentResult::Repeated,
                    Some(first) => first,
                    None => return Err(rusqlite::Error::InvalidQuery),
                })
            })
            .optional()
    }
}
