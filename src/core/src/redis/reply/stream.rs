//! What `take` answers: messages of a SKU's stream, and how reservations stand.

use super::{ShapeFault, code, decimal, integer, list, within};
use crate::limits::{RESERVATIONS_MAX, UNITS_MAX};
use crate::order::contract::{Money, OrderMessage};
use crate::redis::step::StreamId;
use crate::time::WallMs;
use alloc::vec::Vec;
use weir_proto::ids::{RequestId, ReservationId, SkuKey, UserId};
use weir_proto::resp::Value;

/// What a take came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Taken {
    /// The SKU was never opened.
    NotOpen,
    /// Another store makes the orders, or a later run of this one.
    Elsewhere,
    /// Messages.
    Page(TakenPage),
}

/// Messages that were taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TakenPage {
    /// All units ever put on sale.
    pub total: u64,
    /// New ones, and those that were handed out before.
    pub messages: Vec<(StreamId, OrderMessage)>,
    /// Entries that are no order messages.
    pub unreadable: Vec<StreamId>,
    /// Where the claim goes on; `None`: it was the last page, or nothing was claimed.
    pub claim_next: Option<StreamId>,
    /// Of each reservation that was to be looked at: true while it has no order.
    pub waits: Vec<bool>,
}

/// Reads the reply to `take` of `sku`.
/// # Errors
/// What of the reply is not one.
pub fn taken(sku: SkuKey, ids_above: u64, reply: &Value<'_>) -> Result<Taken, ShapeFault> {
    let mut items = list(reply)?;
    match (code(items.next())?, items.len()) {
        (7, 0) => return Ok(Taken::NotOpen),
        (21, 2) => return Ok(Taken::Elsewhere),
        (20, 4) => {}
        (7 | 20 | 21, _) => return Err(ShapeFault::Length),
        (other, _) => return Err(ShapeFault::Code(other)),
    }
    let mut page = TakenPage {
        total: within(integer(items.next())?, UNITS_MAX)?,
        ..TakenPage::default()
    };
    let reader = Reader { sku, ids_above };
    let claimed = items.next().ok_or(ShapeFault::Length)?;
    if claimed != Value::Null {
        // The next cursor and the entries; from Redis 7 on also those that are gone.
        let mut parts = list(&claimed)?;
        let next = stream_id(&parts.next().ok_or(ShapeFault::Length)?)?;
        page.claim_next = (next != StreamId::default()).then_some(next);
        let entries = parts.next().ok_or(ShapeFault::Length)?;
        reader.entries(&entries, &mut page)?;
    }
    let fresh = items.next().ok_or(ShapeFault::Length)?;
    if fresh != Value::Null {
        // Of each stream its name and its entries; there is one.
        let mut streams = list(&fresh)?;
        let mut only = list(&streams.next().ok_or(ShapeFault::Length)?)?;
        only.next().ok_or(ShapeFault::Length)?;
        let entries = only.next().ok_or(ShapeFault::Length)?;
        reader.entries(&entries, &mut page)?;
    }
    let records = items.next().ok_or(ShapeFault::Length)?;
    let is_reserved = |record: Value<'_>| record.text().is_some_and(|text| text.starts_with(b"0 "));
    page.waits = list(&records)?.map(is_reserved).collect();
    Ok(Taken::Page(page))
}

struct Reader {
    sku: SkuKey,
    ids_above: u64,
}

impl Reader {
    fn entries(&self, entries: &Value<'_>, into: &mut TakenPage) -> Result<(), ShapeFault> {
        for entry in list(entries)? {
            if entry == Value::Null {
                continue; // Redis 6.2: it was handed out and is gone
            }
            let mut parts = list(&entry)?;
            let id = stream_id(&parts.next().ok_or(ShapeFault::Length)?)?;
            let fields = parts.next().ok_or(ShapeFault::Length)?;
            match self.message(&fields) {
                Ok(message) => into.messages.push((id, message)),
                Err(_) => into.unreadable.push(id),
            }
        }
        Ok(())
    }

    /// As `reserve` appends it: names and values.
    fn message(&self, fields: &Value<'_>) -> Result<OrderMessage, ShapeFault> {
        let fields: Vec<Value<'_>> = list(fields)?.collect();
        let field = |name: &[u8]| {
            let mut pairs = fields.chunks_exact(2);
            let pair = pairs.find(|pair| pair[0].text() == Some(name));
            pair.map(|pair| pair[1].clone())
        };
        let number = |name| decimal(field(name));
        let text = |name| field(name).ok_or(ShapeFault::Field);
        let id = number(b"id")?;
        let quantity = u32::try_from(number(b"quantity")?).map_err(|_| ShapeFault::Field)?;
        if id == 0 || id > RESERVATIONS_MAX || quantity == 0 {
            return Err(ShapeFault::Field);
        }
        let (request_id, currency) = (text(b"request_id")?, text(b"currency")?);
        let request_id = request_id.text().and_then(RequestId::new);
        let currency = currency.text().and_then(|text| text.try_into().ok());
        Ok(OrderMessage {
            version: u16::try_from(number(b"v")?).map_err(|_| ShapeFault::Field)?,
            reservation: ReservationId(self.ids_above.checked_add(id).ok_or(ShapeFault::Field)?),
            sku: self.sku,
            user: UserId(number(b"user")?),
            quantity,
            request_id: request_id.ok_or(ShapeFault::Field)?,
            unit_price: Money {
                minor: number(b"minor")?,
                currency: currency.ok_or(ShapeFault::Field)?,
            },
            reserved_at: WallMs(number(b"at")?),
        })
    }
}

fn stream_id(value: &Value<'_>) -> Result<StreamId, ShapeFault> {
    let text = value.text().ok_or(ShapeFault::Field)?;
    let dash = text.iter().position(|&byte| byte == b'-');
    let (ms, seq) = text.split_at(dash.ok_or(ShapeFault::Field)?);
    let number = |digits| decimal(Some(Value::Bulk(digits)));
    Ok(StreamId {
        ms: number(ms)?,
        seq: number(&seq[1..])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use weir_proto::ids::{ActivityId, SkuId};
    use weir_proto::resp::read;

    const SKU: SkuKey = SkuKey {
        activity: ActivityId(1),
        sku: SkuId(1),
    };

    fn bulks(texts: &[&str]) -> String {
        let parts = texts
            .iter()
            .map(|text| format!("${}\r\n{text}\r\n", text.len()));
        format!("*{}\r\n{}", texts.len(), parts.collect::<String>())
    }

    fn entry(id: &str, number: &str) -> String {
        let fields = bulks(&[
            "v",
            "1",
            "id",
            number,
            "user",
            "7",
            "quantity",
            "2",
            "request_id",
            "req-00000001",
            "minor",
            "1990",
            "currency",
            "CNY",
            "at",
            "99",
        ]);
        format!("*2\r\n${}\r\n{id}\r\n{fields}", id.len())
    }

    #[test]
    fn claimed_and_new_messages_are_read_in_their_order() {
        let claimed = format!(
            "*3\r\n$3\r\n5-1\r\n*2\r\n{}*-1\r\n*0\r\n",
            entry("3-0", "11")
        );
        let fresh = format!("*1\r\n*2\r\n$1\r\nk\r\n*1\r\n{}", entry("9-4", "12"));
        let records = "*3\r\n$5\r\n0 2 9\r\n$5\r\n1 2 9\r\n$-1\r\n";
        let reply = format!("*5\r\n:20\r\n:100\r\n{claimed}{fresh}{records}");
        let Ok(Taken::Page(page)) = taken(SKU, 1_000, &read(reply.as_bytes())) else {
            panic!("{reply}")
        };
        let found: Vec<(u64, u64)> = page
            .messages
            .iter()
            .map(|(id, message)| (id.ms, message.reservation.0))
            .collect();
        assert_eq!(found, [(3, 1_011), (9, 1_012)]);
        assert_eq!(page.total, 100);
        assert_eq!(page.claim_next, Some(StreamId { ms: 5, seq: 1 }));
        assert_eq!(page.waits, [true, false, false]);
        assert_eq!(page.messages[0].1.unit_price.minor, 1_990);
    }

    #[test]
    fn an_entry_that_is_no_order_message_keeps_no_other_back() {
        let strange = format!("*2\r\n$3\r\n4-0\r\n{}", bulks(&["hello", "world"]));
        let zero = entry("5-0", "0");
        let fresh = format!(
            "*1\r\n*2\r\n$1\r\nk\r\n*4\r\n{}{strange}{zero}{}",
            entry("3-0", "11"),
            entry("6-0", "12")
        );
        let reply = format!("*5\r\n:20\r\n:100\r\n$-1\r\n{fresh}*0\r\n");
        let Ok(Taken::Page(page)) = taken(SKU, 1_000, &read(reply.as_bytes())) else {
            panic!("{reply}")
        };
        let found: Vec<u64> = page.messages.iter().map(|(id, _)| id.ms).collect();
        let strange: Vec<u64> = page.unreadable.iter().map(|id| id.ms).collect();
        assert_eq!((found, strange), ([3, 6].to_vec(), [4, 5].to_vec()));
    }

    #[test]
    fn nothing_and_refusals_are_told_apart() {
        let read_of = |reply: &str| taken(SKU, 0, &read(reply.as_bytes()));
        assert_eq!(read_of("*1\r\n:7\r\n"), Ok(Taken::NotOpen));
        assert_eq!(
            read_of("*3\r\n:21\r\n$1\r\n5\r\n$1\r\n1\r\n"),
            Ok(Taken::Elsewhere)
        );
        let empty = read_of("*5\r\n:20\r\n:3\r\n$-1\r\n$-1\r\n*0\r\n");
        let page = TakenPage {
            total: 3,
            ..TakenPage::default()
        };
        assert_eq!(empty, Ok(Taken::Page(page)));
        for wrong in [
            "*1\r\n:20\r\n",
            "*1\r\n:5\r\n",
            ":20\r\n",
            "*5\r\n:20\r\n:3\r\n:1\r\n$-1\r\n*0\r\n",
        ] {
            assert!(read_of(wrong).is_err(), "{wrong}");
        }
    }
}
