//! What a script's reply says, strictly: the codes of `lua/README.md`, each with the fields and ranges that it has.
//!
//! Called by links with a reply that the scanner found whole, after they have dealt with errors that name a way on
//! (NOSCRIPT, MOVED ...). A reply of another shape is a fault of the connection: it may be the answer to something else.
//! Nothing panics on what a peer sends, nothing is allocated.

mod pages;
mod stream;

pub use stream::{Taken, TakenPage, taken};

use crate::ask::{Books, Held, LedgerAnswer, LedgerOp, Mode, ReservationState};
use crate::limits::{RESERVATIONS_MAX, UNITS_MAX};
use crate::order::contract::{Money, ORDER_MESSAGE_VERSION, OrderMessage};
use crate::redis::offer::{Offer, Offered};
use crate::time::WallMs;
pub use pages::{OutboxPage, Page, Winners, outbox, page};
use weir_proto::ids::{Nonce, RequestId, ReservationId, SkuKey, UserId};
use weir_proto::resp::{Items, Value};

/// How a reply is not what was asked for. The link closes; what was asked is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeFault {
    /// An error reply: what it means is the link's to say.
    Error,
    /// No list, one without a code, or one whose length is not its code's.
    Length,
    /// An element is of another type, or out of its range.
    Field,
    /// A code that no script has, or not this one.
    Code(i64),
    /// Books that do not balance.
    Books,
}

/// What kind of ask a reply answers: which codes it may have. One byte to remember per ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A reserve.
    Reserve,
    /// A lookup.
    Lookup,
    /// Confirm, settle, release, late payment.
    Move,
    /// Open, close, mode, restock.
    Ops,
}

impl Asked {
    /// The kind of `op`.
    pub const fn of(op: &LedgerOp) -> Self {
        match op {
            LedgerOp::Reserve(_) => Self::Reserve,
            LedgerOp::Lookup(_) => Self::Lookup,
            LedgerOp::Confirm(_)
            | LedgerOp::Settle(_)
            | LedgerOp::Release(_)
            | LedgerOp::PaidLate(_) => Self::Move,
            LedgerOp::Open(_)
            | LedgerOp::Close(_)
            | LedgerOp::SetMode(_)
            | LedgerOp::Restock(_) => Self::Ops,
        }
    }

    const fn may_have(self, code: i64) -> bool {
        match self {
            Self::Reserve => matches!(code, 0..=10),
            Self::Lookup => matches!(code, 7 | 11 | 12),
            Self::Move => matches!(code, 13..=15),
            Self::Ops => matches!(code, 4 | 7..=10 | 16),
        }
    }
}

/// Why a mode was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The operator's mode.
    Mode,
    /// The SKU is frozen.
    Frozen,
    /// This instance's policy is older than the SKU's: it must load the new one.
    OldPolicy,
}

/// A decision of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided<'a> {
    /// The answer to the ask.
    pub answer: LedgerAnswer,
    /// With `Granted`, when, by the clock of Redis.
    pub granted_at: Option<WallMs>,
    /// With `Repeated` and `Found`, the whole record; [`offer`] reads it.
    pub record: Option<&'a [u8]>,
    /// This grant took the last unit, and the SKU is sold out in that epoch from now on.
    pub sells_out: Option<u64>,
    /// With `ModeRefused`, why.
    pub pause: Option<Pause>,
}

/// What reopen, freeze and thaw come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// The epoch after it.
    pub epoch: u64,
    /// The version of what is shown after it.
    pub version: u64,
    /// False when there was nothing to do.
    pub changed: bool,
}

/// Integers of a reply behind its code; more than any code has.
const FIELDS_MAX: usize = 6;

/// The code and fields of a reply that has integers only, but for a record at the end of some.
struct Fields<'a> {
    code: i64,
    fields: [i64; FIELDS_MAX],
    record: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn read(reply: &Value<'a>, len_of: fn(i64) -> Option<usize>) -> Result<Self, ShapeFault> {
        let mut items = list(reply)?;
        let code = integer(items.next())?;
        let len = len_of(code).ok_or(ShapeFault::Code(code))?;
        if items.len() != len {
            return Err(ShapeFault::Length);
        }
        let has_record = matches!((code, len), (1 | 11, 4));
        let mut fields = [0; FIELDS_MAX];
        for field in fields.iter_mut().take(len - usize::from(has_record)) {
            *field = integer(items.next())?;
        }
        let record = match items.next() {
            None => None,
            Some(Value::Bulk(record)) => Some(record),
            Some(_) => return Err(ShapeFault::Field),
        };
        Ok(Self {
            code,
            fields,
            record,
        })
    }

    fn within(&self, at: usize, most: u64) -> Result<u64, ShapeFault> {
        within(self.fields[at], most)
    }

    fn held(&self, ids_above: u64) -> Result<Held, ShapeFault> {
        let number = self.within(0, RESERVATIONS_MAX)?;
        let quantity = u32::try_from(self.fields[2]).map_err(|_| ShapeFault::Field)?;
        if number == 0 || quantity == 0 {
            return Err(ShapeFault::Field);
        }
        let reservation = ids_above.checked_add(number).ok_or(ShapeFault::Field)?;
        Ok(Held {
            reservation: ReservationId(reservation),
            state: state(self.fields[1])?,
            quantity,
        })
    }

    fn books(&self) -> Result<Books, ShapeFault> {
        let mut units = [0; 5];
        for (at, unit) in units.iter_mut().enumerate() {
            *unit = self.within(at, UNITS_MAX)?;
        }
        books(units)
    }
}

/// Fields behind each code of a step of the ledger.
fn fields_of_answer(code: i64) -> Option<usize> {
    match code {
        0 => Some(6),
        1 | 11 => Some(4),
        3 | 13 | 14 => Some(3),
        2 => Some(1),
        8 => Some(2),
        4..=7 | 9 | 10 | 12 | 15 => Some(0),
        16 => Some(5),
        _ => None,
    }
}

fn fields_of_step(code: i64) -> Option<usize> {
    match code {
        7 => Some(0),
        17 => Some(3),
        _ => None,
    }
}

fn fields_of_offer(code: i64) -> Option<usize> {
    match code {
        3 | 11 | 13 => Some(3),
        7 | 9 => Some(0),
        _ => None,
    }
}

/// Reads what an offer came to.
/// # Errors
/// What of the reply is not that.
pub fn offered(reply: &Value<'_>) -> Result<Offered, ShapeFault> {
    let found = Fields::read(reply, fields_of_offer)?;
    Ok(match found.code {
        7 => Offered::Nowhere,
        13 if state(found.fields[1])? == ReservationState::Failed => Offered::Revoked,
        11 | 13 => Offered::Stands,
        _ => Offered::Later,
    })
}

/// Reads the answer to an ask of the ledger; `ids_above` as in its [`StepPlan`](super::step::StepPlan).
/// # Errors
/// What of the reply is not of the codes that this kind of ask has.
pub fn answer<'a>(
    asked: Asked,
    ids_above: u64,
    reply: &Value<'a>,
) -> Result<Decided<'a>, ShapeFault> {
    let found = Fields::read(reply, fields_of_answer)?;
    if !asked.may_have(found.code) {
        return Err(ShapeFault::Code(found.code));
    }
    let held = || found.held(ids_above);
    let mut decided = Decided {
        answer: LedgerAnswer::NotOpen,
        granted_at: None,
        record: found.record,
        sells_out: None,
        pause: None,
    };
    decided.answer = match found.code {
        0 => {
            let epoch = found.within(3, UNITS_MAX)?;
            decided.sells_out = flag(found.fields[4])?.then_some(epoch);
            let at = u64::try_from(found.fields[5]).map_err(|_| ShapeFault::Field)?;
            decided.granted_at = Some(WallMs(at));
            LedgerAnswer::Granted(granted(held()?)?)
        }
        1 => LedgerAnswer::Repeated(held()?),
        2 => LedgerAnswer::SoldOut {
            epoch: found.within(0, UNITS_MAX)?,
        },
        3 => LedgerAnswer::AlreadyHolds(held()?),
        4 => LedgerAnswer::RequestIdConflict,
        5 => LedgerAnswer::ReplayRejected,
        6 => LedgerAnswer::Tombstoned,
        7 => LedgerAnswer::NotOpen,
        8 => {
            decided.pause = Some(match found.fields[1] {
                0 => Pause::Mode,
                1 => Pause::Frozen,
                2 => Pause::OldPolicy,
                _ => return Err(ShapeFault::Field),
            });
            LedgerAnswer::ModeRefused(mode(found.fields[0])?)
        }
        9 => LedgerAnswer::QuantityRefused,
        10 => LedgerAnswer::TableFull,
        11 => LedgerAnswer::Found(held()?),
        12 => LedgerAnswer::NotFound,
        13 => LedgerAnswer::Now(held()?),
        14 => LedgerAnswer::StepRefused(held()?),
        15 => LedgerAnswer::NoReservation,
        16 => LedgerAnswer::OpsDone(found.books()?),
        other => return Err(ShapeFault::Code(other)),
    };
    Ok(decided)
}

/// Reads what a reopen, freeze or thaw came to; `None`: the SKU was never opened.
/// # Errors
/// What of the reply is not that.
pub fn stepped(reply: &Value<'_>) -> Result<Option<Stepped>, ShapeFault> {
    let found = Fields::read(reply, fields_of_step)?;
    if found.code == 7 {
        return Ok(None);
    }
    Ok(Some(Stepped {
        epoch: found.within(0, UNITS_MAX)?,
        version: found.within(1, UNITS_MAX)?,
        changed: flag(found.fields[2])?,
    }))
}

/// Reads a record of `sku` as an offer of what it says.
/// # Errors
/// It is none.
pub fn offer(
    sku: SkuKey,
    id: ReservationId,
    ids_above: u64,
    record: &[u8],
) -> Result<Offer, ShapeFault> {
    let number = id.0.saturating_sub(ids_above);
    let (message, state) = reservation(sku, ids_above, number, record)?;
    let nonce = record.rsplit(|&byte| byte == b' ').next();
    Ok(Offer {
        message,
        nonce: nonce.filter(|nonce| *nonce != b"-").and_then(Nonce::new),
        state,
    })
}

/// A record as `reserve` writes it: state, quantity, granted at, moved at, user, price, currency, request id, nonce.
///
/// `number`: its field in the HASH of reservations; `ids_above`: of the SKU, see `StepPlan`.
/// # Errors
/// What of the record is not one.
pub fn reservation(
    sku: SkuKey,
    ids_above: u64,
    number: u64,
    record: &[u8],
) -> Result<(OrderMessage, ReservationState), ShapeFault> {
    let mut fields = record.split(|&byte| byte == b' ');
    let mut next = || fields.next().ok_or(ShapeFault::Length);
    let digits = |text: &[u8]| decimal(Some(Value::Bulk(text)));
    let state = state(digits(next()?)? as i64)?; // not one of six is none
    let quantity = u32::try_from(digits(next()?)?).map_err(|_| ShapeFault::Field)?;
    let granted_at = digits(next()?)?;
    let _moved_at = digits(next()?)?;
    let user = digits(next()?)?;
    let minor = digits(next()?)?;
    let currency = <[u8; 3]>::try_from(next()?).map_err(|_| ShapeFault::Field)?;
    let request_id = RequestId::new(next()?).ok_or(ShapeFault::Field)?;
    if number == 0 || number > RESERVATIONS_MAX || quantity == 0 {
        return Err(ShapeFault::Field);
    }
    let message = OrderMessage {
        version: ORDER_MESSAGE_VERSION,
        reservation: ReservationId(ids_above.checked_add(number).ok_or(ShapeFault::Field)?),
        sku,
        user: UserId(user),
        quantity,
        request_id,
        unit_price: Money { minor, currency },
        reserved_at: WallMs(granted_at),
    };
    Ok((message, state))
}

fn list<'a>(reply: &Value<'a>) -> Result<Items<'a>, ShapeFault> {
    match reply {
        Value::Array(items) => Ok(items.clone()),
        Value::Error(_) => Err(ShapeFault::Error),
        _ => Err(ShapeFault::Length),
    }
}

/// What a reply begins with: without it, it is none of a script.
fn code(value: Option<Value<'_>>) -> Result<i64, ShapeFault> {
    match value {
        Some(Value::Integer(code)) => Ok(code),
        _ => Err(ShapeFault::Length),
    }
}

fn integer(value: Option<Value<'_>>) -> Result<i64, ShapeFault> {
    match value {
        Some(Value::Integer(integer)) => Ok(integer),
        Some(_) => Err(ShapeFault::Field),
        None => Err(ShapeFault::Length),
    }
}

/// A number that travels as a text.
fn decimal(value: Option<Value<'_>>) -> Result<u64, ShapeFault> {
    let text = value.as_ref().and_then(Value::text);
    let text = text.filter(|text| text.iter().all(u8::is_ascii_digit)); // `parse` takes a plus, too
    let text = text.and_then(|text| core::str::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok())
        .ok_or(ShapeFault::Field)
}

fn within(value: i64, most: u64) -> Result<u64, ShapeFault> {
    let value = u64::try_from(value).ok();
    value
        .filter(|&value| value <= most)
        .ok_or(ShapeFault::Field)
}

fn flag(value: i64) -> Result<bool, ShapeFault> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ShapeFault::Field),
    }
}

fn mode(value: i64) -> Result<Mode, ShapeFault> {
    match value {
        0 => Ok(Mode::Normal),
        1 => Ok(Mode::Degraded),
        2 => Ok(Mode::QueueOnly),
        3 => Ok(Mode::Closed),
        _ => Err(ShapeFault::Field),
    }
}

fn state(value: i64) -> Result<ReservationState, ShapeFault> {
    use ReservationState::{Closed, Confirmed, Failed, PaidLate, Reserved, Settled};
    match value {
        0 => Ok(Reserved),
        1 => Ok(Confirmed),
        2 => Ok(Settled),
        3 => Ok(Closed),
        4 => Ok(Failed),
        5 => Ok(PaidLate),
        _ => Err(ShapeFault::Field),
    }
}

fn granted(held: Held) -> Result<Held, ShapeFault> {
    if held.state == ReservationState::Reserved {
        Ok(held)
    } else {
        Err(ShapeFault::Field)
    }
}

fn books([total, free, held, sold, quarantined]: [u64; 5]) -> Result<Books, ShapeFault> {
    let books = Books {
        total,
        free,
        held,
        sold,
        quarantined,
    };
    if books.balance() {
        Ok(books)
    } else {
        Err(ShapeFault::Books)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use weir_proto::ids::{ActivityId, SkuId};
    use weir_proto::resp::read;

    fn integers(list: &[i64]) -> String {
        let items: String = list.iter().map(|item| format!(":{item}\r\n")).collect();
        format!("*{}\r\n{items}", list.len())
    }

    fn told(asked: Asked, list: &[i64]) -> Result<LedgerAnswer, ShapeFault> {
        let mut reply = integers(list);
        if matches!(list, [1 | 11, _, _, _]) {
            reply = reply.replacen("*4", "*5", 1) + "$1\r\nr\r\n";
        }
        answer(asked, 100, &read(reply.as_bytes())).map(|decided| decided.answer)
    }

    const HELD: Held = Held {
        reservation: ReservationId(107),
        state: ReservationState::Confirmed,
        quantity: 2,
    };

    #[test]
    fn each_code_is_its_answer() {
        let granted = integers(&[0, 7, 0, 2, 5, 1, 99]);
        let decided = answer(Asked::Reserve, 100, &read(granted.as_bytes())).unwrap();
        let held = Held {
            state: ReservationState::Reserved,
            ..HELD
        };
        assert_eq!(decided.answer, LedgerAnswer::Granted(held));
        assert_eq!(decided.sells_out, Some(5));
        let frozen = integers(&[8, 2, 1]);
        let decided = answer(Asked::Reserve, 100, &read(frozen.as_bytes())).unwrap();
        assert_eq!(decided.answer, LedgerAnswer::ModeRefused(Mode::QueueOnly));
        assert_eq!(decided.pause, Some(Pause::Frozen));
        for (asked, list, wanted) in [
            (
                Asked::Reserve,
                &[1, 7, 1, 2][..],
                LedgerAnswer::Repeated(HELD),
            ),
            (Asked::Reserve, &[2, 9], LedgerAnswer::SoldOut { epoch: 9 }),
            (
                Asked::Reserve,
                &[3, 7, 1, 2],
                LedgerAnswer::AlreadyHolds(HELD),
            ),
            (Asked::Reserve, &[6], LedgerAnswer::Tombstoned),
            (Asked::Lookup, &[11, 7, 1, 2], LedgerAnswer::Found(HELD)),
            (Asked::Lookup, &[12], LedgerAnswer::NotFound),
            (Asked::Move, &[13, 7, 1, 2], LedgerAnswer::Now(HELD)),
            (Asked::Move, &[15], LedgerAnswer::NoReservation),
            (Asked::Ops, &[10], LedgerAnswer::TableFull),
        ] {
            assert_eq!(told(asked, list), Ok(wanted));
        }
    }

    #[test]
    fn another_shape_is_a_fault_and_never_an_answer() {
        let other = |asked, list: &[i64]| told(asked, list).unwrap_err();
        // Codes of another script: the reply of another ask.
        assert_eq!(other(Asked::Lookup, &[5]), ShapeFault::Code(5));
        assert_eq!(other(Asked::Reserve, &[12]), ShapeFault::Code(12));
        assert_eq!(other(Asked::Move, &[7]), ShapeFault::Code(7));
        assert_eq!(
            other(Asked::Ops, &[0, 1, 0, 1, 1, 0, 9]),
            ShapeFault::Code(0)
        );
        assert_eq!(other(Asked::Reserve, &[19]), ShapeFault::Code(19));
        assert_eq!(other(Asked::Reserve, &[-1]), ShapeFault::Code(-1));
        assert_eq!(other(Asked::Reserve, &[]), ShapeFault::Length);
        assert_eq!(other(Asked::Reserve, &[5, 1]), ShapeFault::Length);
        assert_eq!(other(Asked::Reserve, &[2]), ShapeFault::Length);
        let above = RESERVATIONS_MAX as i64 + 1;
        for list in [
            [1, 0, 1, 2],
            [1, above, 1, 2],
            [1, -7, 1, 2],
            [1, 7, 6, 2],
            [1, 7, 1, 0],
            [1, 7, 1, 1 << 32],
        ] {
            assert_eq!(other(Asked::Reserve, &list), ShapeFault::Field, "{list:?}");
        }
        let granted_and_paid = [0, 7, 2, 2, 5, 0, 99];
        assert_eq!(other(Asked::Reserve, &granted_and_paid), ShapeFault::Field);
        let unbalanced = [16, 10, 5, 5, 1, 0];
        assert_eq!(other(Asked::Ops, &unbalanced), ShapeFault::Books);
        for bytes in [
            "+OK\r\n",
            ":1\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*1\r\n$1\r\n5\r\n",
        ] {
            let fault = answer(Asked::Reserve, 0, &read(bytes.as_bytes()));
            assert!(fault.is_err(), "{bytes:?}");
        }
        let error = answer(Asked::Reserve, 0, &read(b"-OOM command not allowed\r\n"));
        assert_eq!(error, Err(ShapeFault::Error));
    }

    #[test]
    fn a_page_is_read_whole_or_not_at_all() {
        let sku = SkuKey {
            activity: ActivityId(1),
            sku: SkuId(2),
        };
        let whole = "*24\r\n:18\r\n:7\r\n:3\r\n:1\r\n:1\r\n:2\r\n:1\r\n$1\r\n4\r\n:2\r\n:0\r\n:5\r\n:0\r\n:3\r\n:2\r\n:0\r\n\
                     :9\r\n:1796066274335\r\n$8\r\nfailover\r\n$2\r\n17\r\n*4\r\n$1\r\n7\r\n$1\r\n1\r\n$1\r\n8\r\n$1\r\n2\r\n\
                     $3\r\nr:s\r\n$0\r\n\r\n$1\r\n0\r\n$2\r\n99\r\n";
        let found = page(sku, &read(whole.as_bytes())).unwrap().unwrap();
        assert_eq!((found.version, found.policy, found.cursor), (7, 4, 17));
        assert_eq!(found.state.books.held, 3);
        assert_eq!(found.frozen, b"failover");
        let users: Result<alloc::vec::Vec<UserId>, ShapeFault> = found.winners.collect();
        assert_eq!(users, Ok(alloc::vec![UserId(7), UserId(8)]));
        for (good, bad) in [
            (":18\r\n", ":17\r\n"),
            (":1796066274335", ":-1"),
            ("$2\r\n17", "$2\r\n+7"),
            ("$8\r\nfailover", "$0\r\n"),
            (":5\r\n:0", ":6\r\n:0"),
            (":2\r\n:1\r\n$1", ":4\r\n:1\r\n$1"),
        ] {
            assert!(whole.contains(good), "{good}");
            let altered = whole.replacen(good, bad, 1);
            assert!(page(sku, &read(altered.as_bytes())).is_err(), "{bad}");
        }
        assert_eq!(page(sku, &read(b"*1\r\n:7\r\n")), Ok(None));
    }
}
