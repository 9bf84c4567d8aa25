//! The door: who may hold a connection of this shard (A2), and who is denied by address (A6). Asked once per connection, before anything is read of it.
//!
//! The source of a connection is the socket's peer; behind the PROXY protocol it is the client that the header names.
//! Peers in `trusted` networks are proxies where the client's address comes from them: each carries many clients, so
//! their own connections are not limited (their clients' requests are, by address). Who is refused hears one answer
//! and is let go; those that are being told at one time are bounded; beyond it, and while
//! no reply has room, the connection is closed without a word.

use super::Shard;
use super::admit::{Refusal, limited};
use super::config::ShardConfig;
use super::conns::Phase;
use crate::limit::deny::DenyList;
use crate::limit::holds::{Hold, Holds};
use crate::limit::table::KeyedLimiter;
use crate::port::{ConnId, Effects};
use crate::time::Now;
use alloc::sync::Arc;
use core::net::IpAddr;
use weir_proto::addr::{Cidr, IpKey, Source, is_trusted};
use weir_proto::answer::Reason;

/// What a source at its limit of connections is told to wait: when another of its connections ends is up to it.
const CONNS_WAIT_MS: u64 = 1_000;
/// One of so many slots may be taken by connections that were turned away and wait for the end of their answer.
const TURNED_AWAY_DIVISOR: usize = 16;

/// What limits connections, and what it counted.
#[derive(Debug)]
pub struct Door {
    deny: Arc<DenyList>,
    sources: Holds,
    by_connect: KeyedLimiter,
    /// Connections that were turned away and have not closed yet.
    turned_away: u32,
    turned_away_max: u32,
    /// Connections that were told why they were turned away.
    pub told: u64,
    /// Connections that were turned away without a word: too many were being told.
    pub untold: u64,
}

impl Door {
    /// `by_connect`: the limit of new connections by source; `secret` keys the hash of sources.
    pub fn new(config: &ShardConfig, by_connect: KeyedLimiter, secret: [u8; 16]) -> Self {
        Self {
            deny: Arc::clone(&config.deny),
            sources: Holds::new(config.conns_max, config.conns_per_source_max, secret),
            by_connect,
            turned_away: 0,
            turned_away_max: (config.conns_max / TURNED_AWAY_DIVISOR).max(1) as u32,
            told: 0,
            untold: 0,
        }
    }

    /// Lets a connection of `source` in, or says why not.
    ///
    /// # Errors
    /// `DeniedAddress`; `LimitedConnects` with the exact wait; `LimitedConns` with a guess.
    pub fn enter(&mut self, now: Now, source: IpAddr) -> Result<Hold, Refusal> {
        if self.denies(source) {
            return Err(Reason::DeniedAddress.into());
        }
        let key = IpKey::new(source);
        let connect = self.by_connect.key_of(&key.to_words());
        limited(
            self.by_connect.take(now.mono, connect, 1),
            Reason::LimitedConnects,
        )?;
        self.sources
            .hold(key.into())
            .map_err(|_| Refusal::after(Reason::LimitedConns, CONNS_WAIT_MS))
    }

    /// True when an operator denies `address`.
    pub fn denies(&self, address: IpAddr) -> bool {
        self.deny.denies_address(address)
    }

    /// Who is denied.
    pub fn deny(&self) -> &DenyList {
        &self.deny
    }

    /// Another list takes the place of this one.
    pub fn set_deny(&mut self, deny: Arc<DenyList>) {
        self.deny = deny;
    }

    /// Counts a connection that is turned away; false: it is closed without a word. `has_room`: for one more reply.
    pub fn may_tell(&mut self, has_room: bool) -> bool {
        if !has_room || self.turned_away >= self.turned_away_max {
            self.untold += 1;
            return false;
        }
        self.turned_away += 1;
        self.told += 1;
        true
    }

    /// A connection has closed.
    pub fn leave(&mut self, hold: Option<Hold>, was_turned_away: bool) {
        if let Some(hold) = hold {
            self.sources.release(hold);
        }
        self.turned_away -= u32::from(was_turned_away);
    }

    /// The table of sources.
    pub fn sources(&self) -> &Holds {
        &self.sources
    }

    /// The limit of new connections.
    pub fn by_connect(&self) -> &KeyedLimiter {
        &self.by_connect
    }

    /// Connections that were turned away and have not closed yet.
    pub fn turned_away(&self) -> u32 {
        self.turned_away
    }
}

/// True when `peer` speaks for others: its own connections are not limited.
pub fn is_proxy(source: Source, peer: IpAddr, trusted: &[Cidr]) -> bool {
    source != Source::Peer && is_trusted(peer, trusted)
}

impl Shard {
    /// A connection came: its slot, and its source's place.
    pub(super) fn accepted(&mut self, now: Now, id: ConnId, peer: IpAddr, fx: &mut Effects) {
        let phase = if self.config.source == Source::ProxyProtocol {
            Phase::Proxy
        } else {
            Phase::Open
        };
        self.conns.open(now, id, peer, phase);
        self.counters.accepted += 1;
        if is_proxy(self.config.source, peer, &self.config.trusted) {
            return; // behind the PROXY protocol the client's turn comes with its header
        }
        match self.door.enter(now, peer) {
            Ok(hold) => self.conns.put_hold(id, hold),
            Err(refusal) => self.turn_away(now, id, refusal, fx),
        }
    }

    /// Tells a connection why it may not stay, and lets it go.
    pub(super) fn turn_away(&mut self, now: Now, id: ConnId, refusal: Refusal, fx: &mut Effects) {
        if !self.door.may_tell(self.has_room()) {
            self.conns.give_up(id, fx);
            return;
        }
        self.conns.mark_turned_away(id);
        self.refuse_reply(now, id, refusal.into(), fx);
    }

    /// A connection is gone: everything that it held comes back.
    pub(super) fn closed(&mut self, id: ConnId) {
        let Some(left) = self.conns.close(id) else {
            return;
        };
        self.replies.free_list(left.held);
        self.door.leave(left.hold, left.turned_away);
    }
}
