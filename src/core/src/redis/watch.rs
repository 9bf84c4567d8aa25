//! What an instance knows of each SKU in Redis: pulled as snapshots, hinted at by events, shown to shards as views (E1-E3).
//!
//! Owned by the part that owns a [`Desk`]. A hint, a greeting and a timer each make it pull; only a snapshot changes what
//! is shown, and only one whose epoch is not smaller. A SKU that sold out is shown so when its winners are known
//! completely: until then every ask goes to Redis, so that no winner hears SOLD_OUT. Pages are of one epoch, or are
//! gathered anew. Lost hints cost the time until the next pull, nothing else.

use super::desk::{Desk, News, PageState, Pull, SkuPage};
use crate::ask::Mode;
use crate::limits::{PULL_AGAIN_MS, PULL_EVERY_MS, RESERVATIONS_MAX};
use crate::port::Effects;
use crate::rng::Rng;
use crate::time::{Mono, Now};
use crate::view::{SkuView, WinnersFilter};
use alloc::sync::Arc;
use alloc::vec::Vec;
use weir_proto::ids::{SkuKey, UserId};

/// One SKU.
#[derive(Debug)]
struct Watched {
    sku: SkuKey,
    shown: Option<SkuView>,
    /// A page is under way.
    is_out: bool,
    /// Winners of the epoch that is being gathered, and where the next page begins.
    gathered: Option<Gathered>,
    /// The next pull.
    due: Mono,
}

#[derive(Debug)]
struct Gathered {
    epoch: u64,
    cursor: u64,
    users: Vec<UserId>,
}

/// See the module.
#[derive(Debug)]
pub struct Watch {
    boot: u64,
    seed: u64,
    skus: Vec<Watched>,
    nobody: Arc<WinnersFilter>,
}

impl Watch {
    /// `boot`: this run of the instance, larger than any before; `seed`: keys the winners' filters.
    pub fn new(skus: impl Iterator<Item = SkuKey>, boot: u64, seed: u64) -> Self {
        let watched = skus.map(|sku| Watched {
            sku,
            shown: None,
            is_out: false,
            gathered: None,
            due: Mono(0),
        });
        Self {
            boot,
            seed,
            skus: watched.collect(),
            nobody: Arc::new(WinnersFilter::default()),
        }
    }

    /// What is known of each SKU that anything is known of.
    pub fn shown(&self) -> impl Iterator<Item = &SkuView> {
        self.skus
            .iter()
            .filter_map(|watched| watched.shown.as_ref())
    }

    /// Every SKU is looked at in the next turn.
    pub fn look_now(&mut self, now: Now) {
        for watched in &mut self.skus {
            watched.due = now.mono;
        }
    }

    /// Sends the pulls that are due.
    pub fn turn(&mut self, now: Now, desk: &mut Desk, fx: &mut Effects) {
        for watched in &mut self.skus {
            if watched.is_out || watched.due > now.mono {
                continue;
            }
            let (cursor, with_winners) = match &watched.gathered {
                Some(gathered) => (gathered.cursor, true),
                None => (0, false),
            };
            let pull = Pull::Snapshot {
                cursor,
                with_winners,
            };
            watched.is_out = desk.pull(now, watched.sku, pull, fx);
            if !watched.is_out {
                watched.due = now.mono.plus_ms(PULL_AGAIN_MS); // a greeting makes it earlier
            }
        }
    }

    /// When [`Self::turn`] has something to do.
    pub fn next_deadline(&self) -> Option<Mono> {
        let idle = self.skus.iter().filter(|watched| !watched.is_out);
        idle.map(|watched| watched.due).min()
    }

    /// Takes what the desk heard; a view is to be shown to every shard, also when nothing in it is new: it renews marks.
    pub fn hear(&mut self, now: Now, news: News) -> Option<SkuView> {
        match news {
            News::Greeted => {
                self.look_now(now);
                None
            }
            News::Hint { sku, epoch } => {
                let watched = self.find(sku)?;
                let is_newer = |view: &SkuView| view.stock_epoch < epoch;
                if watched.shown.as_ref().is_none_or(is_newer) {
                    watched.due = now.mono;
                }
                None
            }
            News::PullLost(sku, Pull::Snapshot { .. }) => {
                let watched = self.find(sku)?;
                watched.is_out = false;
                watched.gathered = None;
                watched.due = now.mono.plus_ms(PULL_AGAIN_MS);
                None
            }
            News::Page(page) => self.page(now, *page),
            News::Stepped(sku, _) => {
                self.find(sku)?.due = now.mono;
                None
            }
            // Not what is shown.
            News::PullLost(..)
            | News::Outbox(_)
            | News::Taken(..)
            | News::Resolve(_)
            | News::Offered(..)
            | News::Budget(..) => None,
        }
    }

    fn find(&mut self, sku: SkuKey) -> Option<&mut Watched> {
        self.skus.iter_mut().find(|watched| watched.sku == sku)
    }

    fn page(&mut self, now: Now, page: SkuPage) -> Option<SkuView> {
        let (boot, seed, nobody) = (self.boot, self.seed, Arc::clone(&self.nobody));
        let watched = self.find(page.sku)?;
        watched.is_out = false;
        watched.due = now.mono.plus_ms(PULL_EVERY_MS);
        let Some(state) = page.state else {
            watched.gathered = None;
            return Some(watched.show(never_opened(page.sku, boot, nobody)));
        };
        let shown = watched.shown.as_ref();
        if shown.is_some_and(|view| view.stock_epoch > state.sku.epoch) {
            watched.gathered = None; // of a server that lags behind: the larger epoch stays
            return None;
        }
        let winners = if state.sku.sold_out {
            watched.winners(now, &state, seed ^ boot)?
        } else {
            watched.gathered = None;
            nobody
        };
        let view = SkuView {
            sku: page.sku,
            boot,
            version: state.version,
            stock_epoch: state.sku.epoch,
            sold_out: state.sku.sold_out,
            open: state.sku.open,
            mode: if state.frozen.is_empty() && state.fence.as_bytes().is_empty() {
                state.sku.mode
            } else {
                state.sku.mode.max(Mode::QueueOnly)
            },
            poisoned: false,
            winners,
        };
        Some(watched.show(view))
    }
}

impl Watched {
    /// Shards take only what is newer than what they have: a stock that was lost and came back counts from 1 again.
    fn show(&mut self, mut view: SkuView) -> SkuView {
        if let Some(shown) = &self.shown {
            let is_same = SkuView {
                version: shown.version,
                ..view.clone()
            } == *shown;
            let newer = shown.version + u64::from(!is_same);
            view.version = view.version.max(newer);
        }
        self.shown = Some(view.clone());
        view
    }

    /// The winners of a SKU that is sold out; `None`: more pages are needed, and asked for at once.
    fn winners(&mut self, now: Now, state: &PageState, seed: u64) -> Option<Arc<WinnersFilter>> {
        let epoch = state.sku.epoch;
        if let Some(view) = &self.shown
            && view.sold_out
            && view.stock_epoch == epoch
        {
            return Some(Arc::clone(&view.winners)); // no grant while sold out: nobody joins them
        }
        let is_next = |gathered: &Gathered| gathered.epoch == epoch;
        if !self.gathered.as_ref().is_some_and(is_next) {
            self.gathered = Some(Gathered {
                epoch,
                cursor: 0,
                users: Vec::new(),
            });
            self.due = now.mono;
            return None;
        }
        let gathered = self.gathered.as_mut()?;
        gathered.users.extend_from_slice(&state.winners);
        gathered.cursor = state.cursor;
        if state.cursor != 0 && gathered.users.len() < RESERVATIONS_MAX as usize {
            self.due = now.mono;
            return None;
        }
        let gathered = self.gathered.take()?;
        if state.cursor != 0 {
            return None; // more than can be: never called sold out here, Redis is asked
        }
        let key = Rng::new(seed ^ self.sku.activity.0.rotate_left(32) ^ self.sku.sku.0 ^ epoch)
            .next_u64();
        let filter = WinnersFilter::build(key, gathered.users.into_iter());
        Some(Arc::new(filter))
    }
}

fn never_opened(sku: SkuKey, boot: u64, winners: Arc<WinnersFilter>) -> SkuView {
    SkuView {
        sku,
        boot,
        version: 0,
        stock_epoch: 0,
        sold_out: false,
        open: false,
        mode: Mode::Closed,
        poisoned: false,
        winners,
    }
}
