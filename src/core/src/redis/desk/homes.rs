//! Whether the node that has a SKU's slot has its books, too (F6): before the first grant on a link, and ever after.
//!
//! The books name the server where they are right ([`ServerFacts::home`]). A replica that was promoted, or a server that
//! was started again, has another name and may lack grants that were acknowledged: nothing is granted there until the
//! books are mended and carry its name. A slot that was migrated brings every grant along; only the node that they name
//! can tell: one whose slots a promoted replica has taken becomes a replica itself in the same step (Redis,
//! `src/cluster.c`, `clusterUpdateSlotsConfigWith`), one that gave a slot away stays a master. So it is asked twice in a
//! row, for the slot (MOVED) and for its role; if it vouches, the books get the new name. A link may outlive the role in
//! which it was greeted, there and back: so every look at books has a look at the role before it, and a slot that was
//! lost once is looked at anew.

use super::{Desk, PageState, Pull, Sent};
use crate::limits::HOME_ASK_EVERY_MS;
use crate::planted::{self, Planted};
use crate::port::Effects;
use crate::redis::endpoint::{Redirect, RedirectKind};
use crate::redis::link::greeting::{HomeId, ServerFacts};
use crate::redis::reply::{self, Stepped};
use crate::redis::script::Script;
use crate::redis::step::Rehomed;
use crate::time::{Mono, Now};
use weir_proto::ids::SkuKey;
use weir_proto::resp::{self, Value};

/// What is known of a SKU's home.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Home {
    /// The books are at the node of that place, as its link of that number said.
    fine: Option<(usize, u64)>,
    /// It answered for this SKU last then; `None`: never.
    heard_at: Option<Mono>,
    /// The largest epoch that was seen there: older books are those of a server that lags behind.
    epoch: u64,
    /// The node at that place had not got the books when it was asked last.
    stranger: Option<usize>,
    word: Word,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Word {
    #[default]
    Unasked,
    /// The node at that place was asked for its books.
    Books(usize),
    /// The books' home was asked about the node at that place; `gave`: it said that the slot is there.
    Asked { about: usize, gave: bool },
    /// The books at that node are getting its name.
    Naming(usize),
    /// The node at that place has not got the books; it is asked again later.
    Denied(usize, Mono),
}

/// Whether a node may be asked for a grant.
pub(super) enum Standing {
    Fine,
    /// It is being found out.
    Open,
    /// It may lack grants.
    Changed,
}

impl Desk {
    /// True when the node that has that SKU's slot has its books, too, as far as is known.
    pub fn is_at_home(&self, sku: SkuKey) -> bool {
        let place = self.sku_of(sku);
        place.is_some_and(|place| {
            self.node_of(place)
                .is_some_and(|index| self.is_fine(place, index))
        })
    }

    /// The name of the server that has that SKU's slot and not its books: they must be mended. `None`: all is well, or
    /// nothing is known.
    pub fn stranger(&self, sku: SkuKey) -> Option<HomeId> {
        let place = self.sku_of(sku)?;
        let index = self.node_of(place)?;
        let is_stranger = self.skus[place].home.stranger == Some(index);
        self.here(sku).filter(|_| is_stranger)
    }

    /// The name of the server that has that SKU's slot, while it can be asked.
    pub fn here(&self, sku: SkuKey) -> Option<HomeId> {
        let place = self.sku_of(sku)?;
        let node = &self.nodes[self.node_of(place)?];
        (node.link.is_ready() && !node.is_retired).then(|| node.link.home())
    }

    /// The largest epoch that was seen of the SKU at that place.
    pub(super) fn epoch_of(&self, place: usize) -> u64 {
        self.skus[place].home.epoch
    }

    pub(super) fn is_fine(&self, place: usize, index: usize) -> bool {
        self.skus[place].home.fine == Some((index, self.nodes[index].greetings))
    }

    /// Whether the node at `index` may grant units of the SKU at `place`; `is_asking`: the node that has the slot sends
    /// this one ask there.
    pub(super) fn standing(
        &mut self,
        now: Now,
        place: usize,
        index: usize,
        is_asking: bool,
        fx: &mut Effects,
    ) -> Standing {
        if self.is_fine(place, index) || planted::is(Planted::HomeUnchecked) {
            return Standing::Fine;
        }
        let home = self.skus[place].home;
        if is_asking {
            let has_home = home.fine.is_some_and(|(at, _)| at != index);
            return match has_home && self.is_known(&home, index) {
                true => Standing::Fine,
                false => Standing::Changed,
            };
        }
        match home.word {
            Word::Books(at) | Word::Naming(at) | Word::Asked { about: at, .. } if at == index => {
                return Standing::Open;
            }
            Word::Denied(at, since)
                if at == index && now.mono < since.plus_ms(HOME_ASK_EVERY_MS) => {}
            // What is out about another node is answered first; a later ask finds out.
            Word::Books(_) | Word::Naming(_) | Word::Asked { .. } => {}
            Word::Denied(..) | Word::Unasked => {
                if self.ask_books(now, place, index, fx) {
                    return Standing::Open;
                }
            }
        }
        Standing::Changed
    }

    /// The name that the books of the SKU at `place` must carry at the node at `index`: its own; and while their slot is on
    /// its way there, that of the node that gives it.
    pub(super) fn name_for(&self, place: usize, index: usize, is_asking: bool) -> HomeId {
        let from = self.skus[place].home.fine.filter(|_| is_asking);
        let at = from.map_or(index, |(at, _)| at);
        self.nodes[at].link.home()
    }

    /// True when the history of the node at `index` is known for as long as the SKU may have been there: it was met
    /// before the SKU was last heard of at home, or has never been a replica.
    fn is_known(&self, home: &Home, index: usize) -> bool {
        let node = &self.nodes[index];
        let was_met = home
            .heard_at
            .zip(node.met)
            .is_some_and(|(heard, (name, at))| name == node.link.home() && at <= heard);
        was_met || !node.link.facts().was_promoted
    }

    pub(super) fn deny(&mut self, now: Now, place: usize, index: usize, fx: &mut Effects) {
        let home = &mut self.skus[place].home;
        home.word = Word::Denied(index, now.mono);
        home.stranger = Some(index);
        home.fine = home.fine.filter(|(at, _)| *at != index);
        self.unpark(now, index, fx);
    }

    /// Asks which history of writes the server has now, once a turn for all its SKUs; false: it cannot be asked.
    pub(super) fn ask_role(&mut self, now: Now, index: usize, fx: &mut Effects) -> bool {
        let node = &mut self.nodes[index];
        if node.link.room() < 2 {
            return false; // what is read behind it must follow
        }
        let this_turn = Some((now.mono, node.greetings));
        if node.role_asked == this_turn {
            return true;
        }
        let sent = node.link.send(now, Sent::Role, fx, |out| {
            resp::command(out, &[b"INFO", b"replication"]);
        });
        if sent.is_ok() {
            node.role_asked = this_turn;
        }
        sent.is_ok()
    }

    /// Another role, or another history: it is greeted again before anything rests on what it says.
    pub(super) fn role_came(&mut self, now: Now, index: usize, value: &Value<'_>) {
        if !self.is_as_greeted(index, ServerFacts::of_info(value)) {
            self.nodes[index].is_retired = true;
            self.want_refresh(now);
        }
    }

    /// True when the node at `index` is the master, with the history, that its link was greeted by.
    fn is_as_greeted(&self, index: usize, facts: Option<ServerFacts>) -> bool {
        let greeted = self.nodes[index].link.facts().replication_id;
        facts.is_some_and(|facts| facts.is_master && facts.replication_id == greeted)
    }

    /// The node at `index` has lost the slot of the SKU at `place`, be it for a moment.
    pub(super) fn slot_left(&mut self, place: usize, index: usize) {
        let home = &mut self.skus[place].home;
        home.fine = home.fine.filter(|(at, _)| *at != index);
    }

    fn ask_books(&mut self, now: Now, place: usize, index: usize, fx: &mut Effects) -> bool {
        if !self.ask_role(now, index, fx) {
            return false;
        }
        let (steps, node) = (&self.skus[place].steps, &mut self.nodes[index]);
        let sent = node.link.send(now, Sent::Books(place as u16), fx, |out| {
            steps.push_snapshot(0, 0, out);
        });
        if sent.is_ok() {
            self.skus[place].home.word = Word::Books(index);
        }
        sent.is_ok()
    }

    /// The books that were asked for by [`Self::standing`]; `None`: they will not come.
    pub(super) fn books_came(
        &mut self,
        now: Now,
        index: usize,
        place: u16,
        value: Option<&Value<'_>>,
        fx: &mut Effects,
    ) {
        let place = usize::from(place);
        let sku = self.skus[place].steps.plan().sku;
        if let Some(Value::Error(error)) = value {
            if error.code == b"NOSCRIPT" {
                self.load(now, index, Pull::SNAPSHOT.script(), fx);
            } else {
                self.want_refresh(now);
            }
        }
        let page = value.map(|value| reply::page(sku, value));
        let seen = page
            .and_then(Result::ok)
            .map(|page| page.map(|page| (page.home, page.fence, page.state.epoch)));
        let home = &mut self.skus[place].home;
        if home.word == Word::Books(index) {
            home.word = Word::Unasked;
        }
        match seen {
            Some(seen) => self.judge(now, index, place, seen, fx),
            None if self.nodes[index].loading == 0 => self.fail_parked(index),
            None => {} // what is parked goes on once the script is loaded
        }
    }

    /// Takes a snapshot that was pulled for another reason.
    pub(super) fn page_came(
        &mut self,
        now: Now,
        index: usize,
        place: usize,
        page: Option<&PageState>,
        fx: &mut Effects,
    ) {
        let seen = page.map(|page| (page.home, page.fence, page.sku.epoch));
        match self.skus[place].home.word {
            Word::Asked { .. } | Word::Naming(_) => {} // it is being found out
            _ => self.judge(now, index, place, seen, fx),
        }
    }

    /// Holds books against the node that shows them. `seen`: home, fence and epoch; `None`: the SKU is not there.
    fn judge(
        &mut self,
        now: Now,
        index: usize,
        place: usize,
        seen: Option<(HomeId, HomeId, u64)>,
        fx: &mut Effects,
    ) {
        if self.nodes[index].is_retired {
            return self.fail_parked(index); // its name is an old one
        }
        let here = self.nodes[index].link.home();
        let home = self.skus[place].home;
        let Some((at, fence, epoch)) = seen else {
            // Never opened, or lost.
            return match home.epoch {
                0 => self.vouch(now, index, place, fx),
                _ => self.deny(now, place, index, fx),
            };
        };
        if at == here && fence.as_bytes().is_empty() && epoch >= home.epoch {
            self.skus[place].home.epoch = epoch;
            return self.vouch(now, index, place, fx);
        }
        let mut nodes = self.nodes.iter();
        let from = nodes.position(|node| node.link.is_ready() && node.link.home() == at);
        let may_have_moved =
            fence.as_bytes().is_empty() && epoch >= home.epoch && self.is_known(&home, index);
        match from.filter(|&from| may_have_moved && from != index) {
            Some(from) if self.ask_home(now, place, from, index, fx) => {}
            _ => self.deny(now, place, index, fx),
        }
    }

    fn vouch(&mut self, now: Now, index: usize, place: usize, fx: &mut Effects) {
        let greetings = self.nodes[index].greetings;
        let home = &mut self.skus[place].home;
        let is_new = home.fine != Some((index, greetings));
        home.fine = Some((index, greetings));
        home.heard_at = Some(now.mono);
        home.stranger = None;
        home.word = Word::Unasked;
        if is_new {
            self.unpark(now, index, fx);
        }
    }

    /// Asks the node at `from` for the slot and for its role, one after the other on one link; false: it cannot be asked.
    fn ask_home(
        &mut self,
        now: Now,
        place: usize,
        from: usize,
        about: usize,
        fx: &mut Effects,
    ) -> bool {
        let (sku, node) = (&mut self.skus[place], &mut self.nodes[from]);
        if node.is_retired || node.link.room() < 2 {
            return false;
        }
        // A slot is looked at before a script is: not a unit is touched, whoever has it.
        let asked = Sent::HomeSlot(place as u16);
        let slot = node
            .link
            .send(now, asked, fx, |out| sku.steps.push_snapshot(0, 0, out));
        if slot.is_err() {
            return false;
        }
        let role = Sent::HomeRole {
            sku: place as u16,
            about: about as u16,
        };
        let role = node.link.send(now, role, fx, |out| {
            resp::command(out, &[b"INFO", b"replication"]);
        });
        if role.is_ok() {
            sku.home.word = Word::Asked { about, gave: false };
        }
        role.is_ok()
    }

    /// The home's answer for the slot.
    pub(super) fn home_slot_came(&mut self, index: usize, place: u16, value: &Value<'_>) {
        let asked = &self.nodes[index].endpoint;
        let moved = match value {
            Value::Error(error) => Redirect::parse(error, asked).ok().flatten(),
            _ => None,
        };
        let moved = moved.filter(|redirect| redirect.kind == RedirectKind::Moved);
        let to = moved.and_then(|redirect| self.index_at(&redirect.endpoint));
        if let Word::Asked { about, gave } = &mut self.skus[usize::from(place)].home.word {
            *gave = to == Some(*about);
        }
    }

    /// The home's role: the verdict. `None`: it will not come.
    pub(super) fn home_role_came(
        &mut self,
        now: Now,
        index: usize,
        (place, about): (u16, u16),
        value: Option<&Value<'_>>,
        fx: &mut Effects,
    ) {
        let (place, about) = (usize::from(place), usize::from(about));
        let facts = value.and_then(ServerFacts::of_info);
        let is_same = self.is_as_greeted(index, facts);
        let node = &mut self.nodes[index];
        if facts.is_some() && !is_same {
            node.is_retired = true; // it is greeted again, and what it became is seen
        }
        let from = node.link.home();
        let gave = matches!(self.skus[place].home.word, Word::Asked { about: at, gave: true } if at == about);
        if gave && is_same && self.name_books(now, place, &from, about, fx) {
            return;
        }
        if !gave {
            self.want_refresh(now);
        }
        self.deny(now, place, about, fx);
    }

    /// The books came with the slot: they get the name of the node that has them now.
    fn name_books(
        &mut self,
        now: Now,
        place: usize,
        from: &HomeId,
        index: usize,
        fx: &mut Effects,
    ) -> bool {
        let (sku, node) = (&mut self.skus[place], &mut self.nodes[index]);
        let here = node.link.home();
        let sent = node.link.send(now, Sent::Named(place as u16), fx, |out| {
            sku.steps.push_rehome(&Rehomed::Moved(*from), &here, 0, out);
        });
        if sent.is_ok() {
            sku.home.word = Word::Naming(index);
        }
        sent.is_ok()
    }

    /// Whether the books have the new name; `None`: nobody knows.
    pub(super) fn named(
        &mut self,
        now: Now,
        index: usize,
        place: u16,
        value: Option<&Value<'_>>,
        fx: &mut Effects,
    ) {
        let place = usize::from(place);
        if let Some(Value::Error(error)) = value
            && error.code == b"NOSCRIPT"
        {
            self.load(now, index, Script::Rehome, fx);
        }
        let stepped = value.and_then(|value| reply::stepped(value).ok().flatten());
        if self.skus[place].home.word != Word::Naming(index) {
            return;
        }
        match stepped {
            Some(Stepped { changed: true, .. }) => self.vouch(now, index, place, fx),
            // Another instance may have been faster: the books say.
            _ => {
                self.skus[place].home.word = Word::Unasked;
                if !self.ask_books(now, place, index, fx) {
                    self.deny(now, place, index, fx);
                }
            }
        }
    }

    /// The node at `index` has answered an ask of that SKU, in that epoch if it said one.
    pub(super) fn heard_from(&mut self, now: Now, place: usize, index: usize, epoch: Option<u64>) {
        if self.is_fine(place, index) {
            let home = &mut self.skus[place].home;
            home.heard_at = Some(now.mono);
            home.epoch = home.epoch.max(epoch.unwrap_or(0));
        }
    }

    /// True when the node at `index` has the slot of a SKU and not its books.
    pub(super) fn is_stranger(&self, index: usize) -> bool {
        let mut skus = self.skus.iter().enumerate();
        skus.any(|(place, sku)| {
            sku.home.stranger == Some(index) && self.node_of(place) == Some(index)
        })
    }
}
