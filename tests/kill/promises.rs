//! What was promised, held against files and answers. Gives the broken promises back, so that a planted fault can be
//! looked for.

use crate::buyers::{Asked, LIMBO, Told, ask_all};
use crate::shop::{SKU, STOCK, Shop};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;
use weir::orders::facts::LedgerFacts;
use weir::orders::reconcile::reconcile;
use weir::orders::schema;
use weir_core::ask::{Books, ReservationState};
use weir_proto::answer::{Code, RequestState};
use weir_proto::ids::{RequestId, ReservationId, UserId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sin {
    /// A grant that was told is gone or another one.
    LostGrant,
    /// A payment that was told is gone.
    LostPayment,
    /// An answer that ends a request was followed by another one.
    ChangedMind,
    /// A refusal was told that the state on the disk does not bear out.
    EarlyRefusal,
    /// A user with two live reservations or orders.
    DoubleGrant,
    /// More was sold than there is, or the books are wrong.
    Books,
    /// No end within [`LIMBO`].
    Limbo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub sin: Sin,
    pub what: String,
}

#[derive(Default)]
pub struct Findings(pub Vec<Broken>);

impl Findings {
    fn note(&mut self, sin: Sin, what: String) {
        self.0.push(Broken { sin, what });
    }

    pub fn count(&self, sin: Sin) -> usize {
        self.0.iter().filter(|broken| broken.sin == sin).count()
    }

    /// Fails when there is one, with the first few.
    pub fn must_be_none(&self, where_: &str) {
        let first: Vec<_> = self.0.iter().take(8).collect();
        assert!(
            first.is_empty(),
            "{where_}: {} promises broken: {first:#?}",
            self.0.len()
        );
    }
}

/// The answers about one request must agree with each other, before any crash.
pub fn check_answers(told: &[Told], findings: &mut Findings) {
    for request in told {
        let grants: BTreeSet<_> = request
            .said
            .iter()
            .filter(|said| said.is_grant())
            .map(|said| said.reservation)
            .collect();
        if grants.len() > 1 {
            let what = format!("{} was granted as {grants:?}", request.request_id.as_str());
            findings.note(Sin::ChangedMind, what);
        }
        let mut ended: Option<RequestState> = None;
        let statuses = request.said.iter().filter(|said| said.is_status());
        for said in statuses {
            if ended.is_some_and(|ended| !may_follow(ended, said.state)) {
                let what = format!("{}: {:?}", request.request_id.as_str(), request.said);
                findings.note(Sin::ChangedMind, what);
            }
            if said.state.is_terminal() {
                ended = Some(said.state);
            }
        }
        let never = request.said.iter().position(|said| said.is_never());
        let late_grant = |at: usize| request.said[at..].iter().any(|said| said.is_grant());
        if never.is_some_and(late_grant) {
            let what = format!("{}: {:?}", request.request_id.as_str(), request.said);
            findings.note(Sin::ChangedMind, what);
        }
    }
}

/// Which state a terminal one may still turn into: money that comes late is noted.
fn may_follow(ended: RequestState, now: RequestState) -> bool {
    now == ended || (ended, now) == (RequestState::Closed, RequestState::PaidLate)
}

/// What the files hold after the cut, read from a copy of them.
pub struct Disk {
    pub books: Books,
    by_request: BTreeMap<(UserId, RequestId), (ReservationId, ReservationState)>,
    paid: BTreeSet<ReservationId>,
}

impl Disk {
    pub fn read(shop: &Shop, data: &Path, findings: &mut Findings) -> Result<Self, String> {
        let facts = LedgerFacts::read(data, &shop.sale(data)).map_err(|error| error.to_string())?;
        let orders =
            schema::open_to_read(&data.join("orders.sqlite")).map_err(|error| error.to_string())?;
        let report = reconcile(&facts, &orders).map_err(|error| error.to_string())?;
        for difference in &report.differences {
            // The worker is told of the stock at each start.
            if difference.kind != "total_differs" {
                findings.note(Sin::Books, format!("{difference:?}"));
            }
        }
        let mut statement = orders
            .prepare("SELECT reservation_id FROM orders WHERE state = 'PAID'")
            .unwrap();
        let paid = statement
            .query_map([], |row| row.get::<_, i64>(0))
            .unwrap()
            .map(|id| ReservationId(id.unwrap().cast_unsigned()))
            .collect();
        let books = facts.books.get(&SKU).copied().unwrap_or_default();
        let mut disk = Self {
            books,
            by_request: BTreeMap::new(),
            paid,
        };
        let mut live = BTreeSet::new();
        let mut taken = 0;
        for (id, (message, state)) in facts.reservations {
            let name = (message.user, message.request_id);
            if disk.by_request.insert(name, (id, state)).is_some() {
                findings.note(Sin::DoubleGrant, format!("{id}: its request has another"));
            }
            if !is_live(state) {
                continue;
            }
            taken += u64::from(message.quantity);
            if !live.insert(message.user) {
                findings.note(Sin::DoubleGrant, format!("{id}: its user has another"));
            }
        }
        if !books.balance() || books.held + books.sold != taken || books.total != STOCK {
            let what = format!("{books:?}, {taken} units in live reservations");
            findings.note(Sin::Books, what);
        }
        Ok(disk)
    }

    pub fn check(&self, told: &[Told], shop: &Shop, findings: &mut Findings) {
        let mut users_held: BTreeMap<UserId, bool> = BTreeMap::new();
        for (user, _) in self.by_request.keys() {
            users_held.insert(*user, true);
        }
        let closes = shop.how.unpaid_ms < LIMBO.as_millis() as u64;
        for request in told {
            self.check_request(request, findings);
            let says = |code| request.said.iter().any(|said| said.code == code);
            if says(Code::AlreadyPurchased) && !users_held.contains_key(&request.user) {
                let what = format!("{}: nothing is held", request.request_id.as_str());
                findings.note(Sin::EarlyRefusal, what);
            }
            if says(Code::SeckillSoldOut) && self.books.free > 0 && !closes {
                let what = format!(
                    "{}: sold out, {:?}",
                    request.request_id.as_str(),
                    self.books
                );
                findings.note(Sin::EarlyRefusal, what);
            }
        }
    }

    fn check_request(&self, request: &Told, findings: &mut Findings) {
        let name = request.request_id;
        let found = self.by_request.get(&(request.user, name));
        if let Some(id) = request.reservation() {
            if found.is_none_or(|(held, _)| *held != id) {
                let what = format!("{}: told {id}, the ledger has {found:?}", name.as_str());
                findings.note(Sin::LostGrant, what);
            }
            if request.is_paid() && !self.paid.contains(&id) {
                let what = format!("{}: {id} is not PAID in orders.sqlite", name.as_str());
                findings.note(Sin::LostPayment, what);
            }
        }
        let never = request.said.iter().any(|said| said.is_never());
        if let (true, Some((id, _))) = (never, found) {
            let what = format!("{}: told never, the ledger has {id}", name.as_str());
            findings.note(Sin::ChangedMind, what);
        }
    }
}

fn is_live(state: ReservationState) -> bool {
    matches!(
        state,
        ReservationState::Reserved | ReservationState::Confirmed | ReservationState::Settled
    )
}

/// Asks the restarted server for the status of every request until each has come to rest, and holds it against what
/// was told before.
pub fn check_statuses(shop: &Shop, to: SocketAddr, told: &[Told], findings: &mut Findings) {
    let started = Instant::now();
    let mut open: Vec<&Told> = told.iter().collect();
    while !open.is_empty() {
        let mut asked: Vec<Told> = open
            .iter()
            .map(|told| Told {
                said: Vec::new(),
                ..(*told).clone()
            })
            .collect();
        ask_all(shop, to, Asked::Status, asked.iter_mut());
        let late = started.elapsed() > LIMBO;
        let mut moving = Vec::new();
        for (before, now) in open.into_iter().zip(&asked) {
            let state = now.said[0].state;
            // What was paid before the crash is on its way to PAID; everything else rests at CREATED.
            let rests = state.is_terminal() || state == RequestState::Created && !before.is_paid();
            if rests {
                check_status(before, now, findings);
            } else if late {
                let what = format!("{}: {state:?}", before.request_id.as_str());
                findings.note(Sin::Limbo, what);
            } else {
                moving.push(before);
            }
        }
        open = moving;
    }
}

fn check_status(before: &Told, now: &Told, findings: &mut Findings) {
    let (name, said) = (before.request_id, now.said[0]);
    let what = || format!("{}: now {said:?}, before {:?}", name.as_str(), before.said);
    if before.reservation().is_some() && said.reservation != before.reservation() {
        findings.note(Sin::LostGrant, what());
    }
    if before.is_paid() && said.state != RequestState::Paid {
        findings.note(Sin::LostPayment, what());
    }
    let mut told = before.said.iter().rev();
    let ended = told.find(|said| said.is_status() && said.state.is_terminal());
    if ended.is_some_and(|ended| !may_follow(ended.state, said.state)) {
        findings.note(Sin::ChangedMind, what());
    }
    let never = before.said.iter().any(|said| said.is_never());
    if never && !said.is_never() {
        findings.note(Sin::ChangedMind, what());
    }
}
