//! What a desk hears beside answers: events as hints, and pages of snapshots as truth (E2).

use super::{Desk, Sent};
use crate::ledger::SkuState;
use crate::limits::{DESK_NEWS_MAX, PAGE_USERS};
use crate::port::Effects;
use crate::redis::endpoint::Endpoint;
use crate::redis::link::fault::LinkFault;
use crate::redis::reply;
use crate::redis::script::Script;
use crate::time::Now;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use weir_proto::ids::{SkuKey, UserId};
use weir_proto::resp::{self, Value};

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
    /// A page that was pulled did not come and will not.
    PageLost(SkuKey),
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

    /// Asks for a page of a SKU's snapshot, with winners or without. One answer comes as [`News::Page`] or
    /// [`News::PageLost`]. False: it cannot be asked now.
    pub fn pull(
        &mut self,
        now: Now,
        sku: SkuKey,
        cursor: u64,
        with_winners: bool,
        fx: &mut Effects,
    ) -> bool {
        let Some(place) = self.sku_of(sku) else {
            return false;
        };
        let Some(index) = self.node_of(place) else {
            return false;
        };
        let steps = &self.skus[place].steps;
        let users = if with_winners { PAGE_USERS } else { 0 };
        let sent = Sent::Page(place as u16);
        let link = &mut self.nodes[index].link;
        let sent = link.send(now, sent, fx, |out| steps.push_snapshot(cursor, users, out));
        sent.is_ok()
    }

    pub(super) fn page_lost(&mut self, sku: u16) {
        let sku = self.skus[usize::from(sku)].steps.plan().sku;
        self.news.push_back(News::PageLost(sku));
    }

    pub(super) fn page_came(
        &mut self,
        now: Now,
        index: usize,
        place: u16,
        value: &Value<'_>,
        fx: &mut Effects,
    ) {
        if let Value::Error(error) = value {
            self.page_lost(place);
            match error.code {
                b"NOSCRIPT" => self.load(now, index, Script::Snapshot, fx),
                b"MOVED" | b"ASK" | b"CLUSTERDOWN" => self.want_refresh(now),
                _ => self.counts.faults += 1,
            }
            return;
        }
        let sku = self.skus[usize::from(place)].steps.plan().sku;
        let page = reply::page(sku, value).and_then(|page| {
            let Some(page) = page else {
                return Ok(None);
            };
            Ok(Some(PageState {
                sku: page.state,
                version: page.version,
                frozen: String::from_utf8_lossy(page.frozen).into_owned(),
                cursor: page.cursor,
                winners: page.winners.collect::<Result<_, _>>()?,
            }))
        });
        match page {
            Ok(state) => self
                .news
                .push_back(News::Page(Box::new(SkuPage { state, sku }))),
            Err(_) => {
                self.page_lost(place);
                self.lose(now, index, LinkFault::WrongShape, fx);
            }
        }
    }

    /// Listens to the events of every SKU; where only RESP2 is spoken the timer alone must do.
    pub(super) fn subscribe(&mut self, index: usize, fx: &mut Effects) {
        self.news.push_back(News::Greeted);
        let link = &mut self.nodes[index].link;
        if !self.config.hears_events || !link.facts().is_resp3 {
            return;
        }
        let channels = self.skus.iter().map(|sku| sku.channel.as_bytes());
        let words: Vec<&[u8]> = core::iter::once(&b"SUBSCRIBE"[..])
            .chain(channels)
            .collect();
        link.say(fx, |out| resp::command(out, &words));
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
