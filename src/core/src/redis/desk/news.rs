//! What a desk hears beside answers: events as hints, and pages of snapshots as truth (E2).

use super::errors::Meaning;
use super::{Desk, Sent, errors};
use crate::ledger::SkuState;
use crate::limits::{DESK_NEWS_MAX, OUTBOX_PAGE, PAGE_USERS};
use crate::order::contract::{OrderMessage, Restocked};
use crate::port::Effects;
use crate::redis::endpoint::Endpoint;
use crate::redis::lease::{BudgetStep, BudgetTold, LeaseSteps};
use crate::redis::link::fault::LinkFault;
use crate::redis::link::greeting::HomeId;
use crate::redis::offer::{Offer, Offered};
use crate::redis::reply::{self, ShapeFault, Taken};
use crate::redis::script::Script;
use crate::redis::step::{Maker, Rehomed, SkuSteps, StepPlan, Stock, Take};
use crate::time::{Now, WallMs};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use weir_proto::ids::{ReservationId, SkuKey, UserId};
use weir_proto::resp::Value;

/// Why a SKU is frozen, as its books tell it.
const OPERATORS_FREEZE: &str = "operator";

/// One piece of news.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// Somebody says that the stock of a SKU came to an end or came back: look at it. It may be old or wrong.
    Hint {
        /// Which.
        sku: SkuKey,
        /// The epoch that it speaks of.
        epoch: u64,
    },
    /// A link became ready: events may have been missed while it was not.
    Greeted,
    /// The address of this node's name is needed; [`Desk::resolved`] takes it.
    Resolve(Box<Endpoint>),
    /// A page that was pulled.
    Page(Box<SkuPage>),
    /// A page of the outbox that was pulled.
    Outbox(Box<OutboxFound>),
    /// Messages of the outbox stream that were taken.
    Taken(SkuKey, Box<Taken>),
    /// What a step at a bucket came to.
    Budget(SkuKey, BudgetTold),
    /// A step that was pulled: done, or there was nothing to do.
    Stepped(SkuKey, Pull),
    /// What an offer came to.
    Offered(SkuKey, ReservationId, Offered),
    /// What was pulled did not come and will not; a step may have been taken.
    PullLost(SkuKey, Pull),
}

/// What is pulled for a SKU beside asks. Nothing of it is told to a client, and each may be done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// Its state, and winners from that cursor.
    Snapshot {
        /// Where the page begins; 0 at first.
        cursor: u64,
        /// The page has winners.
        with_winners: bool,
    },
    /// Reservations without an order that were granted then or later.
    Outbox {
        /// Since when.
        from: WallMs,
        /// So many of that time are passed over.
        skip: u64,
        /// Restocks from the operators' request of that number on.
        request: u64,
    },
    /// Messages of the outbox stream: only [`Desk::take`] sends it.
    Take,
    /// One epoch step for what gathered while it was sold out.
    Reopen,
    /// A step at its bucket; only [`Desk::step_budget`] sends it.
    Budget(BudgetStep),
    /// No new reservation until [`Pull::Thaw`], by an operator's wish.
    Freeze,
    /// The end of that.
    Thaw,
    /// No new reservation until [`Pull::Rehome`]: the books are not those of the server that has the slot.
    Fence,
    /// The books were mended with every order of that maker: they are right here from now on.
    Rehome(Maker),
    /// All units that were ever put on sale, behind a fence; sent by [`Desk::restore`].
    Restore(Stock, Maker),
    /// A reservation that may have been lost; sent by [`Desk::offer`].
    Offer(ReservationId),
}

/// A page of the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxFound {
    /// Which SKU.
    pub sku: SkuKey,
    /// All units ever put on sale; `None`: it was never opened.
    pub total: Option<u64>,
    /// What has no order yet.
    pub messages: Vec<OrderMessage>,
    /// Where the next page begins.
    pub next: (WallMs, u64),
    /// Fewer were found than asked for: this was the last page.
    pub is_last: bool,
    /// Numbers without a record, or with one that cannot be read.
    pub orphans: u64,
    /// Restocks of this page.
    pub restocks: Vec<Restocked>,
    /// Where the next page of restocks begins.
    pub next_request: u64,
    /// There are no more of them now: every one in the total was told.
    pub has_all_restocks: bool,
}

/// A SKU's state and some of its winners.
#[derive(Clone, Debug, PartialEq)]
pub struct SkuPage {
    /// The state; `None`: it was never opened.
    pub state: Option<PageState>,
    /// Which SKU.
    pub sku: SkuKey,
}

/// See [`SkuPage`].
#[derive(Clone, Debug, PartialEq)]
pub struct PageState {
    /// Books, mode, epoch.
    pub sku: SkuState,
    /// Grows with each change of what is shown.
    pub version: u64,
    /// Why no new reservation is let in; empty when it is not frozen.
    pub frozen: String,
    /// Where the next page begins; 0: this was the last one.
    pub cursor: u64,
    /// Users of this page.
    pub winners: Vec<UserId>,
    /// The server where the books are right.
    pub home: HomeId,
    /// The server that keeps them fenced; empty: none does.
    pub fence: HomeId,
    /// All reservations granted before have an order.
    pub ordered_before: WallMs,
}

impl Desk {
    /// The next piece of news.
    pub fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Hints beyond the room are dropped: the timer pulls what they spoke of.
    pub(super) fn hint(&mut self, sku: SkuKey, epoch: u64) {
        let hint = News::Hint { sku, epoch };
        if self.news.len() < DESK_NEWS_MAX && self.news.back() != Some(&hint) {
            self.news.push_back(hint);
        }
    }

    /// Sends a pull. One answer comes as news: what was pulled, or [`News::PullLost`]. False: it cannot be sent now.
    pub fn pull(&mut self, now: Now, sku: SkuKey, pull: Pull, fx: &mut Effects) -> bool {
        self.pull_by(now, sku, pull, fx, |steps, home, out| {
            let (here, heard) = home;
            match pull {
                Pull::Snapshot {
                    cursor,
                    with_winners,
                } => steps.push_snapshot(cursor, if with_winners { PAGE_USERS } else { 0 }, out),
                Pull::Outbox {
                    from,
                    skip,
                    request,
                } => steps.push_outbox((from, skip), OUTBOX_PAGE, request, out),
                Pull::Reopen => steps.push_reopen(out),
                Pull::Freeze => steps.push_freeze(OPERATORS_FREEZE, out),
                Pull::Thaw => steps.push_thaw(heard, out),
                Pull::Fence => steps.push_fence(here, heard, out),
                Pull::Rehome(maker) => {
                    steps.push_rehome(&Rehomed::Mended(maker), here, heard, out);
                }
                Pull::Take | Pull::Budget(_) | Pull::Offer(_) | Pull::Restore(..) => {
                    debug_assert!(false, "it has a way of its own");
                }
            }
        })
    }

    /// As [`Self::pull`], for messages of the outbox stream.
    pub fn take(&mut self, now: Now, sku: SkuKey, take: &Take<'_>, fx: &mut Effects) -> bool {
        self.pull_by(now, sku, Pull::Take, fx, |steps, _, out| {
            steps.push_take(take, out);
        })
    }

    /// `write` is told the server's name and the largest epoch heard of.
    fn pull_by(
        &mut self,
        now: Now,
        sku: SkuKey,
        pull: Pull,
        fx: &mut Effects,
        write: impl FnOnce(&SkuSteps, (&HomeId, u64), &mut Vec<u8>),
    ) -> bool {
        let Some(place) = self.sku_of(sku) else {
            return false;
        };
        let Some(index) = self.node_of(place) else {
            return false;
        };
        // What a server without the books has pending, or gathered, is not acted upon.
        let acts = matches!(pull, Pull::Outbox { .. } | Pull::Take | Pull::Reopen);
        if self.nodes[index].is_retired || (acts && !self.is_fine(place, index)) {
            return false;
        }
        if matches!(pull, Pull::Snapshot { .. }) && !self.ask_role(now, index, fx) {
            return false;
        }
        let heard = self.epoch_of(place);
        let (steps, node) = (&self.skus[place].steps, &mut self.nodes[index]);
        let here = node.link.home();
        let sent = Sent::Pull(place as u16, pull);
        let write = |out: &mut Vec<u8>| write(steps, (&here, heard), out);
        node.link.send(now, sent, fx, write).is_ok()
    }

    /// Sends a step at a SKU's bucket. One answer comes as news: [`News::Budget`], or [`News::PullLost`]. False: it cannot
    /// be sent now. A server that lost its data has no bucket, so one without the books is asked, too.
    pub fn step_budget(
        &mut self,
        now: Now,
        steps: &LeaseSteps,
        step: BudgetStep,
        fx: &mut Effects,
    ) -> bool {
        let sku = steps.sku();
        self.pull_by(now, sku, Pull::Budget(step), fx, |_, _, out| {
            steps.push(&step, out);
        })
    }

    /// Puts in a reservation that the server of its SKU may have lost. One answer comes as news: [`News::Offered`], or
    /// [`News::PullLost`]. False: it cannot be sent now.
    pub fn offer(&mut self, now: Now, offer: &Offer, fx: &mut Effects) -> bool {
        let pull = Pull::Offer(offer.message.reservation);
        self.pull_by(now, offer.message.sku, pull, fx, |steps, (here, _), out| {
            steps.push_offer(here, offer, out);
        })
    }

    /// As [`Self::pull`], for a stock that may have been lost, with its restocks.
    pub fn restore(
        &mut self,
        now: Now,
        sku: SkuKey,
        (stock, maker): (Stock, Maker),
        restocks: &[Restocked],
        fx: &mut Effects,
    ) -> bool {
        let pull = Pull::Restore(stock, maker);
        self.pull_by(now, sku, pull, fx, |steps, (here, heard), out| {
            steps.push_restore(here, (&stock, &maker), restocks, heard, out);
        })
    }

    pub(super) fn pull_lost(&mut self, place: u16, pull: Pull) {
        let sku = self.skus[usize::from(place)].steps.plan().sku;
        self.news.push_back(News::PullLost(sku, pull));
    }

    pub(super) fn pulled(
        &mut self,
        now: Now,
        index: usize,
        (place, pull): (u16, Pull),
        value: &Value<'_>,
        fx: &mut Effects,
    ) {
        if let Value::Error(error) = value {
            let is_open = errors::meaning(error) == Meaning::Open;
            self.counts.draws_unknown += u64::from(is_open && pull.is_draw());
            self.pull_lost(place, pull);
            self.count_error(error);
            match error.code {
                b"NOSCRIPT" => self.load(now, index, pull.script(), fx),
                b"MOVED" => {
                    self.slot_left(usize::from(place), index);
                    self.want_refresh(now);
                }
                b"ASK" | b"CLUSTERDOWN" => self.want_refresh(now),
                _ if errors::hides_a_demotion(error) => {
                    self.nodes[index].is_retired = true; // it is greeted again, and what it became is seen
                    self.want_refresh(now);
                }
                _ => self.counts.faults += 1,
            }
            return;
        }
        let plan = self.skus[usize::from(place)].steps.plan();
        let news = match pull {
            Pull::Snapshot { .. } => snapshot_of(plan, value),
            Pull::Outbox {
                from,
                skip,
                request,
            } => outbox_of(plan, (from, skip, request), value),
            Pull::Take => reply::taken(plan.sku, plan.ids_above, value)
                .map(|taken| News::Taken(plan.sku, Box::new(taken))),
            Pull::Budget(step) => step.told(value).map(|told| News::Budget(plan.sku, told)),
            Pull::Offer(id) => reply::offered(value).map(|end| News::Offered(plan.sku, id, end)),
            Pull::Reopen
            | Pull::Freeze
            | Pull::Thaw
            | Pull::Fence
            | Pull::Rehome(_)
            | Pull::Restore(..) => reply::stepped(value).map(|_| News::Stepped(plan.sku, pull)),
        };
        match news {
            Ok(news) => {
                if let News::Page(page) = &news {
                    self.page_came(now, index, usize::from(place), page.state.as_ref(), fx);
                }
                self.news.push_back(news);
            }
            Err(fault) => {
                self.counts.draws_unknown += u64::from(pull.is_draw());
                self.pull_lost(place, pull);
                // What somebody wrote into the books of one SKU is no fault of the link that serves the others; nothing
                // is granted from them until they can be read.
                let reads = matches!(
                    pull,
                    Pull::Snapshot { .. } | Pull::Outbox { .. } | Pull::Take
                );
                if reads && matches!(fault, ShapeFault::Field | ShapeFault::Books) {
                    self.counts.errors[errors::OUR_BOOKS] += 1;
                    if matches!(pull, Pull::Snapshot { .. }) {
                        self.slot_left(usize::from(place), index);
                    }
                } else {
                    self.lose(now, index, LinkFault::WrongShape, fx);
                }
            }
        }
    }

    /// A push frame: `message`, channel, `SOLD_OUT 3`. Anything else is no hint.
    pub(super) fn pushed(&mut self, value: &Value<'_>) {
        let Value::Push(items) = value else {
            return;
        };
        let mut texts = items.clone().map(|item| item.text());
        let (Some(Some(b"message")), Some(Some(channel)), Some(Some(text))) =
            (texts.next(), texts.next(), texts.next())
        else {
            return;
        };
        let sku = self
            .skus
            .iter()
            .find(|sku| sku.channel.as_bytes() == channel);
        let epoch = core::str::from_utf8(text).ok().and_then(|text| {
            let (word, epoch) = text.split_once(' ')?;
            let is_event = matches!(word, "SOLD_OUT" | "STOCK_REOPENED");
            epoch.parse().ok().filter(|_| is_event)
        });
        if let (Some(sku), Some(epoch)) = (sku.map(|sku| sku.steps.plan().sku), epoch) {
            self.hint(sku, epoch);
        }
    }
}

impl Pull {
    /// A snapshot without winners.
    pub(super) const SNAPSHOT: Self = Self::Snapshot {
        cursor: 0,
        with_winners: false,
    };

    pub(super) const fn script(self) -> Script {
        match self {
            Self::Snapshot { .. } => Script::Snapshot,
            Self::Outbox { .. } => Script::Outbox,
            Self::Take => Script::Take,
            Self::Reopen => Script::Reopen,
            Self::Budget(step) => step.script(),
            Self::Freeze => Script::Freeze,
            Self::Thaw => Script::Thaw,
            Self::Fence => Script::Fence,
            Self::Rehome(_) => Script::Rehome,
            Self::Restore(..) => Script::Restore,
            Self::Offer(_) => Script::Offer,
        }
    }

    /// True when tokens are lost if its answer is.
    pub(super) const fn is_draw(self) -> bool {
        matches!(self, Self::Budget(BudgetStep::Draw(_)))
    }
}

fn snapshot_of(plan: &StepPlan, value: &Value<'_>) -> Result<News, ShapeFault> {
    let page = reply::page(plan.sku, value)?;
    let state = page.map(|page| {
        Ok(PageState {
            sku: page.state,
            version: page.version,
            frozen: String::from_utf8_lossy(page.frozen).into_owned(),
            cursor: page.cursor,
            winners: page.winners.collect::<Result<_, _>>()?,
            home: page.home,
            fence: page.fence,
            ordered_before: page.ordered_before,
        })
    });
    Ok(News::Page(Box::new(SkuPage {
        state: state.transpose()?,
        sku: plan.sku,
    })))
}

fn outbox_of(
    plan: &StepPlan,
    (from, skip, request): (WallMs, u64, u64),
    value: &Value<'_>,
) -> Result<News, ShapeFault> {
    let mut found = OutboxFound {
        sku: plan.sku,
        total: None,
        messages: Vec::new(),
        next: (from, skip),
        is_last: true,
        orphans: 0,
        restocks: Vec::new(),
        next_request: request,
        has_all_restocks: true,
    };
    if let Some(page) = reply::outbox(plan.sku, plan.ids_above, value)? {
        found.total = Some(page.total);
        found.is_last = page.count < u64::from(OUTBOX_PAGE);
        found.next = match page.last {
            None => (from, skip),
            Some((at, count)) if at == from => (at, skip + count),
            Some(last) => last,
        };
        found.restocks = page.restocks()?;
        found.next_request = page.next_request;
        found.has_all_restocks = page.has_all_restocks;
        for message in page {
            // One record that cannot be read keeps no other from its order.
            match message {
                Ok(Some(message)) => found.messages.push(message),
                Ok(None) | Err(_) => found.orphans += 1,
            }
        }
    }
    Ok(News::Outbox(Box::new(found)))
}
