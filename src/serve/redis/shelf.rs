//! All that Redis has of one SKU, read by bounded pages with commands that change nothing. Called by [`super::books`].
//!
//! Others may write meanwhile. Indexes are read before the records that they name, so that a grant that comes between
//! is missing in an index and never in the records. The state is read before and behind all of it; each step of weir
//! sets its `now` to the time of Redis, so equal ones that are older than the reading say that nothing was written.

use super::RedisError;
use super::fault::Why;
use super::nodes::Nodes;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::ask::{Books, ReservationState};
use weir_core::order::contract::OrderMessage;
use weir_core::redis::reply;
use weir_core::redis::step::{SkuSteps, StepPlan};
use weir_proto::resp::{self, Value, key_slot};

/// Asked for at a time: a reply stays far below what the reader takes.
const PAGE: usize = 1000;
/// Reservations of one millisecond; more is none of ours.
const PAGE_MAX: usize = 16_000;
/// Messages have many parts.
const MESSAGES_PAGE: &[u8] = b"256";
/// How often a key is read anew because it moved to another node meanwhile.
const MOVES_MAX: u32 = 8;
/// The state, in the order in which it is asked for; the first eight are whole numbers.
const STATE: [&[u8]; 12] = [
    b"total",
    b"free",
    b"held",
    b"sold",
    b"quarantined",
    b"next",
    b"reservations",
    b"now",
    b"keep",
    b"home",
    b"fence",
    b"maker",
];

/// The state of a SKU, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub books: Books,
    /// Number of the next reservation.
    pub next: u64,
    pub reservations: u64,
    pub now_ms: u64,
    /// When the history goes; `None`: nothing was ever reserved.
    pub keep_ms: Option<u64>,
    pub home: Vec<u8>,
    pub fence: Vec<u8>,
    pub maker: Option<u64>,
}

/// A reservation.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub message: OrderMessage,
    pub state: ReservationState,
    pub nonce: Option<Vec<u8>>,
}

/// A message of the outbox, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub number: u64,
    pub user: u64,
    pub quantity: u64,
}

/// See the module.
pub(super) struct Shelf {
    pub plan: StepPlan,
    pub before: State,
    pub behind: State,
    /// Nothing was written while it was read.
    pub is_still: bool,
    /// The time of Redis.
    pub time_ms: u64,
    /// The name for itself of the server that has it.
    pub home: Vec<u8>,
    pub pending: BTreeSet<u64>,
    /// `None`: this user of Redis may not read them.
    pub messages: Option<Vec<Message>>,
    pub messages_count: u64,
    /// `user:request_id` to number.
    pub requests: BTreeMap<Vec<u8>, u64>,
    pub nonces: BTreeMap<Vec<u8>, u64>,
    pub users: BTreeMap<u64, u64>,
    pub records: BTreeMap<u64, Record>,
}

/// Reads a SKU; `None`: Redis does not have it.
///
/// # Errors
/// It cannot be asked, or what it holds is none of ours.
pub(super) fn read(nodes: &mut Nodes<'_>, plan: StepPlan) -> Result<Option<Shelf>, RedisError> {
    let steps = SkuSteps::new(plan);
    let slot = key_slot(steps.key("sku").as_bytes());
    let mut reader = Reader { nodes, steps, slot };
    let time_ms = reader.time_ms()?;
    let Some((before, _)) = reader.state()? else {
        return Ok(None);
    };
    let pending = reader.pending()?;
    let (messages, messages_count) = reader.messages()?;
    let requests = reader.index("req", |field| Some(field.to_vec()))?;
    let nonces = reader.index("nonce", |field| Some(field.to_vec()))?;
    let users = reader.index("user", decimal)?;
    let records = reader.records()?;
    let Some((behind, node)) = reader.state()? else {
        return Ok(None);
    };
    Ok(Some(Shelf {
        plan,
        is_still: before == behind && before.now_ms < time_ms,
        time_ms,
        home: reader.nodes.home(node).as_bytes().to_vec(),
        before,
        behind,
        pending,
        messages,
        messages_count,
        requests,
        nonces,
        users,
        records,
    }))
}

struct Reader<'r, 'n> {
    nodes: &'r mut Nodes<'n>,
    steps: SkuSteps,
    slot: u16,
}

impl Reader<'_, '_> {
    /// A command about a key of ours, which is a `wants`.
    fn ask(
        &mut self,
        command: &'static str,
        words: &[&[u8]],
        wants: &'static str,
    ) -> Result<super::nodes::Told, RedisError> {
        let told = self.nodes.ask(self.slot, command, words);
        let Err(error) = told else { return told };
        if !matches!(&error.why, Why::Refused { word, .. } if word == "WRONGTYPE") {
            return Err(error);
        }
        let key = String::from_utf8_lossy(words[1]).into_owned();
        let told = self
            .nodes
            .ask(self.slot, "TYPE", &[b"TYPE", key.as_bytes()])?;
        let is = resp::read(&told.reply);
        let is = String::from_utf8_lossy(is.text().unwrap_or_default()).into_owned();
        let why = Why::Foreign { key, is, wants };
        Err(RedisError { why, ..error })
    }

    fn not_ours(&self, name: &str) -> RedisError {
        self.nodes.fault(Why::Garbled(self.steps.key(name)))
    }

    fn no_redis(&self) -> RedisError {
        self.nodes.fault(Why::NoRedis)
    }

    fn time_ms(&mut self) -> Result<u64, RedisError> {
        let told = self.nodes.ask(self.slot, "TIME", &[b"TIME"])?;
        let parts = items(&resp::read(&told.reply)).unwrap_or_default();
        match &parts[..] {
            [Some(seconds), Some(micros)] => {
                let time = decimal(seconds).zip(decimal(micros));
                time.map(|(s, us)| s * 1000 + us / 1000)
            }
            _ => None,
        }
        .ok_or_else(|| self.no_redis())
    }

    /// And which node has it.
    fn state(&mut self) -> Result<Option<(State, usize)>, RedisError> {
        let key = self.steps.key("sku");
        let mut words: Vec<&[u8]> = vec![b"HMGET", key.as_bytes()];
        words.extend(STATE);
        let told = self.ask("HMGET", &words, "hash")?;
        let fields = items(&resp::read(&told.reply)).ok_or_else(|| self.no_redis())?;
        if fields.first().is_none_or(Option::is_none) {
            return Ok(None);
        }
        let number = |at: usize| decimal(fields.get(at)?.as_ref()?);
        let text = |at: usize| fields.get(at).cloned().flatten().unwrap_or_default();
        let numbers: Option<Vec<u64>> = (0..8).map(number).collect();
        let Some(
            &[
                total,
                free,
                held,
                sold,
                quarantined,
                next,
                reservations,
                now_ms,
            ],
        ) = numbers.as_deref()
        else {
            return Err(self.not_ours("sku"));
        };
        let state = State {
            books: Books {
                total,
                free,
                held,
                sold,
                quarantined,
            },
            next,
            reservations,
            now_ms,
            keep_ms: number(8),
            home: text(9),
            fence: text(10),
            maker: number(11),
        };
        Ok(Some((state, told.node)))
    }

    /// By time of grant. A page begins with the last time of the one before: what leaves meanwhile shifts nothing.
    fn pending(&mut self) -> Result<BTreeSet<u64>, RedisError> {
        let key = self.steps.key("pending");
        let (mut found, mut from, mut page) = (BTreeSet::new(), b"-inf".to_vec(), PAGE);
        loop {
            let count = page.to_string();
            let words: [&[u8]; 8] = [
                b"ZRANGEBYSCORE",
                key.as_bytes(),
                &from,
                b"+inf",
                b"WITHSCORES",
                b"LIMIT",
                b"0",
                count.as_bytes(),
            ];
            let told = self.ask("ZRANGEBYSCORE", &words, "zset")?;
            let list = items(&resp::read(&told.reply)).ok_or_else(|| self.no_redis())?;
            let mut last = Vec::new();
            for pair in list.chunks(2) {
                let [Some(number), Some(score)] = pair else {
                    return Err(self.not_ours("pending"));
                };
                found.insert(decimal(number).ok_or_else(|| self.not_ours("pending"))?);
                last.clone_from(score);
            }
            if list.len() < 2 * page {
                return Ok(found);
            }
            if last != from {
                from = last;
            } else if page < PAGE_MAX {
                page *= 2;
            } else {
                return Err(self.not_ours("pending"));
            }
        }
    }

    /// The messages, where this user may read them, and how many there are.
    fn messages(&mut self) -> Result<(Option<Vec<Message>>, u64), RedisError> {
        let key = self.steps.key("orders");
        let (mut found, mut from) = (Vec::new(), b"-".to_vec());
        loop {
            let words: [&[u8]; 6] = [
                b"XRANGE",
                key.as_bytes(),
                &from,
                b"+",
                b"COUNT",
                MESSAGES_PAGE,
            ];
            let told = match self.ask("XRANGE", &words, "stream") {
                Err(error) if matches!(&error.why, Why::Refused { word, .. } if word == "NOPERM") =>
                {
                    let told = self.ask("XLEN", &[b"XLEN", key.as_bytes()], "stream")?;
                    let Value::Integer(count) = resp::read(&told.reply) else {
                        return Err(self.no_redis());
                    };
                    return Ok((None, count.unsigned_abs()));
                }
                told => told?,
            };
            let Value::Array(entries) = resp::read(&told.reply) else {
                return Err(self.no_redis());
            };
            let mut last = None;
            for entry in entries {
                let id = id_of(&entry).ok_or_else(|| self.not_ours("orders"))?;
                last = Some(id);
                found.extend(message(&entry)); // what is none the worker removes
            }
            let Some(last) = last else {
                let count = found.len() as u64;
                return Ok((Some(found), count));
            };
            from = [b"(", &last[..]].concat();
        }
    }

    fn index<F: Ord>(
        &mut self,
        name: &'static str,
        field: impl Fn(&[u8]) -> Option<F>,
    ) -> Result<BTreeMap<F, u64>, RedisError> {
        self.hash(name, |key, value| Some((field(key)?, decimal(value)?)))
    }

    fn records(&mut self) -> Result<BTreeMap<u64, Record>, RedisError> {
        let (sku, above) = (self.steps.plan().sku, self.steps.plan().ids_above);
        self.hash("res", |number, record| {
            let number = decimal(number)?;
            let (message, state) = reply::reservation(sku, above, number, record).ok()?;
            let nonce = record.rsplit(|&byte| byte == b' ').next();
            let nonce = nonce.filter(|nonce| *nonce != b"-").map(<[u8]>::to_vec);
            let record = Record {
                message,
                state,
                nonce,
            };
            Some((number, record))
        })
    }

    /// A hash by HSCAN, which gives every field that stays there from its first page to its last. A cursor is one
    /// node's: where the next page comes from another one it begins anew.
    fn hash<F: Ord, V>(
        &mut self,
        name: &'static str,
        read: impl Fn(&[u8], &[u8]) -> Option<(F, V)>,
    ) -> Result<BTreeMap<F, V>, RedisError> {
        let (key, count) = (self.steps.key(name), PAGE.to_string());
        let (mut found, mut cursor, mut at) = (BTreeMap::new(), b"0".to_vec(), None);
        let mut moves = 0;
        loop {
            let words: [&[u8]; 5] = [
                b"HSCAN",
                key.as_bytes(),
                &cursor,
                b"COUNT",
                count.as_bytes(),
            ];
            let told = self.ask("HSCAN", &words, "hash")?;
            if at.replace(told.node).is_some_and(|at| at != told.node) {
                moves += 1;
                if moves > MOVES_MAX {
                    return Err(self.nodes.fault(Why::Moving(self.slot)));
                }
                cursor = b"0".to_vec();
                continue;
            }
            let Value::Array(mut parts) = resp::read(&told.reply) else {
                return Err(self.no_redis());
            };
            let next = parts
                .next()
                .and_then(|next| next.text().map(<[u8]>::to_vec));
            let page = parts.next().and_then(|page| items(&page));
            let (Some(next), Some(page)) = (next, page) else {
                return Err(self.no_redis());
            };
            for pair in page.chunks(2) {
                let [Some(field), Some(value)] = pair else {
                    return Err(self.not_ours(name));
                };
                found.extend([read(field, value).ok_or_else(|| self.not_ours(name))?]);
            }
            if next == b"0" {
                return Ok(found);
            }
            cursor = next;
        }
    }
}

/// The id of an entry of the stream.
fn id_of(entry: &Value<'_>) -> Option<Vec<u8>> {
    let Value::Array(parts) = entry else {
        return None;
    };
    Some(parts.clone().next()?.text()?.to_vec())
}

/// An entry of the stream: behind its id its fields and values in turn; `None`: it is no order message.
fn message(entry: &Value<'_>) -> Option<Message> {
    let Value::Array(parts) = entry else {
        return None;
    };
    let fields = items(&parts.clone().nth(1)?)?;
    let field = |name: &[u8]| {
        let mut pairs = fields.chunks(2);
        let pair = pairs.find(|pair| pair[0].as_deref() == Some(name))?;
        decimal(pair.get(1)?.as_ref()?)
    };
    Some(Message {
        number: field(b"id")?,
        user: field(b"user")?,
        quantity: field(b"quantity")?,
    })
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
