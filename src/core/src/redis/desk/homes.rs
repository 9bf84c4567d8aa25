//! Which node has granted units of a SKU, and whether another that now has its slot got it by a migration (F6).
//!
//! A slot that was migrated brings every grant along; a replica that was promoted may lack some that were acknowledged.
//! Only the old node can tell them apart: a node whose slots a promoted replica has taken becomes a replica itself in the
//! same step (Redis, `src/cluster.c`, `clusterUpdateSlotsConfigWith`), one that gave a slot away stays a master. So it is
//! asked twice in a row: for the slot (MOVED), then for its role and history. Until it has vouched, nothing is granted.

use super::{Desk, Sent};
use crate::limits::HOME_ASK_EVERY_MS;
use crate::port::Effects;
use crate::redis::endpoint::{Redirect, RedirectKind};
use crate::redis::link::greeting::ServerFacts;
use crate::time::{Mono, Now};
use weir_proto::resp::{self, Value};

/// The node that a SKU's grants were made at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    /// Its place.
    node: usize,
    /// It answered an ask of this SKU last then.
    heard_at: Mono,
    /// Its word on another node that has the slot.
    word: Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Unasked,
    /// Asked about the node at that place; `gave`: it said that the slot is there.
    Asked {
        about: usize,
        gave: bool,
    },
    /// It cannot or does not vouch; it is asked again later.
    Denied(Mono),
}

/// Whether a node may be asked for a grant.
pub(super) enum Standing {
    Fine,
    /// Its predecessor is being asked.
    Open,
    /// It may lack grants.
    Changed,
}

impl Desk {
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
        if self.nodes[index].has_changed {
            return Standing::Changed;
        }
        let Some(home) = self.skus[place].home.filter(|home| home.node != index) else {
            return Standing::Fine;
        };
        match home.word {
            Word::Asked { about, .. } if about == index => return Standing::Open,
            Word::Asked { .. } => {} // about another; a later ask finds the answer
            _ if !self.is_known(home, index) => self.deny(now, place),
            _ if is_asking => return Standing::Fine,
            Word::Denied(at) if now.mono < at.plus_ms(HOME_ASK_EVERY_MS) => {}
            Word::Denied(_) | Word::Unasked => {
                if self.ask_home(now, place, index, fx) {
                    return Standing::Open;
                }
                self.deny(now, place);
            }
        }
        Standing::Changed
    }

    /// True when the node at `index` may lack grants of the SKU at `place`, as far as is known.
    pub(super) fn is_doubted(&self, place: usize, index: usize) -> bool {
        let denied = |home: Home| home.node != index && matches!(home.word, Word::Denied(_));
        self.nodes[index].has_changed || self.skus[place].home.is_some_and(denied)
    }

    /// True when the history of the node at `index` is known for as long as the SKU may have been there: it was met
    /// before the SKU was last heard of at home, or has never been a replica.
    fn is_known(&self, home: Home, index: usize) -> bool {
        let node = &self.nodes[index];
        let was_met = node.met_at.is_some_and(|at| at <= home.heard_at);
        was_met || !node.link.facts().was_promoted
    }

    fn deny(&mut self, now: Now, place: usize) {
        if let Some(home) = &mut self.skus[place].home {
            home.word = Word::Denied(now.mono);
        }
    }

    /// Asks for the slot and for the role, one after the other on one link; false: it cannot be asked.
    fn ask_home(&mut self, now: Now, place: usize, about: usize, fx: &mut Effects) -> bool {
        let sku = &mut self.skus[place];
        let Some(home) = &mut sku.home else {
            return false;
        };
        let node = &mut self.nodes[home.node];
        if node.has_changed || node.link.room() < 2 {
            return false;
        }
        // A slot is looked at before a script is: not a unit is touched, whoever has it.
        let slot = node
            .link
            .send(now, Sent::HomeSlot(place as u16), fx, |out| {
                sku.steps.push_snapshot(0, 0, out);
            });
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
            home.word = Word::Asked { about, gave: false };
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
        if let Some(home) = &mut self.skus[usize::from(place)].home
            && home.node == index
            && let Word::Asked { about, gave } = &mut home.word
        {
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
        let node = &mut self.nodes[index];
        let is_same = facts.is_some_and(|facts| {
            facts.is_master && facts.replication_id == node.link.facts().replication_id
        });
        if facts.is_some() && !is_same {
            node.is_retired = true; // it is greeted again, and what it became is seen
        }
        // Otherwise an operator has trusted the other meanwhile.
        if let Some(home) = self.skus[place].home.filter(|home| home.node == index)
            && let Word::Asked { gave, .. } = home.word
        {
            if gave && is_same {
                self.skus[place].home = Some(Home::new(about, now.mono));
            } else {
                self.deny(now, place);
                self.want_refresh(now);
            }
        }
        self.unpark(now, about, fx);
    }

    /// The node at `index` has answered an ask of that SKU.
    pub(super) fn heard_from(&mut self, now: Now, place: usize, index: usize) {
        let home = &mut self.skus[place].home;
        let home = home.get_or_insert(Home::new(index, now.mono));
        if home.node == index {
            home.heard_at = now.mono;
        }
    }

    /// True when the node at `index` has the slot of a SKU and nobody vouches for it.
    pub(super) fn is_stranger(&self, index: usize) -> bool {
        let mut skus = self.skus.iter().enumerate();
        skus.any(|(place, sku)| {
            let denied = |home: Home| home.node != index && matches!(home.word, Word::Denied(_));
            sku.home.is_some_and(denied) && self.node_of(place) == Some(index)
        })
    }

    /// From here on the node at `index` is the home of every SKU whose slot it has.
    pub(super) fn settle(&mut self, index: usize) {
        let met_last = self.nodes.iter().filter_map(|node| node.met_at).max();
        for place in 0..self.skus.len() {
            if self.node_of(place) == Some(index) {
                self.skus[place].home = Some(Home::new(index, met_last.unwrap_or(Mono(0))));
            }
        }
    }
}

impl Home {
    fn new(node: usize, heard_at: Mono) -> Self {
        Self {
            node,
            heard_at,
            word: Word::Unasked,
        }
    }
}
