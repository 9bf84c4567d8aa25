//! The whole ledger as it stands in Redis, and what there contradicts itself; held against the orders by two looks, so
//! that nobody needs to stop selling.
//!
//! Called by `weir reconcile`, `weir demo` and tests. What a look saw and the next one does not was under way. Books are
//! held against the records at the moment between two readings of these: a record that both readings saw alike stood so
//! at that moment, the others may be counted either way ([`Slack`]).

use super::fault::Why;
use super::nodes::Nodes;
use super::shelf::{self, Shelf};
use super::{REDIS_LEDGER, RedisError, fault_of};
use crate::config::RedisPlan;
use crate::orders::facts::{LedgerFacts, Odd, RedisSide, Slack};
use crate::orders::report::{Kind, Report};
use crate::orders::schema::{self, OpenError};
use crate::orders::{facts, reconcile};
use rusqlite::OptionalExtension;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use weir_core::ask::ReservationState;
use weir_proto::ids::{ReservationId, SkuKey};

/// Looks at a ledger that moves, at most.
const LOOKS_MAX: u32 = 3;
/// Between two looks: what is under way has arrived then.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of a reservation to its state and units.
type Seen = BTreeMap<SkuKey, BTreeMap<u64, (ReservationState, u64)>>;

/// Why there is no report.
#[derive(Debug)]
pub enum BooksError {
    /// Redis.
    Redis(RedisError),
    /// The order store.
    Orders(OpenError),
}

impl BooksError {
    /// True when Redis cannot be asked at present, which may pass.
    pub const fn is_away(&self) -> bool {
        matches!(self, Self::Redis(error) if error.is_away())
    }
}

impl fmt::Display for BooksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(error) => error.fmt(f),
            Self::Orders(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BooksError {}

impl From<RedisError> for BooksError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// Compares the ledger of `plan` with the order store at `orders`, which may both be at work; changes nothing. Gives what
/// the report was made of, too.
///
/// # Errors
/// One of them cannot be read, or the orders are those of an embedded ledger.
pub fn compare(plan: &RedisPlan, orders: &Path) -> Result<(LedgerFacts, Report), BooksError> {
    let of_sql = |error| BooksError::Orders(OpenError::of_sqlite(orders, error));
    let mut nodes = Nodes::reach(plan)?;
    let (mut seen, mut earlier) = (Seen::new(), None::<Report>);
    for look in 1.. {
        let (mut facts, is_still) = read(&mut nodes, plan, &mut seen)?;
        let connection = schema::open_to_read(orders).map_err(BooksError::Orders)?;
        let sql = "SELECT value FROM meta WHERE key = 'ledger_id'";
        let id = connection.query_row(sql, [], |row| row.get(0)).optional();
        if id
            .map_err(of_sql)?
            .is_some_and(|id: i64| id != REDIS_LEDGER)
        {
            return Err(fault_of(plan, Why::Embedded).into());
        }
        if let Some(redis) = &mut facts.redis {
            note_slack(redis);
        }
        let mut report = reconcile::look(&facts, &connection).map_err(of_sql)?;
        if let Some(earlier) = &earlier {
            report.keep_lasting(earlier);
        }
        let is_judged = is_still || look > 1;
        if (report.balanced && is_judged) || (is_still && look > 1) || look == LOOKS_MAX {
            report.shorten();
            return Ok((facts, report));
        }
        earlier = Some(report);
        std::thread::sleep(PAUSE);
    }
    unreachable!("the last look returns")
}

/// Reads every SKU, and says whether nothing was written to any of them meanwhile.
fn read(
    nodes: &mut Nodes<'_>,
    plan: &RedisPlan,
    seen: &mut Seen,
) -> Result<(LedgerFacts, bool), RedisError> {
    let (mut facts, mut redis) = (LedgerFacts::default(), RedisSide::default());
    let mut is_still = true;
    for steps in &plan.steps {
        let sku = steps.sku;
        let Some(shelf) = shelf::read(nodes, *steps)? else {
            redis.skus.insert(sku);
            redis.absent.insert(sku);
            continue;
        };
        if shelf.is_over() {
            redis.notes.push(format!(
                "activity {}, SKU {}: the time for which its history is kept is over, Redis has the books only: {:?}",
                sku.activity, sku.sku, shelf.behind.books
            ));
            continue;
        }
        let now_seen: BTreeMap<_, _> = shelf.records.iter().map(brief).collect();
        let before = seen.insert(sku, now_seen);
        is_still &= shelf.is_still;
        if !shelf.is_still {
            let slack = before.map_or(Slack::UNKNOWN, |before| shelf.slack(&before));
            redis.slack.insert(sku, slack);
        }
        redis.skus.insert(sku);
        redis.in_stream += shelf.messages_count;
        redis
            .makers
            .extend(shelf.behind.maker.map(|maker| (sku, maker)));
        shelf.find_odd(&mut redis);
        facts.books.insert(sku, shelf.before.books);
        let records = shelf.records.into_values();
        let records =
            records.map(|record| (record.message.reservation, (record.message, record.state)));
        facts.reservations.extend(records);
    }
    facts.redis = Some(redis);
    Ok((facts, is_still))
}

fn brief((number, record): (&u64, &shelf::Record)) -> (u64, (ReservationState, u64)) {
    let quantity = u64::from(record.message.quantity);
    (*number, (record.state, quantity))
}

fn note_slack(redis: &mut facts::RedisSide) {
    for (sku, slack) in &redis.slack {
        let words = match *slack {
            Slack::UNKNOWN => continue, // there is another look
            Slack { held: 0, sold: 0 } => continue,
            Slack { held, sold } => format!(
                "activity {}, SKU {} sold while it was read: its books could be held against its reservations up to {held} held and {sold} sold units",
                sku.activity, sku.sku
            ),
        };
        redis.notes.push(words);
    }
}

impl Shelf {
    /// Everything but the books went with its time to live.
    fn is_over(&self) -> bool {
        self.records.is_empty() && self.behind.keep_ms.is_some_and(|keep| keep <= self.time_ms)
    }

    /// How many units may have been counted otherwise when the state was read, which was behind the reading of
    /// `earlier` and before that of this.
    fn slack(&self, earlier: &BTreeMap<u64, (ReservationState, u64)>) -> Slack {
        let mut slack = Slack::default();
        let mut count = |units: u64, states: [Option<ReservationState>; 2]| {
            let [from, to] = states;
            if from == to {
                return;
            }
            let is_sold = |state| state == Some(ReservationState::Settled);
            let was_or_is_held = [from, to].into_iter().flatten().any(|state| {
                matches!(
                    state,
                    ReservationState::Reserved | ReservationState::Confirmed
                )
            });
            // One that came between the two readings was held, if only for a moment.
            if was_or_is_held || from.is_none() {
                slack.held += units;
            }
            if is_sold(from) != is_sold(to) {
                slack.sold += units;
            }
        };
        for (number, record) in &self.records {
            let before = earlier.get(number).map(|(state, _)| *state);
            count(
                u64::from(record.message.quantity),
                [before, Some(record.state)],
            );
        }
        for (number, (state, units)) in earlier {
            if !self.records.contains_key(number) {
                count(*units, [Some(*state), None]);
            }
        }
        slack
    }

    fn id(&self, number: u64) -> ReservationId {
        ReservationId(self.plan.ids_above.saturating_add(number))
    }

    /// What contradicts itself.
    fn find_odd(&self, redis: &mut RedisSide) {
        let sku = self.plan.sku;
        let mut odd = |kind, number: Option<u64>, what: String| {
            let reservation = number.map(|number| self.id(number));
            redis.odd.push(Odd {
                kind,
                sku,
                reservation,
                what,
            });
        };
        self.find_odd_state(&mut odd);
        self.find_odd_pending(&mut odd);
        self.find_odd_indexes(&mut odd);
        match &self.messages {
            Some(_) => self.find_odd_messages(&mut odd),
            None => redis.notes.push(format!(
                "activity {}, SKU {}: the user of redis.user lacks +xrange, so the messages in the outbox stream were counted and not compared",
                sku.activity, sku.sku
            )),
        }
        if self.behind.fence.is_empty() && self.behind.home != self.home {
            redis.notes.push(format!(
                "activity {}, SKU {}: Redis was restarted or replaced since it was sold there; before the next reservation weir fences and mends it",
                sku.activity, sku.sku
            ));
        }
    }

    fn find_odd_state(&self, odd: &mut impl FnMut(Kind, Option<u64>, String)) {
        if !self.behind.fence.is_empty() {
            let what = "fenced after a failover, and not mended yet: it sells nothing".to_owned();
            odd(Kind::SkuFenced, None, what);
        }
        let last = self.records.keys().next_back().copied().unwrap_or(0);
        let next = self.behind.next;
        if last >= next {
            let what = format!("there is number {last}, and the next one would be {next}");
            odd(Kind::NumberingDiffers, Some(last), what);
        }
        let (records, counted) = (self.records.len() as u64, self.behind.reservations);
        if self.is_still && records != counted {
            let what = format!("{records} records, {counted} counted");
            odd(Kind::NumberingDiffers, None, what);
        }
    }

    fn find_odd_pending(&self, odd: &mut impl FnMut(Kind, Option<u64>, String)) {
        for number in &self.pending {
            let what = match self.records.get(number) {
                None => "pending, and there is no record".to_owned(),
                Some(record) if record.state != ReservationState::Reserved => {
                    format!("pending, and the record says {:?}", record.state)
                }
                Some(_) => continue,
            };
            odd(Kind::PendingDiffers, Some(*number), what);
        }
        for (number, record) in &self.records {
            if record.state == ReservationState::Reserved && !self.pending.contains(number) {
                let what = "the record says Reserved, and it is not pending".to_owned();
                odd(Kind::PendingDiffers, Some(*number), what);
            }
        }
    }

    /// A nonce that was spent before a failover may name another reservation; a user that holds nothing may, too.
    fn find_odd_indexes(&self, odd: &mut impl FnMut(Kind, Option<u64>, String)) {
        let of = |number: Option<&u64>| match number {
            None => "nothing".to_owned(),
            Some(number) => self.id(*number).to_string(),
        };
        for (number, record) in &self.records {
            let (user, request) = (record.message.user.0, &record.message.request_id);
            let name = [user.to_string().as_bytes(), b":", request.as_bytes()].concat();
            let named = self.requests.get(&name);
            if named != Some(number) {
                let what = format!("the index of requests names {} for its request", of(named));
                odd(Kind::IndexDiffers, Some(*number), what);
            }
            let nonce = record.nonce.as_ref();
            if nonce.is_some_and(|nonce| !self.nonces.contains_key(nonce)) {
                let what = "the index of nonces lacks its nonce".to_owned();
                odd(Kind::IndexDiffers, Some(*number), what);
            }
            let named = self.users.get(&user);
            if record.state.is_live() && named != Some(number) {
                let what = format!("it is live, and the index of users names {}", of(named));
                odd(Kind::IndexDiffers, Some(*number), what);
            }
        }
        let indexes = [
            ("requests", self.requests.values()),
            ("nonces", self.nonces.values()),
        ];
        let of_users = self.users.values().map(|number| ("users", number));
        let all = indexes.into_iter();
        let all = all.flat_map(|(name, numbers)| numbers.map(move |number| (name, number)));
        for (name, number) in all.chain(of_users) {
            if !self.records.contains_key(number) {
                let what = format!("the index of {name} names it, and there is no record");
                odd(Kind::IndexDiffers, Some(*number), what);
            }
        }
    }

    fn find_odd_messages(&self, odd: &mut impl FnMut(Kind, Option<u64>, String)) {
        for message in self.messages.iter().flatten() {
            let what = match self.records.get(&message.number) {
                None => "a message of the outbox names it, and there is no record",
                Some(record)
                    if (record.message.user.0, u64::from(record.message.quantity))
                        != (message.user, message.quantity) =>
                {
                    "a message of the outbox has another user or quantity than the record"
                }
                Some(_) => continue,
            };
            odd(Kind::MessageDiffers, Some(message.number), what.to_owned());
        }
    }
}
