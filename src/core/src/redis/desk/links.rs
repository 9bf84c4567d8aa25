//! The desk's connections: their events, what is lost with one, and what time asks of them.

use super::{Desk, News, Sent, address_of};
use crate::ask::{Failure, Outcome};
use crate::planted::{self, Planted};
use crate::port::{ConnId, ConnectError, ConnectToken, Effects, Input};
use crate::redis::endpoint::Endpoint;
use crate::redis::link::Took;
use crate::redis::link::fault::LinkFault;
use crate::time::Now;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

impl Desk {
    /// The answer to [`News::Resolve`]; `None`: the name has no address, it is asked for again later.
    pub fn resolved(&mut self, now: Now, endpoint: &Endpoint, to: Option<SocketAddr>) {
        let Some(index) = self.index_at(endpoint) else {
            return;
        };
        let node = &mut self.nodes[index];
        node.is_resolving = false;
        match to {
            Some(_) => node.link.set_to(to),
            None => {
                node.link.unresolved(now, &mut self.rng);
                let word = LinkFault::NoAddress.word();
                *self.link_faults.entry(word).or_default() += 1;
            }
        }
    }

    /// A connect of this desk succeeded; `false`: it is not this desk's.
    pub fn connected(
        &mut self,
        now: Now,
        conn: ConnId,
        token: ConnectToken,
        fx: &mut Effects,
    ) -> bool {
        let mut nodes = self.nodes.iter_mut();
        let Some(node) = nodes.find(|node| node.link.awaits(token)) else {
            return false;
        };
        node.link.connected(now, conn, fx);
        true
    }

    /// A connect of this desk failed; `false`: it is not this desk's.
    pub fn connect_failed(&mut self, now: Now, token: ConnectToken, error: ConnectError) -> bool {
        let mut nodes = 0..self.nodes.len();
        let Some(index) = nodes.find(|&index| self.nodes[index].link.awaits(token)) else {
            return false;
        };
        let node = &mut self.nodes[index];
        node.link.connect_failed(now, error, &mut self.rng);
        let word = LinkFault::Connect(error).word();
        *self.link_faults.entry(word).or_default() += 1;
        node.link.set_to(address_of(&node.endpoint));
        self.fail_parked(index);
        self.want_refresh(now); // another may have its slots by now
        true
    }

    /// A connection of this desk is gone; `false`: it is not this desk's.
    pub fn closed(&mut self, now: Now, conn: ConnId, fx: &mut Effects) -> bool {
        let Some(index) = self.index_of(conn) else {
            return false;
        };
        self.lose(now, index, LinkFault::Closed, fx);
        self.nodes[index].link.closed();
        true
    }

    fn index_of(&self, conn: ConnId) -> Option<usize> {
        self.nodes.iter().position(|node| node.link.owns(conn))
    }

    /// Bytes came; `false`: the connection is not this desk's.
    pub fn received(
        &mut self,
        now: Now,
        conn: ConnId,
        input: &mut Input<'_>,
        fx: &mut Effects,
    ) -> bool {
        let Some(index) = self.index_of(conn) else {
            return false;
        };
        loop {
            let link = &mut self.nodes[index].link;
            if link.is_closing() {
                input.consume(input.bytes().len());
                return true;
            }
            match link.take(now, input.bytes(), fx) {
                Took::Reply { to, value, bytes } => {
                    self.replied(now, index, to, &value, fx);
                    input.consume(bytes);
                }
                Took::Push { value, bytes } => {
                    self.pushed(&value);
                    input.consume(bytes);
                }
                Took::Own {
                    bytes,
                    became_ready,
                } => {
                    input.consume(bytes);
                    if became_ready {
                        self.became_ready(now, index, fx);
                    }
                }
                Took::NeedMore => break,
                Took::Fault(fault) => self.lose(now, index, fault, fx),
            }
        }
        if input.ended() {
            self.lose(now, index, LinkFault::Closed, fx);
        }
        true
    }

    fn became_ready(&mut self, now: Now, index: usize, fx: &mut Effects) {
        let node = &mut self.nodes[index];
        node.is_retired = false;
        node.loading = 0;
        node.greetings += 1;
        let name = node.link.home();
        if node.met.is_none_or(|(met, _)| met != name) {
            node.met = Some((name, now.mono));
        }
        if self.config.is_cluster && self.refreshed_at.is_none() {
            self.refresh_at = now.mono;
        }
        self.news.push_back(News::Greeted);
        self.unpark(now, index, fx);
        self.refresh_if_due(now, fx);
    }

    /// Closes a node's link: what was written is unknown, what was parked was not executed.
    pub(super) fn lose(&mut self, now: Now, index: usize, fault: LinkFault, fx: &mut Effects) {
        let node = &mut self.nodes[index];
        if node.link.is_closing() {
            return;
        }
        self.counts.lost += 1;
        *self.link_faults.entry(fault.word()).or_default() += 1;
        let lost: Vec<Sent> = node.link.fail(now, fault, &mut self.rng, fx).collect();
        let mut resent = VecDeque::new(); // empty but for a planted fault
        for sent in lost {
            match sent {
                Sent::Pull(sku, pull) => {
                    self.counts.draws_unknown += u64::from(pull.is_draw());
                    self.pull_lost(sku, pull);
                }
                Sent::Ask(flight) => {
                    self.nodes[index].breaker.heard(now.mono, false);
                    if planted::is(Planted::ResentOnTimeout) {
                        resent.push_back(flight);
                    } else if planted::is(Planted::UnknownCalledFailed) {
                        self.end(&flight, Outcome::Failed(Failure::Unavailable));
                    } else {
                        self.end(&flight, Outcome::Unknown);
                    }
                }
                Sent::HomeRole { sku, about } => {
                    self.home_role_came(now, index, (sku, about), None, fx);
                }
                Sent::Books(sku) => self.books_came(now, index, sku, None, fx),
                Sent::Named(sku) => self.named(now, index, sku, None, fx),
                Sent::Asking
                | Sent::Role
                | Sent::Load(_)
                | Sent::Slots
                | Sent::HomeSlot(_)
                | Sent::Mark
                | Sent::Wait => {}
            }
        }
        self.forget_batch(index);
        self.fail_parked(index);
        let node = &mut self.nodes[index];
        node.parked.append(&mut resent);
        node.loading = 0;
        node.link.set_to(address_of(&node.endpoint)); // a name is resolved anew
        self.want_refresh(now);
    }

    /// Closes every link: the part ends. Its owner has waited for what was asked.
    pub fn close(&mut self, fx: &mut Effects) {
        for node in &self.nodes {
            node.link.close(fx);
        }
    }

    /// Timed work: connects, pings, timeouts, asks that waited too long, the slot map.
    pub fn turn(&mut self, now: Now, fx: &mut Effects) {
        for index in 0..self.nodes.len() {
            let tokens = &mut self.tokens;
            let token = || {
                *tokens += 1;
                ConnectToken(*tokens)
            };
            if let Err(fault) = self.nodes[index].link.turn(now, token, fx) {
                self.lose(now, index, fault, fx);
            }
            self.drop_expired(now, index);
            self.follow(now, index, fx);
            let node = &mut self.nodes[index];
            if node.link.lacks_address(now) && !node.is_resolving {
                node.is_resolving = true;
                self.news
                    .push_back(News::Resolve(Box::new(node.endpoint.clone())));
            }
        }
        self.refresh_if_due(now, fx);
    }
}
