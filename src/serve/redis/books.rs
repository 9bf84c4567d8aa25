//! The whole ledger as it stands in Redis: for what holds it against the orders when nobody sells.
//!
//! Called by `weir demo`. Each SKU is read in pages while others may write: a true picture needs
//! that everything that sells is stopped.

use super::fault::Why;
use super::{RedisError, Visit};
use crate::config::RedisPlan;
use crate::orders::facts::LedgerFacts;
use weir_core::ask::Books;
use weir_core::redis::reply;
use weir_core::redis::step::{SkuSteps, StepPlan};
use weir_proto::resp::{self, Value};

/// Reservations asked for at a time: a reply stays far below what the reader takes.
const PAGE: &[u8] = b"1000";
/// What the books are made of, in the order in which they are asked for.
const BOOKS: [&[u8]; 5] = [b"total", b"free", b"held", b"sold", b"quarantined"];

/// Reads books and reservations of every SKU of `plan` from its first server.
///
/// # Errors
/// The server cannot be asked, or what it holds is none of ours.
pub fn read(plan: &RedisPlan) -> Result<LedgerFacts, RedisError> {
    let mut visit = Visit::begin(plan, &plan.desk.servers[0])?;
    visit.greet(plan)?;
    let mut facts = LedgerFacts::default();
    for steps in &plan.steps {
        if let Some(books) = visit.books(steps)? {
            facts.books.insert(steps.sku, books);
            visit.reservations(steps, &mut facts)?;
        }
    }
    Ok(facts)
}

impl Visit<'_> {
    /// `None`: it was never put on sale.
    fn books(&mut self, steps: &StepPlan) -> Result<Option<Books>, RedisError> {
        let key = SkuSteps::new(*steps).key("sku");
        let mut words: Vec<&[u8]> = vec![b"HMGET", key.as_bytes()];
        words.extend(BOOKS);
        let reply = self.must("HMGET", &words)?;
        let fields = items(&resp::read(&reply)).ok_or_else(|| self.fail(Why::NoRedis))?;
        if fields.first().is_none_or(Option::is_none) {
            return Ok(None);
        }
        let units: Vec<u64> = fields
            .iter()
            .flatten()
            .map_while(|text| decimal(text))
            .collect();
        let &[total, free, held, sold, quarantined] = &units[..] else {
            return Err(self.not_ours(key));
        };
        Ok(Some(Books {
            total,
            free,
            held,
            sold,
            quarantined,
        }))
    }

    fn reservations(
        &mut self,
        steps: &StepPlan,
        facts: &mut LedgerFacts,
    ) -> Result<(), RedisError> {
        let key = SkuSteps::new(*steps).key("res");
        let mut cursor = b"0".to_vec();
        loop {
            let words: [&[u8]; 5] = [b"HSCAN", key.as_bytes(), &cursor, b"COUNT", PAGE];
            let reply = self.must("HSCAN", &words)?;
            let Value::Array(mut parts) = resp::read(&reply) else {
                return Err(self.fail(Why::NoRedis));
            };
            let next = parts
                .next()
                .and_then(|next| next.text().map(<[u8]>::to_vec));
            let page = parts.next().and_then(|page| items(&page));
            let (Some(next), Some(page)) = (next, page) else {
                return Err(self.fail(Why::NoRedis));
            };
            for pair in page.chunks(2) {
                let [Some(number), Some(record)] = pair else {
                    return Err(self.not_ours(key));
                };
                let read = decimal(number).and_then(|number| {
                    reply::reservation(steps.sku, steps.ids_above, number, record).ok()
                });
                let (message, state) = read.ok_or_else(|| self.not_ours(key.clone()))?;
                facts
                    .reservations
                    .insert(message.reservation, (message, state));
            }
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn not_ours(&self, key: String) -> RedisError {
        self.fail(Why::Garbled(key))
    }
}

/// A list of texts and nulls.
fn items(value: &Value<'_>) -> Option<Vec<Option<Vec<u8>>>> {
    let (Value::Array(items) | Value::Map(items)) = value else {
        return None;
    };
    let text = |item: Value<'_>| item.text().map(<[u8]>::to_vec);
    Some(items.clone().map(text).collect())
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
