//! What becomes of an ask that came back with an error, and the commands that mend its cause: SCRIPT LOAD, the slot map.

use super::errors::{self, Meaning};
use super::{ASK_HOPS_MAX, Desk, Flight, SLOTS_REFRESH_EVERY_MS, SLOTS_REFRESH_MIN_MS, Sent};
use crate::ask::{Failure, Outcome};
use crate::planted::{self, Planted};
use crate::port::Effects;
use crate::redis::endpoint::{Redirect, RedirectKind};
use crate::redis::link::fault::LinkFault;
use crate::redis::script::Script;
use crate::redis::slots::SlotMap;
use crate::time::{Mono, Now};
use weir_proto::resp::{self, ErrorReply, Value};

impl Desk {
    /// An error reply to an ask.
    pub(super) fn refused(
        &mut self,
        now: Now,
        index: usize,
        flight: Flight,
        error: &ErrorReply<'_>,
        fx: &mut Effects,
    ) {
        let meaning = errors::meaning(error);
        // TRYAGAIN is about one slot that moves: the node's other SKUs are served.
        let is_moving = error.code == b"TRYAGAIN";
        let is_well = is_moving || matches!(meaning, Meaning::NoScript | Meaning::Elsewhere);
        self.nodes[index].breaker.heard(now.mono, is_well);
        self.count_error(error);
        match meaning {
            Meaning::NoScript if planted::is(Planted::NoScriptRefused) => {
                self.end(&flight, Outcome::Failed(Failure::Unavailable));
            }
            Meaning::NoScript => self.load_for(now, index, flight, fx),
            Meaning::Elsewhere => self.redirected(now, index, flight, error, fx),
            Meaning::NotHere => {
                self.counts.refusals += 1;
                self.nodes[index].is_retired = true;
                self.want_refresh(now);
                self.end(&flight, Outcome::Failed(Failure::Unavailable));
            }
            Meaning::NotNow => {
                self.counts.refusals += 1;
                self.want_refresh(now);
                self.end(&flight, Outcome::Failed(Failure::Unavailable));
            }
            Meaning::Open => {
                self.counts.faults += 1;
                if errors::hides_a_demotion(error) {
                    self.nodes[index].is_retired = true;
                    self.want_refresh(now);
                }
                self.end(&flight, Outcome::Unknown);
            }
        }
    }

    /// One hop more; `None` when the ask has none left and was answered.
    fn hop(&mut self, flight: Flight) -> Option<Flight> {
        if flight.hops == ASK_HOPS_MAX {
            self.end(&flight, Outcome::Failed(Failure::Unavailable));
            return None;
        }
        Some(Flight {
            hops: flight.hops + 1,
            is_asking: false,
            ..flight
        })
    }

    /// Parks the ask until its script is loaded; the first one to come back sends SCRIPT LOAD. A second NOSCRIPT of the
    /// same ask is the end: something flushes scripts faster than they are loaded.
    fn load_for(&mut self, now: Now, index: usize, flight: Flight, fx: &mut Effects) {
        let script = Script::of(&flight.ask.op);
        self.load(now, index, script, fx);
        if self.nodes[index].loading & script.bit() == 0 {
            return self.end(&flight, Outcome::Failed(Failure::Busy));
        }
        let is_asking = flight.is_asking; // the same node: it takes this one only behind ASKING, again
        if let Some(flight) = self.hop(flight) {
            let flight = Flight {
                is_asking,
                ..flight
            };
            self.nodes[index].parked.push_back(flight);
        }
    }

    /// Sends SCRIPT LOAD, unless it is under way.
    pub(super) fn load(&mut self, now: Now, index: usize, script: Script, fx: &mut Effects) {
        let node = &mut self.nodes[index];
        let bit = script.bit();
        if node.loading & bit != 0 {
            return;
        }
        let sent = node.link.send(now, Sent::Load(script), fx, |out| {
            resp::command(out, &[b"SCRIPT", b"LOAD", script.source().as_bytes()]);
        });
        if sent.is_ok() {
            node.loading |= bit;
            self.counts.loads += 1;
        }
    }

    /// SCRIPT LOAD was answered.
    pub(super) fn loaded(
        &mut self,
        now: Now,
        index: usize,
        script: Script,
        value: &Value<'_>,
        fx: &mut Effects,
    ) {
        self.nodes[index].loading &= !script.bit();
        match value {
            Value::Bulk(sha1) if *sha1 == script.sha1() => {
                self.unpark(now, index, fx);
            }
            Value::Error(_) => {
                self.counts.faults += 1;
                self.fail_parked(index);
            }
            // A text of another hash: what answers is no Redis, or changes scripts on their way.
            _ => self.lose(now, index, LinkFault::WrongShape, fx),
        }
    }

    /// MOVED or ASK: the ask goes where it points. A single server that sends us elsewhere is a node of a cluster,
    /// configured as what it is not: nothing was executed.
    fn redirected(
        &mut self,
        now: Now,
        index: usize,
        flight: Flight,
        error: &ErrorReply<'_>,
        fx: &mut Effects,
    ) {
        let is_cluster = self.config.is_cluster;
        let redirect = Redirect::parse(error, &self.nodes[index].endpoint)
            .ok()
            .flatten();
        let Some(redirect) = redirect.filter(|_| is_cluster) else {
            self.counts.faults += 1;
            self.want_refresh(now);
            return self.end(&flight, Outcome::Failed(Failure::Unavailable));
        };
        let is_asking = redirect.kind == RedirectKind::Ask;
        if !is_asking {
            if let Some(place) = self.sku_of(flight.ask.op.sku()) {
                self.slot_left(place, index);
            }
            self.want_refresh(now);
            self.routes.moved(redirect.slot, &redirect.endpoint);
        }
        let Some(node) = self.node_at(&redirect.endpoint) else {
            return self.end(&flight, Outcome::Failed(Failure::Unavailable));
        };
        if let Some(flight) = self.hop(flight) {
            self.wake(now, node, fx);
            self.launch(
                now,
                node,
                Flight {
                    is_asking,
                    ..flight
                },
                fx,
            );
        }
    }

    /// A node that was just met connects now, so that an ask can wait for it.
    fn wake(&mut self, now: Now, index: usize, fx: &mut Effects) {
        let tokens = &mut self.tokens;
        let token = || {
            *tokens += 1;
            crate::port::ConnectToken(*tokens)
        };
        if let Err(fault) = self.nodes[index].link.turn(now, token, fx) {
            self.lose(now, index, fault, fx);
        }
    }

    /// A retired node that has answered everything is greeted again.
    pub(super) fn close_retired(&mut self, now: Now, index: usize, fx: &mut Effects) {
        let node = &self.nodes[index];
        if node.is_retired && node.link.is_ready() && node.link.is_quiet() {
            self.lose(now, index, LinkFault::IsReplica, fx);
        }
    }

    /// The slot map is asked for soon; not at once for each of a batch of replies that say so.
    pub(super) fn want_refresh(&mut self, now: Now) {
        if self.config.is_cluster {
            let earliest = self
                .refreshed_at
                .map_or(now.mono, |at| at.plus_ms(SLOTS_REFRESH_MIN_MS));
            self.refresh_at = self.refresh_at.min(earliest.max(now.mono));
        }
    }

    pub(super) fn refresh_deadline(&self) -> Option<Mono> {
        let can_ask = self.nodes.iter().any(|node| node.link.is_ready());
        (self.config.is_cluster && can_ask).then_some(self.refresh_at)
    }

    pub(super) fn refresh_if_due(&mut self, now: Now, fx: &mut Effects) {
        if !self.config.is_cluster || now.mono < self.refresh_at {
            return;
        }
        // Not always the same node: one that is cut off from the others knows only an old map.
        let first = self.rng.below(self.nodes.len() as u64) as usize;
        let ready = (0..self.nodes.len())
            .map(|at| (first + at) % self.nodes.len())
            .find(|&index| self.nodes[index].link.is_ready());
        let Some(index) = ready else {
            return;
        };
        let link = &mut self.nodes[index].link;
        // SHARDS tells which nodes are well; servers before 7.0 know only SLOTS.
        let map = if link.facts().version.0 >= 7 {
            &b"SHARDS"[..]
        } else {
            b"SLOTS"
        };
        let sent = link.send(now, Sent::Slots, fx, |out| {
            resp::command(out, &[b"CLUSTER", map]);
        });
        if sent.is_ok() {
            self.counts.refreshes += 1;
            self.refreshed_at = Some(now.mono);
            self.refresh_at = now.mono.plus_ms(SLOTS_REFRESH_EVERY_MS);
        } else {
            self.refresh_at = now.mono.plus_ms(SLOTS_REFRESH_MIN_MS); // its ring is full
        }
    }

    /// The slot map came: nodes that are new get links.
    pub(super) fn slots_came(
        &mut self,
        now: Now,
        index: usize,
        value: &Value<'_>,
        fx: &mut Effects,
    ) {
        let asked = &self.nodes[index].endpoint;
        let map = match self.config.tls {
            Some(_) => SlotMap::from_reply_by_tls(value.clone(), asked),
            None => SlotMap::from_reply(value.clone(), asked),
        };
        let Ok(map) = map else {
            self.counts.faults += 1;
            return; // LOADING, NOPERM, no cluster: the timer asks again
        };
        for endpoint in map.masters() {
            if let Some(node) = self.node_at(endpoint) {
                self.wake(now, node, fx);
            }
        }
        self.routes.take(map);
    }
}
