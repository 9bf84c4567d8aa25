//! What was promised, held against files and answers; each broken promise is a [`Finding`].

use super::limits::{LIMBO_MS, UNPAID_LONG_MS};
use super::told::{Told, may_follow};
use crate::orders::facts::LedgerFacts;
use crate::orders::{reconcile::reconcile, schema};
use crate::store::read_image;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weir_core::ask::{Books, ReservationState};
use weir_core::ledger::{LedgerConfig, recover};
use weir_core::sale::Sale;
use weir_proto::answer::{Code, RequestState};
use weir_proto::ids::{RequestId, ReservationId, UserId};

/// The ways of breaking a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sin {
    /// A grant that was told is gone or another one.
    LostGrant,
    /// A payment that was told is gone.
    LostPayment,
    /// A closing that was told is gone.
    LostClosing,
    /// An answer that ends a request was followed by another one.
    ChangedMind,
    /// A refusal was told that the state on the disk does not bear out.
    EarlyRefusal,
    /// A user with two live reservations or orders.
    DoubleGrant,
    /// More was sold than there is.
    Oversold,
    /// The books do not balance, or ledger and orders disagree.
    Books,
    /// A grant that was told was taken back, where nothing may be.
    Revoked,
    /// No end in time.
    Limbo,
    /// Units that nobody could buy, for ever or for too long.
    Unsold,
    /// Bytes that are no answer, or an end that nobody asked for.
    BadAnswer,
    /// A server that did not start on files that a power cut may leave.
    NoRestart,
    /// A sync after a failed sync.
    SyncedAgain,
    /// Time went back in the books, or an order was closed before its time.
    TimeWentBack,
    /// More was admitted than a limit allows.
    OverLimit,
    /// Damage that was not found, or found in the wrong place.
    DamageMissed,
}

/// One broken promise, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which kind.
    pub sin: Sin,
    /// What, and where.
    pub what: String,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Notes one.
    pub fn note(&mut self, sin: Sin, what: impl Into<String>) {
        let what = what.into();
        self.0.push(Finding { sin, what });
    }

    /// How many of a kind.
    pub fn count(&self, sin: Sin) -> u64 {
        self.0.iter().filter(|found| found.sin == sin).count() as u64
    }
}

/// The answers about one request must agree with each other, before any crash.
pub fn check_answers(told: &[Told], findings: &mut Findings) {
    for request in told {
        let what = || format!("{}: {:?}", request.request_id().as_str(), request.said);
        let grants = request.said.iter().filter(|said| said.is_grant());
        let grants: BTreeSet<_> = grants.map(|said| said.reservation).collect();
        if grants.len() > 1 {
            findings.note(Sin::DoubleGrant, what());
        }
        let mut ended: Option<RequestState> = None;
        for said in request.said.iter().filter(|said| said.is_status()) {
            if ended.is_some_and(|ended| !may_follow(ended, said.state)) {
                findings.note(Sin::ChangedMind, what());
            }
            if said.state.is_terminal() {
                ended = Some(said.state);
            }
        }
        let never = request.said.iter().position(|said| said.is_never());
        let late_grant = |at: usize| request.said[at..].iter().any(|said| said.is_grant());
        if never.is_some_and(late_grant) {
            findings.note(Sin::ChangedMind, what());
        }
    }
}

/// What the files hold, read from a copy of them.
#[derive(Debug, Default)]
pub struct Disk {
    /// The ledger's books of the one SKU.
    pub books: Books,
    by_request: BTreeMap<(UserId, RequestId), (ReservationId, ReservationState)>,
    orders: BTreeMap<ReservationId, String>,
    closes: bool,
}

impl Disk {
    /// Reads both files below `data`. A first start that was cut off before it made a file has left an empty one.
    ///
    /// # Errors
    /// What a restart would refuse.
    pub fn read(sale: &Sale, data: &Path, findings: &mut Findings) -> Result<Self, String> {
        let mut disk = Self {
            closes: sale
                .activities
                .iter()
                .flat_map(|activity| &activity.skus)
                .any(|sku| sku.unpaid_timeout_ms < UNPAID_LONG_MS),
            ..Self::default()
        };
        let image = match read_image(data) {
            Ok(image) => image,
            Err(crate::store::StoreError::Missing { .. }) => return Ok(disk),
            Err(error) => return Err(error.to_string()),
        };
        let recovered = recover(LedgerConfig::of_sale(sale, 0), &image);
        let recovered = recovered.map_err(|error| error.to_string())?;
        let facts = LedgerFacts::of(&recovered.ledger);
        disk.books = facts.books.values().next().copied().unwrap_or_default();
        disk.take_reservations(&facts, findings);
        disk.read_orders(&data.join("orders.sqlite"), findings)?;
        Ok(disk)
    }

    fn take_reservations(&mut self, facts: &LedgerFacts, findings: &mut Findings) {
        let mut live = BTreeSet::new();
        let mut taken = 0;
        for (id, (message, state)) in &facts.reservations {
            let name = (message.user, message.request_id);
            if self.by_request.insert(name, (*id, *state)).is_some() {
                findings.note(Sin::DoubleGrant, format!("{id}: its request has another"));
            }
            if !is_live(*state) {
                continue;
            }
            taken += u64::from(message.quantity);
            if !live.insert(message.user) {
                findings.note(Sin::DoubleGrant, format!("{id}: its user has another"));
            }
        }
        let books = self.books;
        let what = || format!("{books:?}, {taken} units in live reservations");
        if taken > books.total {
            findings.note(Sin::Oversold, what());
        }
        if !books.balance() || books.held + books.sold != taken {
            findings.note(Sin::Books, what());
        }
    }

    fn read_orders(&mut self, path: &Path, findings: &mut Findings) -> Result<(), String> {
        let orders = match schema::open_to_read(path) {
            Ok(orders) => orders,
            Err(schema::OpenError::Missing(_) | schema::OpenError::Foreign(_)) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let mut read = || -> rusqlite::Result<(u64, u64)> {
            let mut rows = orders.prepare("SELECT reservation_id, state FROM orders")?;
            let rows = rows.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
            for row in rows {
                let (id, state) = row?;
                self.orders.insert(ReservationId(id.cast_unsigned()), state);
            }
            let number = |sql: &str| orders.query_row(sql, [], |row| row.get::<_, u64>(0));
            Ok((number(LIVE_SQL)?, number(DOUBLE_SQL)?))
        };
        let (live, doubles) = read().map_err(|error| format!("{}: {error}", path.display()))?;
        if live > self.books.total {
            let what = format!("{live} units in live orders of {}", self.books.total);
            findings.note(Sin::Oversold, what);
        }
        if doubles > 0 {
            findings.note(
                Sin::DoubleGrant,
                format!("{doubles} users have two live orders"),
            );
        }
        Ok(())
    }

    /// Everything that was told against these files.
    pub fn check(&self, told: &[Told], findings: &mut Findings) {
        let users: BTreeSet<UserId> = self.by_request.keys().map(|(user, _)| *user).collect();
        for request in told {
            self.check_request(request, findings);
            let name = request.request_id();
            if request.was_told(Code::AlreadyPurchased) && !users.contains(&request.user()) {
                let what = format!("{}: nothing is held", name.as_str());
                findings.note(Sin::EarlyRefusal, what);
            }
            if request.was_told(Code::SeckillSoldOut) && self.books.free > 0 && !self.closes {
                let what = format!("{}: sold out, {:?}", name.as_str(), self.books);
                findings.note(Sin::EarlyRefusal, what);
            }
        }
    }

    fn check_request(&self, request: &Told, findings: &mut Findings) {
        let name = request.request_id();
        let found = self.by_request.get(&(request.user(), name));
        if let Some(id) = request.reservation() {
            let order = self.orders.get(&id).map(String::as_str);
            if found.is_none_or(|(held, _)| *held != id) {
                let what = format!("{}: told {id}, the ledger has {found:?}", name.as_str());
                findings.note(Sin::LostGrant, what);
            }
            if request.is_paid() && order != Some("PAID") {
                let what = format!("{}: told that {id} is paid, it is {order:?}", name.as_str());
                findings.note(Sin::LostPayment, what);
            }
            let ended = matches!(order, Some("CLOSED" | "PAID_LATE"));
            if request.is_closed() && !ended {
                let what = format!(
                    "{}: told that {id} is closed, it is {order:?}",
                    name.as_str()
                );
                findings.note(Sin::LostClosing, what);
            }
        }
        let never = request.said.iter().any(|said| said.is_never());
        if let (true, Some((id, _))) = (never, found) {
            let what = format!("{}: told never, the ledger has {id}", name.as_str());
            findings.note(Sin::ChangedMind, what);
        }
    }
}

const LIVE_SQL: &str = "SELECT coalesce(sum(quantity), 0) FROM orders WHERE live = 1";
const DOUBLE_SQL: &str = "SELECT count(*) FROM (SELECT 1 FROM orders WHERE state IN ('CREATED', 'PAID') \
     GROUP BY activity_id, sku_id, user_id HAVING count(*) > 1)";
/// Steps of an order that stand before the step that they follow, and closings before their time.
const TIME_SQL: &str = "SELECT count(*) FROM order_history AS h LEFT JOIN order_history AS before \
     ON before.reservation_id = h.reservation_id AND before.version = h.version - 1 \
     JOIN orders ON orders.reservation_id = h.reservation_id \
     WHERE before.at_ms > h.at_ms OR (h.to_state = 'CLOSED' AND h.at_ms < orders.due_ms)";

fn is_live(state: ReservationState) -> bool {
    matches!(
        state,
        ReservationState::Reserved | ReservationState::Confirmed | ReservationState::Settled
    )
}

/// What a request was told before a crash against where it stands after the restart.
pub fn check_status(before: &Told, now: &Told, findings: &mut Findings) {
    let Some(said) = now.said.last() else {
        return;
    };
    let name = before.request_id();
    let what = || format!("{}: now {said:?}, before {:?}", name.as_str(), before.said);
    check_holding(before, now, findings);
    if before.is_paid() && said.state != RequestState::Paid {
        findings.note(Sin::LostPayment, what());
    }
    let mut told = before.said.iter().rev();
    let ended = told.find(|said| said.is_status() && said.state.is_terminal());
    if let Some(ended) = ended.filter(|ended| !may_follow(ended.state, said.state)) {
        let closed = ended.state == RequestState::Closed;
        findings.note(
            if closed {
                Sin::LostClosing
            } else {
                Sin::ChangedMind
            },
            what(),
        );
    }
    let never = before.said.iter().any(|said| said.is_never());
    if never && !said.is_never() {
        findings.note(Sin::ChangedMind, what());
    }
}

/// What a request was told to hold before a crash against what it holds after the restart, if that is known already.
pub fn check_holding(before: &Told, now: &Told, findings: &mut Findings) {
    let Some(said) = now.said.last() else {
        return;
    };
    if before.reservation().is_some() && said.reservation != before.reservation() {
        let name = before.request_id();
        let what = format!("{}: now {said:?}, before {:?}", name.as_str(), before.said);
        findings.note(Sin::LostGrant, what);
    }
}

/// True when a status may stay: what was paid before is on its way to PAID, everything else rests at CREATED.
pub fn rests(before: &Told, state: RequestState) -> bool {
    state.is_terminal() || state == RequestState::Created && !before.is_paid()
}

/// The server has ended in order: both files agree row by row, and time never went back in them.
///
/// # Errors
/// A file cannot be read.
pub fn check_end(sale: &Sale, data: &Path, findings: &mut Findings) -> Result<(), String> {
    let facts = LedgerFacts::read(data, sale).map_err(|error| error.to_string())?;
    let path = data.join("orders.sqlite");
    let orders = schema::open_to_read(&path).map_err(|error| error.to_string())?;
    let of_sql = |error: rusqlite::Error| format!("{}: {error}", path.display());
    let report = reconcile(&facts, &orders).map_err(of_sql)?;
    let undone = report.in_outbox + report.dead_letters;
    if !report.balanced || undone > 0 {
        findings.note(Sin::Books, format!("after an orderly end: {report}"));
    }
    let back: u64 = orders
        .query_row(TIME_SQL, [], |row| row.get(0))
        .map_err(of_sql)?;
    if back > 0 {
        findings.note(Sin::TimeWentBack, format!("{back} steps of orders"));
    }
    Ok(())
}

/// How long a request may stay without an end.
pub const LIMBO: std::time::Duration = std::time::Duration::from_millis(LIMBO_MS);
