//! The books in Redis, followed field by field as the scripts set them: what the checker holds everything against.
//!
//! Owned by [`super::truth::Truth`]. Each field that a script set is read in its order, so a rule is checked against what
//! stood there at that instant; books must balance at the end of every script. Read by code of its own: nothing of the
//! program's readers is used.

use super::journal::{Grant, JournalEye, Sale};
use super::marks::{Happened, Marks};
use super::plan::Plan;
use super::record::{number, record};
use super::redis::{Done, FieldSet, RedisModel, Reply};
use super::squall::RedisPlan;
use super::tally::{Sin, SinKind};
use super::truth::wrong_books;
use super::weather::Sky;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use weir_core::ask::{Mode, ReservationState};
use weir_core::ledger::{Reservation, SkuState};
use weir_core::redis::script::{SHA1_HEX_BYTES, Script};
use weir_core::redis::step::{SkuSteps, StepPlan};
use weir_proto::ids::{RequestId, ReservationId, SkuKey, UserId};

/// The audit of all reservations runs once per so many grants.
const AUDIT_EVERY: u64 = 16;

const MODES: [Mode; 4] = [Mode::Normal, Mode::Degraded, Mode::QueueOnly, Mode::Closed];
/// One SKU.
struct Shelf {
    steps: StepPlan,
    fields: BTreeMap<Vec<u8>, Vec<u8>>,
    /// At the end of the script before.
    before: Option<(SkuState, u64, u64)>,
    /// It was sold out and is not any more.
    was_reopened: bool,
    /// Its books were mended since the last grant.
    is_mended: bool,
    bucket: Bucket,
}

/// The bucket of a SKU's budget, as its draws were answered.
#[derive(Default)]
struct Bucket {
    opened_us: i64,
    drawn: u64,
    returned: u64,
}

/// What a key is.
#[derive(Clone, Copy)]
enum Place {
    Sku(usize),
    Records(usize),
    Lease(usize),
}

/// See the module.
pub(super) struct Books {
    sky: Rc<RefCell<Sky>>,
    rules: JournalEye,
    shelves: Vec<Shelf>,
    places: BTreeMap<Vec<u8>, Place>,
    pub reservations: BTreeMap<ReservationId, Reservation>,
    pub grants: u64,
    /// Reservations that a server took with it.
    pub lost: BTreeMap<ReservationId, Reservation>,
    names: BTreeMap<[u8; SHA1_HEX_BYTES], Script>,
    /// Nonces of reservations.
    nonces: BTreeSet<(SkuKey, Vec<u8>)>,
    /// Reserves that were carried out, by SKU, user and request.
    reserves: BTreeMap<(SkuKey, UserId, RequestId), u64>,
}

impl Books {
    pub fn new(plan: Arc<Plan>, redis: &RedisPlan, sky: Rc<RefCell<Sky>>) -> Self {
        let mut places = BTreeMap::new();
        let shelves = redis.steps.iter().enumerate().map(|(at, plan)| {
            let steps = SkuSteps::new(*plan);
            places.insert(steps.key("sku").into_bytes(), Place::Sku(at));
            places.insert(steps.key("res").into_bytes(), Place::Records(at));
            places.insert(steps.key("lease").into_bytes(), Place::Lease(at));
            Shelf {
                steps: *plan,
                fields: BTreeMap::new(),
                before: None,
                was_reopened: false,
                is_mended: false,
                bucket: Bucket::default(),
            }
        });
        Self {
            sky,
            shelves: shelves.collect(),
            places,
            rules: JournalEye::new(plan),
            reservations: BTreeMap::new(),
            grants: 0,
            lost: BTreeMap::new(),
            names: Script::ALL.map(|script| (script.sha1(), script)).into(),
            nonces: BTreeSet::new(),
            reserves: BTreeMap::new(),
        }
    }

    /// Every SKU that was ever opened.
    pub fn skus(&self) -> impl Iterator<Item = SkuState> + '_ {
        self.shelves.iter().filter_map(Shelf::state)
    }

    pub fn sku(&self, key: SkuKey) -> Option<SkuState> {
        let shelf = self.shelves.iter().find(|shelf| shelf.steps.sku == key);
        shelf.and_then(Shelf::state)
    }

    /// Reads what was done since the last look.
    pub fn follow(&mut self, model: &mut RedisModel, marks: &mut Marks, sins: &mut Vec<Sin>) {
        let mut sets = Vec::new();
        for done in model.done.drain(..) {
            match done {
                Done::Set(set) => sets.push(set),
                Done::Ran { sha1, words, reply } => {
                    let script = self.names.get(sha1.as_bytes()).copied();
                    for set in sets.drain(..) {
                        self.set(script, set, marks, sins);
                    }
                    self.script_ended(marks, sins);
                    match (script, reply) {
                        (Some(Script::Reserve), _) => self.reserve_ran(&words, sins),
                        (Some(Script::LeaseDraw), Reply::Array(told)) => {
                            self.tokens_drawn(&words, &told, sins);
                        }
                        (Some(Script::LeaseReturn), Reply::Array(told)) => {
                            self.tokens_returned(&words, &told);
                        }
                        _ => {}
                    }
                }
            }
        }
        // What an error left behind: it must have written nothing.
        for set in sets {
            self.set(None, set, marks, sins);
        }
        self.script_ended(marks, sins);
    }

    /// Another server has the place of the one before: what it has is what there is, and the rest is lost.
    pub fn reread(&mut self, model: &mut RedisModel, now_ms: u64) {
        self.rules.forget();
        let before = std::mem::take(&mut self.reservations);
        self.nonces.clear();
        let places: Vec<_> = self
            .places
            .iter()
            .map(|(key, at)| (key.clone(), *at))
            .collect();
        for (key, place) in places {
            let hash = model.keys.hash(now_ms, &key);
            let hash = hash.ok().flatten().map(|hash| hash.clone());
            let fields = hash.unwrap_or_default();
            match place {
                Place::Sku(at) => {
                    let shelf = &mut self.shelves[at];
                    (shelf.fields, shelf.before) = (BTreeMap::new(), None);
                    shelf.bucket = Bucket::default();
                    let sale = self.rules.sales.entry(shelf.steps.sku);
                    let sale = sale.or_insert(Sale::NEVER_OPENED);
                    for (field, value) in fields {
                        let set = FieldSet {
                            key: key.clone(),
                            field,
                            value,
                        };
                        shelf.set(set, sale, &mut Marks::default());
                    }
                }
                Place::Records(at) => {
                    let plan = self.shelves[at].steps;
                    let sets = fields.into_iter().map(|(field, value)| FieldSet {
                        key: key.clone(),
                        field,
                        value,
                    });
                    for (found, nonce) in sets.filter_map(|set| record(&plan, &set)) {
                        self.nonces.insert((plan.sku, nonce));
                        self.rules.put(&found, &mut Vec::new());
                        self.reservations.insert(found.message.reservation, found);
                    }
                }
                Place::Lease(_) => {}
            }
        }
        let lost = before.into_iter();
        let lost = lost.filter(|(id, _)| !self.reservations.contains_key(id));
        self.lost.extend(lost);
    }

    fn set(
        &mut self,
        script: Option<Script>,
        set: FieldSet,
        marks: &mut Marks,
        sins: &mut Vec<Sin>,
    ) {
        match self.places.get(&set.key) {
            Some(Place::Sku(at)) => {
                let shelf = &mut self.shelves[*at];
                let sale = self.rules.sales.entry(shelf.steps.sku);
                shelf.set(set, sale.or_insert(Sale::NEVER_OPENED), marks);
            }
            Some(Place::Records(at)) => {
                let plan = self.shelves[*at].steps;
                match record(&plan, &set) {
                    Some((found, nonce)) => {
                        if script == Some(Script::Offer) {
                            self.offered(found, marks, sins);
                            return;
                        }
                        let is_known = self.reservations.contains_key(&found.message.reservation);
                        if !is_known && !self.nonces.insert((plan.sku, nonce)) {
                            let what = format!("{:?} has a nonce of another", found.message);
                            sins.push(Sin::new(SinKind::Broken, what));
                        }
                        self.record(*at, found, marks, sins);
                    }
                    None => {
                        let text = String::from_utf8_lossy(&set.value);
                        sins.push(Sin::new(SinKind::Broken, format!("a record {text:?}")));
                    }
                }
            }
            Some(Place::Lease(_)) | None => {}
        }
    }

    /// A grant or an order that this server may have lost.
    fn offered(&mut self, found: Reservation, marks: &mut Marks, sins: &mut Vec<Sin>) {
        let id = found.message.reservation;
        let before = self.reservations.insert(id, found);
        let happened = match (before, found.state) {
            (None, ReservationState::Failed) => Happened::Revoked,
            (None, _) => Happened::OfferedBack,
            // An order may have gone on by several steps that this server has not heard of.
            (Some(_), _) => return self.rules.put(&found, sins),
        };
        self.lost.remove(&id);
        self.rules.put(&found, sins);
        marks.happened(happened, 1);
    }

    fn record(&mut self, at: usize, found: Reservation, marks: &mut Marks, sins: &mut Vec<Sin>) {
        let message = &found.message;
        let before = self.reservations.insert(message.reservation, found);
        if before.is_none() {
            self.grants += 1;
            let grant = Grant {
                sku: message.sku,
                user: message.user,
                quantity: message.quantity,
                reservation: message.reservation,
                at: message.reserved_at,
            };
            self.rules.granted(&grant, marks, sins);
            let shelf = &mut self.shelves[at];
            if std::mem::take(&mut shelf.was_reopened) {
                marks.happened(Happened::SoldAgain, 1);
            }
            if std::mem::take(&mut shelf.is_mended) {
                marks.happened(Happened::Mended, 1);
            }
            let is_set = |field| shelf.text(field).is_some_and(|why| !why.is_empty());
            if is_set("frozen") || is_set("fence") {
                let what = format!("{} was granted while frozen", message.reservation);
                sins.push(Sin::new(SinKind::Broken, what));
            }
        } else {
            // An order that is offered back behind a fence may be two steps ahead of what the server had.
            let was_live = before.is_some_and(|before| before.state.is_live());
            let is_fenced = self.shelves[at]
                .text("fence")
                .is_some_and(|fence| !fence.is_empty());
            if was_live && is_fenced && found.state == ReservationState::PaidLate {
                let closed = ReservationState::Closed;
                self.rules.moved(message.reservation, closed, marks, sins);
            }
            self.rules
                .moved(message.reservation, found.state, marks, sins);
        }
        let changed = before.is_some_and(|before| before.message != found.message);
        if changed {
            let what = format!("{} became {:?}", message.reservation, found.message);
            sins.push(Sin::new(SinKind::Broken, what));
        }
    }

    fn script_ended(&mut self, marks: &mut Marks, sins: &mut Vec<Sin>) {
        for shelf in &mut self.shelves {
            shelf.script_ended(marks, sins);
        }
    }

    /// What was sent once is carried out once: an ask whose answer is lost is looked up, never sent again.
    fn reserve_ran(&mut self, words: &[Vec<u8>], sins: &mut Vec<Sin>) {
        let [key, .., user, request_id, _nonce, _quantity] = words else {
            return;
        };
        let sku = self.places.get(key).map(|place| match place {
            Place::Sku(at) | Place::Records(at) | Place::Lease(at) => self.shelves[*at].steps.sku,
        });
        let (Some(sku), Some(user), Some(request_id)) =
            (sku, number(user), RequestId::new(request_id))
        else {
            return;
        };
        let name = (sku, UserId(user), request_id);
        let ran = self.reserves.entry(name).or_default();
        *ran += 1;
        let asked = self.sky.borrow().afar.reserves_asked(name);
        if *ran > asked {
            let what = format!("{request_id} was reserved {ran} times and asked {asked} times");
            sins.push(Sin::new(SinKind::Broken, what));
        }
        if self.grants.is_multiple_of(AUDIT_EVERY) {
            sins.extend(self.fault().map(|what| Sin::new(SinKind::Broken, what)));
        }
    }

    /// All machines together draw no more than the budget's rate gives in the time of Redis (D2, D3).
    fn tokens_drawn(&mut self, words: &[Vec<u8>], told: &[Reply], sins: &mut Vec<Sin>) {
        let Some((at, boot)) = self.lease_of(words) else {
            return;
        };
        let shelf = &mut self.shelves[at];
        let (sku, bucket) = (shelf.steps.sku, &mut shelf.bucket);
        let &[
            Reply::Integer(1),
            Reply::Integer(tokens),
            _,
            Reply::Integer(opened_us),
            ..,
            Reply::Integer(now_ms),
        ] = told
        else {
            return;
        };
        if bucket.opened_us != opened_us {
            *bucket = Bucket {
                opened_us,
                ..Bucket::default()
            };
        }
        bucket.drawn += tokens as u64;
        let mut sky = self.sky.borrow_mut();
        sky.afar.draws(sku, boot, tokens as u64);
        let ns = ((now_ms + 1) * 1_000 - opened_us).max(0) as u64 * 1_000;
        let most = sky.budget_after(sku, ns) + bucket.returned;
        if bucket.drawn > most {
            let what = format!(
                "budget of {sku:?}: {} tokens drawn, {most} allowed by then",
                bucket.drawn
            );
            sins.push(Sin::new(SinKind::Broken, what));
        }
    }

    fn tokens_returned(&mut self, words: &[Vec<u8>], told: &[Reply]) {
        if let (Some((at, _)), [Reply::Integer(_), Reply::Integer(tokens), ..]) =
            (self.lease_of(words), told)
        {
            self.shelves[at].bucket.returned += *tokens as u64;
        }
    }

    /// The SKU of a draw or return, and the run of the instance.
    fn lease_of(&self, words: &[Vec<u8>]) -> Option<(usize, u64)> {
        let [lease, _lines, _instance, boot, ..] = words else {
            return None;
        };
        match self.places.get(lease) {
            Some(Place::Lease(at)) => Some((*at, number(boot)?)),
            _ => None,
        }
    }

    /// The first SKU whose books are not those of its reservations.
    pub fn fault(&self) -> Option<String> {
        self.skus().find_map(|sku| {
            let units = |states: &[ReservationState]| -> u64 {
                let rows = self
                    .reservations
                    .values()
                    .filter(|found| found.message.sku == sku.sku && states.contains(&found.state));
                rows.map(|found| u64::from(found.message.quantity)).sum()
            };
            let held = units(&[ReservationState::Reserved, ReservationState::Confirmed]);
            let sold = units(&[ReservationState::Settled]);
            let is_right = (held, sold) == (sku.books.held, sku.books.sold);
            (!is_right).then(|| {
                format!(
                    "{:?}: its reservations hold {held} and bought {sold}, its books are {:?}",
                    sku.sku, sku.books
                )
            })
        })
    }
}

impl Shelf {
    fn text(&self, field: &str) -> Option<&[u8]> {
        self.fields.get(field.as_bytes()).map(Vec::as_slice)
    }

    fn number(&self, field: &str) -> Option<u64> {
        number(self.text(field)?)
    }

    fn state(&self) -> Option<SkuState> {
        Some(SkuState {
            sku: self.steps.sku,
            open: self.number("open")? == 1,
            mode: *MODES.get(self.number("mode")? as usize)?,
            quantity_max: self.number("quantity_max")? as u32,
            once_per_activity: self.number("once")? == 1,
            books: weir_core::ask::Books {
                total: self.number("total")?,
                free: self.number("free")?,
                held: self.number("held")?,
                sold: self.number("sold")?,
                quarantined: self.number("quarantined")?,
            },
            epoch: self.number("epoch")?,
            sold_out: self.number("sold_out")? == 1,
            reservations: self.number("reservations")? as u32,
        })
    }

    fn set(&mut self, set: FieldSet, sale: &mut Sale, marks: &mut Marks) {
        let value = number(&set.value).unwrap_or(0);
        match set.field.as_slice() {
            b"open" => {
                sale.open = value == 1;
                let happened = match sale.open {
                    true => Happened::Opened,
                    false => Happened::Closed,
                };
                marks.happened(happened, 1);
            }
            b"mode" => {
                sale.mode = MODES.get(value as usize).copied().unwrap_or(Mode::Closed);
                marks.happened(Happened::of_mode(sale.mode), 1);
            }
            b"quantity_max" => sale.quantity_max = value as u32,
            b"once" => sale.once = value == 1,
            b"fence" if !set.value.is_empty() => marks.happened(Happened::Fenced, 1),
            b"home" => self.is_mended |= self.text("home").is_some_and(|home| !home.is_empty()),
            b"restocked" if value > 0 => marks.happened(Happened::Restocked, 1),
            _ => {}
        }
        self.fields.insert(set.field, set.value);
    }

    /// Books balance; epochs, versions and stored times do not run back; each turn of the mark has an epoch (E1).
    fn script_ended(&mut self, marks: &mut Marks, sins: &mut Vec<Sin>) {
        let Some(state) = self.state() else {
            if let Some(before) = self.before.take() {
                let what = format!("{:?} cannot be read after {before:?}", self.steps.sku);
                sins.push(Sin::new(SinKind::Oversold, what)); // no count of units is below 0
            }
            return;
        };
        let (version, clock) = (self.number("version"), self.number("now"));
        let after = (state, version.unwrap_or(0), clock.unwrap_or(0));
        if self.before == Some(after) {
            return;
        }
        sins.extend(wrong_books(&state));
        // Behind a fence nothing is sold; what ends it sets the mark.
        let is_fenced = self.text("fence").is_some_and(|fence| !fence.is_empty());
        if state.books.free == 0 && !state.sold_out && !is_fenced {
            let what = format!("{:?} has no unit and is not sold out", state.sku);
            sins.push(Sin::new(SinKind::Broken, what));
        }
        if let Some((before, version, clock)) = self.before.replace(after) {
            let turned = before.sold_out != state.sold_out;
            let ran_back = state.epoch < before.epoch || after.1 < version || after.2 < clock;
            if ran_back || (turned && state.epoch == before.epoch) {
                let what = format!("{:?} is {after:?} after {before:?}", state.sku);
                sins.push(Sin::new(SinKind::Broken, what));
            }
            match (before.sold_out, state.sold_out) {
                (false, true) => marks.happened(Happened::SoldOut, 1),
                (true, false) => {
                    self.was_reopened = true;
                    marks.happened(Happened::Reopened, 1);
                }
                _ => {}
            }
        }
    }
}
