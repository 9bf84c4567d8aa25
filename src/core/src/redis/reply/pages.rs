//! Replies of many parts: a SKU's state with a page of its winners, and a page of the outbox.

use super::{ShapeFault, books, code, decimal, flag, integer, list, mode, reservation, within};
use crate::ledger::SkuState;
use crate::limits::{RESTOCKS_PAGE, UNITS_MAX};
use crate::order::contract::{OrderMessage, Restocked};
use crate::redis::link::greeting::HomeId;
use crate::time::WallMs;
use alloc::vec::Vec;
use weir_proto::ids::{RequestId, SkuKey, UserId};
use weir_proto::resp::{Items, Value};

/// A SKU's state and a page of its winners.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<'a> {
    /// The state.
    pub state: SkuState,
    /// Grows with each change of what instances are shown.
    pub version: u64,
    /// Version of the policy that opened it.
    pub policy: u64,
    /// Redis' time.
    pub now: WallMs,
    /// Why no new reservation is let in; empty when it is not frozen.
    pub frozen: &'a [u8],
    /// Where the next page begins; 0 when this was the last one.
    pub cursor: u64,
    /// Users of this page, who hold or bought; one may come twice.
    pub winners: Winners<'a>,
    /// Where the books are right; see [`ServerFacts::home`](super::link::greeting::ServerFacts::home).
    pub home: HomeId,
    /// The server that keeps them fenced until they are mended; empty: none does.
    pub fence: HomeId,
    /// All reservations granted before have an order.
    pub ordered_before: WallMs,
}

/// A page of the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxPage<'a> {
    /// All units ever put on sale.
    pub total: u64,
    /// Time of the grant of the last one, and how many of the page share it; `None`: the page is empty.
    pub last: Option<(WallMs, u64)>,
    /// Reservations found, also those without a record.
    pub count: u64,
    /// Number of the operators' request from which the next page of restocks goes.
    pub next_request: u64,
    /// No such request is there yet: every restock in the total was told.
    pub has_all_restocks: bool,
    restocks: Items<'a>,
    ids: Items<'a>,
    records: Items<'a>,
    sku: SkuKey,
    ids_above: u64,
}

impl OutboxPage<'_> {
    /// Restocks of this page, in the order in which they were carried out.
    /// # Errors
    /// What of them is none.
    pub fn restocks(&self) -> Result<Vec<Restocked>, ShapeFault> {
        let mut items = self.restocks.clone();
        let mut restocks = Vec::with_capacity(items.len() / 3);
        while let Some(request_id) = items.next() {
            let Some(request_id) = request_id.text().and_then(RequestId::new) else {
                items.nth(1); // written by somebody else
                continue;
            };
            restocks.push(Restocked {
                sku: self.sku,
                request_id,
                at: WallMs(decimal(items.next())?),
                units: decimal(items.next())?,
            });
        }
        Ok(restocks)
    }
}

impl Iterator for OutboxPage<'_> {
    /// `None`: a pending number without a record, which is for the reconciliation to mend.
    type Item = Result<Option<OrderMessage>, ShapeFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let number = decimal(Some(self.ids.next()?));
        self.ids.next()?; // the time of the grant
        let record = self.records.next()?;
        Some(number.and_then(|number| match record {
            Value::Null => Ok(None),
            record => {
                let record = record.text().ok_or(ShapeFault::Field)?;
                let read = reservation(self.sku, self.ids_above, number, record);
                read.map(|(message, _)| Some(message))
            }
        }))
    }
}

/// Reads a page of the outbox of `sku`; `None`: it was never opened.
/// # Errors
/// What of the reply is not one.
pub fn outbox<'a>(
    sku: SkuKey,
    ids_above: u64,
    reply: &Value<'a>,
) -> Result<Option<OutboxPage<'a>>, ShapeFault> {
    let mut items = list(reply)?;
    match (code(items.next())?, items.len()) {
        (7, 0) => return Ok(None),
        (19, 6) => {}
        (7 | 19, _) => return Err(ShapeFault::Length),
        (other, _) => return Err(ShapeFault::Code(other)),
    }
    let total = within(integer(items.next())?, UNITS_MAX)?;
    let (Some(Value::Array(ids)), Some(Value::Array(records))) = (items.next(), items.next())
    else {
        return Err(ShapeFault::Field);
    };
    let next_request = within(integer(items.next())?, UNITS_MAX)?;
    let has_all_restocks = flag(integer(items.next())?)?;
    let Some(Value::Array(restocks)) = items.next() else {
        return Err(ShapeFault::Field);
    };
    if ids.len() != records.len() * 2 || restocks.len() > 3 * RESTOCKS_PAGE {
        return Err(ShapeFault::Length);
    }
    let mut last: Option<(WallMs, u64)> = None;
    for time in ids.clone().skip(1).step_by(2) {
        let at = WallMs(decimal(Some(time))?);
        last = match last {
            Some((before, count)) if before == at => Some((at, count + 1)),
            Some((before, _)) if before > at => return Err(ShapeFault::Field),
            _ => Some((at, 1)),
        };
    }
    Ok(Some(OutboxPage {
        total,
        last,
        count: records.len() as u64,
        next_request,
        has_all_restocks,
        restocks,
        ids,
        records,
        sku,
        ids_above,
    }))
}

/// Users of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Winners<'a>(Items<'a>);

impl Iterator for Winners<'_> {
    type Item = Result<UserId, ShapeFault>;

    /// Ends behind the first fault.
    fn next(&mut self) -> Option<Self::Item> {
        let user = self.0.next()?;
        let user = decimal(Some(user)).map(UserId);
        self.0.next()?; // the number of the reservation
        Some(user)
    }
}

/// Reads a snapshot of `sku`; `None`: it was never opened.
/// # Errors
/// What of the reply is not one.
pub fn page<'a>(sku: SkuKey, reply: &Value<'a>) -> Result<Option<Page<'a>>, ShapeFault> {
    let mut items = list(reply)?;
    match (code(items.next())?, items.len()) {
        (7, 0) => return Ok(None),
        (18, 23) => {}
        (7 | 18, _) => return Err(ShapeFault::Length),
        (other, _) => return Err(ShapeFault::Code(other)),
    }
    let version = within(integer(items.next())?, UNITS_MAX)?;
    let epoch = within(integer(items.next())?, UNITS_MAX)?;
    let sold_out = flag(integer(items.next())?)?;
    let open = flag(integer(items.next())?)?;
    let mode = mode(integer(items.next())?)?;
    let is_frozen = flag(integer(items.next())?)?;
    let policy = decimal(items.next())?;
    let quantity_max = integer(items.next())?;
    let once_per_activity = flag(integer(items.next())?)?;
    let mut units = [0; 5];
    for unit in &mut units {
        *unit = within(integer(items.next())?, UNITS_MAX)?;
    }
    let reservations = integer(items.next())?;
    let now = integer(items.next())?;
    let frozen = items.next().as_ref().and_then(Value::text);
    let frozen = frozen.ok_or(ShapeFault::Field)?;
    let cursor = decimal(items.next())?;
    let Some(Value::Array(winners)) = items.next() else {
        return Err(ShapeFault::Field);
    };
    if is_frozen == frozen.is_empty() || winners.len() % 2 != 0 {
        return Err(ShapeFault::Field);
    }
    let home = home_id(items.next())?;
    let fence = home_id(items.next())?;
    decimal(items.next())?; // since when, for operators
    let ordered_before = WallMs(decimal(items.next())?);
    Ok(Some(Page {
        state: SkuState {
            sku,
            open,
            mode,
            quantity_max: u32::try_from(quantity_max).map_err(|_| ShapeFault::Field)?,
            once_per_activity,
            books: books(units)?,
            epoch,
            sold_out,
            reservations: u32::try_from(reservations).map_err(|_| ShapeFault::Field)?,
        },
        version,
        policy,
        now: WallMs(u64::try_from(now).map_err(|_| ShapeFault::Field)?),
        frozen,
        cursor,
        winners: Winners(winners),
        home,
        fence,
        ordered_before,
    }))
}

fn home_id(value: Option<Value<'_>>) -> Result<HomeId, ShapeFault> {
    let text = value.as_ref().and_then(Value::text);
    let text = text.ok_or(ShapeFault::Field)?;
    if text.is_empty() {
        return Ok(HomeId::default());
    }
    HomeId::new(text).ok_or(ShapeFault::Field)
}
