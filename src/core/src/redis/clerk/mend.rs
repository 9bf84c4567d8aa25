//! What is known of a SKU beside its server: the grants that were told and have no order yet, and how books that a
//! failover left behind are mended with them (design §5).
//!
//! A server without the books gets a fence; behind it every instance offers the grants that it remembers, and the one
//! beside the order store offers every row, twice: at once, and when the fence has stood for as long as an old master may
//! take writes. Then the books get the server's name and sell again, in a larger epoch. What an instance offers later
//! than that gets a unit if one is free, and is revoked else: it is FAILED then, for everybody who asks. Invariants:
//! nothing is offered but behind a fence or at home; a grant is forgotten only when the server that has it says that
//! everything of its time is ordered; no more grants are remembered than `GRANTS_KEPT_MAX`, and none is made beyond.

use super::Clerk;
use crate::limits::{GRANTS_KEPT_MAX, MEND_AGAIN_MS, OFFERS_OUT_MAX};
use crate::mail::{Addr, Mail, OrderRows, RowsAsk};
use crate::order::contract::Restocked;
use crate::port::Effects;
use crate::redis::desk::{Desk, PageState, Pull};
use crate::redis::link::greeting::HomeId;
use crate::redis::offer::{Offer, Offered};
use crate::redis::step::{Maker, Stock};
use crate::time::{Mono, Now};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use weir_proto::ids::{ReservationId, SkuKey};

/// What of the last page matters here.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    fence: HomeId,
    is_there: bool,
}

/// How far the rows of the order store have been offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// Ask for those behind this one.
    Next(ReservationId),
    /// Asked for then.
    Asked(ReservationId, Mono),
    Done,
}

/// One run over everything that is to be offered to one server.
#[derive(Debug)]
struct Round {
    here: HomeId,
    /// Of [`Mending::grants`].
    grants: VecDeque<ReservationId>,
    rows_waiting: VecDeque<Offer>,
    rows: Rows,
    /// The fence had stood long enough when the rows were begun.
    is_last: bool,
    out: BTreeMap<ReservationId, Option<Offer>>,
    /// What was in their way may have gone; offered again then.
    later: VecDeque<ReservationId>,
    again_at: Mono,
    /// The next step that is no offer may be sent then.
    step_at: Mono,
    /// The order store's stock and its newest restocks, once they were told.
    stock: Option<(Stock, Vec<Restocked>)>,
    /// Since when the fence is known to have heard of every epoch that was shown here.
    fenced_at: Option<Mono>,
    /// It was given to the server: units of a restock that was lost are there for the rows that have them.
    is_restored: bool,
}

/// One SKU. See the module.
#[derive(Debug)]
pub(super) struct Mending {
    sku: SkuKey,
    grants: BTreeMap<ReservationId, Offer>,
    /// The server that has every grant of them.
    settled: Option<HomeId>,
    seen: Seen,
    round: Option<Round>,
    /// The books are not where the slot is, as far as is known; since then.
    strange_since: Option<Mono>,
    /// An operator wants the orders offered, too, although the books are at home.
    is_wanted: bool,
    /// Grants that were told and could not be kept.
    pub revoked: u64,
    /// Books mended.
    pub mended: u64,
}

/// What the clerk is, for mending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The order store of this process, which makes the orders.
    pub maker: Option<Maker>,
    /// How long a fence stands at least.
    pub freeze_ms: u64,
    /// What is sold; without its total.
    pub stock: Stock,
    /// It was there before, as far as this process knows.
    pub was_there: bool,
}

impl Mending {
    pub fn new(sku: SkuKey) -> Self {
        Self {
            sku,
            grants: BTreeMap::new(),
            settled: None,
            seen: Seen::default(),
            round: None,
            strange_since: None,
            is_wanted: false,
            revoked: 0,
            mended: 0,
        }
    }

    /// True when one grant more could not be remembered.
    pub fn is_full(&self) -> bool {
        self.grants.len() >= GRANTS_KEPT_MAX
    }

    /// Grants that have no order yet, as far as is known.
    pub fn kept(&self) -> usize {
        self.grants.len()
    }

    /// True while the books are being mended, or have to be.
    pub fn is_mending(&self) -> bool {
        self.round.is_some()
    }

    /// Everything is offered once more, as if the server were new.
    pub fn begin_anew(&mut self) {
        self.settled = None;
        self.round = None;
        self.is_wanted = true;
    }

    /// True when everything that was to be offered was.
    pub fn is_settled(&self) -> bool {
        self.settled.is_some() && self.round.is_none()
    }

    pub fn keep(&mut self, offer: Offer) {
        if let Some(round) = &mut self.round {
            round.grants.push_back(offer.message.reservation); // a reply that hung until now
        }
        self.grants.insert(offer.message.reservation, offer);
    }

    /// A page of the SKU; `None`: it is not there.
    pub fn page(&mut self, page: Option<&PageState>, desk: &Desk) {
        self.seen = page.map_or(Seen::default(), |page| Seen {
            fence: page.fence,
            is_there: true,
        });
        let is_settled = self.settled.is_some() && self.settled == desk.here(self.sku);
        if let Some(page) = page.filter(|_| is_settled && desk.is_at_home(self.sku)) {
            let is_open = |offer: &Offer| offer.message.reserved_at >= page.ordered_before;
            self.grants.retain(|_, offer| is_open(offer));
        }
    }

    /// What the order store has.
    pub fn rows(&mut self, found: &OrderRows, terms: &Terms) {
        let Some(round) = &mut self.round else {
            return;
        };
        if !matches!(round.rows, Rows::Asked(after, _) if after == found.after) {
            return; // asked twice
        }
        let stock = Stock {
            total: found.total,
            ..terms.stock
        };
        let restocks = || found.restocks.clone(); // they come with the first page
        round.stock.get_or_insert_with(|| (stock, restocks()));
        round.rows_waiting.extend(found.offers.iter().copied());
        let last = found.offers.last().map(|offer| offer.message.reservation);
        round.rows = match last {
            Some(last) if found.more => Rows::Next(last),
            _ => Rows::Done,
        };
    }

    /// What an offer came to; `None`: it is not known.
    pub fn offered(&mut self, now: Now, id: ReservationId, end: Option<Offered>) {
        let Some(round) = &mut self.round else {
            return;
        };
        let Some(row) = round.out.remove(&id) else {
            return;
        };
        match (end, row) {
            (Some(Offered::Stands), _) | (Some(Offered::Revoked | Offered::Later), Some(_)) => {}
            (Some(Offered::Revoked), None) => {
                self.grants.remove(&id);
                self.revoked += 1;
            }
            (Some(Offered::Later), None) => {
                round.later.push_back(id);
                round.again_at = now.mono.plus_ms(MEND_AGAIN_MS);
            }
            // The server is another one by now, or does not answer.
            (Some(Offered::Nowhere) | None, _) => self.round = None,
        }
    }

    /// A step was done, or is not known to be: the next page says.
    pub fn stepped(&mut self, now: Now, pull: Pull, is_done: bool) {
        if let Some(round) = &mut self.round {
            round.step_at = now.mono;
            round.is_restored |= is_done && matches!(pull, Pull::Restore(..));
            // A SKU that was made anew has its fence.
            if is_done && matches!(pull, Pull::Fence | Pull::Restore(..)) {
                round.fenced_at.get_or_insert(now.mono);
            }
        }
        if is_done && matches!(pull, Pull::Rehome(_)) {
            self.mended += 1;
            self.round = None;
        }
    }

    /// Goes on with what is to be done.
    pub fn turn(&mut self, now: Now, terms: &Terms, desk: &mut Desk, fx: &mut Effects) {
        let Some(here) = desk.here(self.sku) else {
            self.round = None;
            return;
        };
        let is_lost = !self.seen.is_there && terms.was_there;
        let is_at_home = desk.is_at_home(self.sku) && !is_lost;
        if is_at_home {
            self.strange_since = None;
        }
        if is_at_home && self.settled == Some(here) {
            self.round = None;
            return;
        }
        if !is_at_home && !is_lost && desk.stranger(self.sku).is_none() {
            return; // it is being found out
        }
        // While a slot is on its way, its old node has not said so yet: that is no failover.
        if !is_at_home {
            let since = *self.strange_since.get_or_insert(now.mono);
            if now.mono < since.plus_ms(STRANGE_MS) {
                return;
            }
        }
        let asks_rows = terms.maker.is_some() && (!is_at_home || self.is_wanted);
        if self.round.as_ref().is_none_or(|round| round.here != here) {
            self.round = Some(Round::new(here, asks_rows, self.grants.keys().copied()));
        }
        if !is_at_home && !self.is_fenced(now, is_lost, (here, terms.maker), desk, fx) {
            return;
        }
        if let Some(round) = self.round.as_mut().filter(|_| is_at_home) {
            round.again_at = Mono(0); // nothing is in the way any more
        }
        self.send_offers(now, desk, fx);
        let Some(round) = &mut self.round else {
            return;
        };
        round.ask_rows(now, self.sku, fx);
        if !round.has_offered_all() {
            return;
        }
        if is_at_home {
            self.settled = Some(here);
            (self.round, self.is_wanted) = (None, false);
        } else if let Some(maker) = terms.maker {
            self.finish(now, terms, maker, desk, fx);
        }
    }

    /// Sees to the fence, and to the stock behind it; true: offers may go there.
    fn is_fenced(
        &mut self,
        now: Now,
        is_lost: bool,
        (here, maker): (HomeId, Option<Maker>),
        desk: &mut Desk,
        fx: &mut Effects,
    ) -> bool {
        let Some(round) = &mut self.round else {
            return false;
        };
        let is_fenced = self.seen.fence == here && round.fenced_at.is_some();
        let restore = round.stock.as_ref().zip(maker);
        let is_out = match (is_fenced, is_lost, restore) {
            (true, _, None) => return true,
            (true, _, Some(_)) if round.is_restored => return true,
            // Its stock comes with the first rows.
            (false, true, None) => {
                round.ask_rows(now, self.sku, fx);
                return false;
            }
            _ if round.step_at > now.mono => false,
            (false, false, _) => desk.pull(now, self.sku, Pull::Fence, fx),
            (_, _, Some(((stock, restocks), maker))) => {
                desk.restore(now, self.sku, (*stock, maker), restocks, fx)
            }
        };
        if is_out {
            round.step_at = now.mono.plus_ms(MEND_AGAIN_MS);
        }
        false
    }

    fn send_offers(&mut self, now: Now, desk: &mut Desk, fx: &mut Effects) {
        let Some(round) = &mut self.round else {
            return;
        };
        if round.again_at <= now.mono {
            round.grants.append(&mut round.later);
        }
        while round.out.len() < OFFERS_OUT_MAX {
            let (id, row) = if let Some(row) = round.rows_waiting.front() {
                (row.message.reservation, Some(*row))
            } else if let Some(id) = round.grants.front() {
                (*id, None)
            } else {
                return;
            };
            // A row and a grant of the same number go one after the other.
            if round.out.contains_key(&id) {
                return;
            }
            let offer = row.or_else(|| self.grants.get(&id).copied());
            if let Some(offer) = offer {
                if !desk.offer(now, &offer, fx) {
                    return;
                }
                round.out.insert(id, row);
            }
            match row {
                Some(_) => drop(round.rows_waiting.pop_front()),
                None => drop(round.grants.pop_front()),
            }
        }
    }

    /// Everything was offered: the rows once more when the fence has stood long enough, and then the books are right.
    /// By our own clock: those of two masters may differ by more than a freeze.
    fn finish(&mut self, now: Now, terms: &Terms, maker: Maker, desk: &mut Desk, fx: &mut Effects) {
        let is_due = |round: &&mut Round| {
            let fenced_at = round.fenced_at;
            fenced_at.is_some_and(|at| at.plus_ms(terms.freeze_ms) <= now.mono)
        };
        let Some(round) = self.round.as_mut().filter(is_due) else {
            return;
        };
        if !round.is_last {
            let mut last = Round::new(round.here, true, self.grants.keys().copied());
            (last.is_last, last.fenced_at) = (true, round.fenced_at);
            self.round = Some(last);
            return;
        }
        if round.step_at <= now.mono && desk.pull(now, self.sku, Pull::Rehome(maker), fx) {
            round.step_at = now.mono.plus_ms(MEND_AGAIN_MS);
        }
    }
}

/// Books that are not where the slot is are mended after this.
const STRANGE_MS: u64 = 1_500;
/// Rows that did not come are asked for again.
const ROWS_AGAIN_MS: u64 = 2_000;

impl Round {
    fn new(here: HomeId, asks_rows: bool, grants: impl Iterator<Item = ReservationId>) -> Self {
        Self {
            here,
            grants: grants.collect(),
            rows_waiting: VecDeque::new(),
            rows: match asks_rows {
                true => Rows::Next(ReservationId(0)),
                false => Rows::Done,
            },
            is_last: false,
            out: BTreeMap::new(),
            later: VecDeque::new(),
            again_at: Mono(0),
            step_at: Mono(0),
            stock: None,
            fenced_at: None,
            is_restored: false,
        }
    }

    fn ask_rows(&mut self, now: Now, sku: SkuKey, fx: &mut Effects) {
        let after = match self.rows {
            Rows::Next(after) if self.rows_waiting.is_empty() => after,
            Rows::Asked(after, at) if at.plus_ms(ROWS_AGAIN_MS) <= now.mono => after,
            _ => return,
        };
        self.rows = Rows::Asked(after, now.mono);
        fx.post(Addr::Worker, Mail::RowsAsk(RowsAsk { sku, after }));
    }

    /// True but for what is tried again later.
    fn has_offered_all(&self) -> bool {
        self.rows == Rows::Done
            && self.rows_waiting.is_empty()
            && self.grants.is_empty()
            && self.out.is_empty()
    }
}

impl Clerk {
    pub(super) fn take_rows(&mut self, found: &OrderRows) {
        let mut skus = self.skus.iter();
        let place = skus.position(|desked| desked.sku == found.sku);
        if let Some((place, terms)) = place.and_then(|at| Some((at, self.terms(at)?))) {
            self.skus[place].mending.rows(found, &terms);
        }
    }

    fn terms(&self, place: usize) -> Option<Terms> {
        let desked = &self.skus[place];
        let (_, spec) = self.config.sale.sku(desked.sku)?;
        Some(Terms {
            maker: self.config.maker.filter(|_| !self.stream.is_elsewhere),
            freeze_ms: self.config.freeze_ms,
            stock: Stock {
                total: 0,
                quantity_max: spec.quantity_max,
                once_per_activity: spec.once_per_activity,
            },
            was_there: desked.was_lost,
        })
    }

    pub(super) fn mend_all(&mut self, now: Now, fx: &mut Effects) {
        (0..self.skus.len()).for_each(|place| self.mend(now, place, fx));
    }

    pub(super) fn mend(&mut self, now: Now, place: usize, fx: &mut Effects) {
        if let Some(terms) = self.terms(place) {
            let mending = &mut self.skus[place].mending;
            mending.turn(now, &terms, &mut self.desk, fx);
        }
    }

    pub(super) fn offered(
        &mut self,
        now: Now,
        sku: SkuKey,
        id: ReservationId,
        end: Option<Offered>,
    ) {
        if let Some(desked) = self.find(sku) {
            desked.mending.offered(now, id, end);
        }
    }

    pub(super) fn stepped(
        &mut self,
        now: Now,
        sku: SkuKey,
        pull: Pull,
        is_done: bool,
        fx: &mut Effects,
    ) {
        self.wish_stepped(sku, pull, is_done, fx);
        if let Some(desked) = self.find(sku) {
            desked.mending.stepped(now, pull, is_done);
        }
    }
}
