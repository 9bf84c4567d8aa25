//! How the engine is set up, and what is refused.

use super::workload::LaneId;
use crate::limits::{CONNECTIONS_MAX, IN_FLIGHT_MAX, PIPELINE_MAX};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

/// Lanes for jobs that name them ([`super::Place::On`]).
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// How many: fewer than all.
    pub lanes: u32,
    /// Where they go.
    pub target: SocketAddr,
}

/// How the engine is set up. Start from [`ClientConfig::new`] and change what differs.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The server.
    pub target: SocketAddr,
    /// Servers that do the same: lane `n` goes to number `n` modulo all of them, `target` being number 0.
    pub others: Vec<SocketAddr>,
    /// The last lanes, which take no jobs but those that name them, and their server.
    pub kept: Option<Kept>,
    /// Lanes, 1..=16384. The driver needs as many slots.
    pub connections: u32,
    /// Local addresses; lane `n` binds to number `n` modulo their count. Empty: the kernel chooses.
    pub sources: Vec<Ipv4Addr>,
    /// Most requests under way on one lane, 1..=64.
    pub pipeline_max: u32,
    /// A connect that takes longer has failed, milliseconds.
    pub connect_ms: u64,
    /// A request without its answer after so many milliseconds has failed, and its connection is closed.
    pub answer_ms: u64,
    /// For the jitter of pauses between connects.
    pub seed: u64,
}

impl ClientConfig {
    /// One request at a time on each of `connections` lanes, the kernel's address, 5 s to connect, 10 s to answer.
    pub fn new(target: SocketAddr, connections: u32) -> Self {
        Self {
            target,
            others: Vec::new(),
            kept: None,
            connections,
            sources: Vec::new(),
            pipeline_max: 1,
            connect_ms: 5_000,
            answer_ms: 10_000,
            seed: 1,
        }
    }

    /// The first `count` addresses of 127.1.0.0/16, one in a /24 of its own each for the first 256: many client
    /// addresses from one machine (every address of 127/8 is local on Linux). At most 65,024.
    pub fn loopback_sources(count: u32) -> Vec<Ipv4Addr> {
        (0..count.min(256 * 254))
            .map(|n| Ipv4Addr::new(127, 1, (n % 256) as u8, 1 + (n / 256) as u8))
            .collect()
    }

    /// True for a lane that only takes jobs that name it.
    pub(super) fn is_kept(&self, lane: LaneId) -> bool {
        let kept = self.kept.map_or(0, |kept| kept.lanes);
        lane.0 >= self.connections.saturating_sub(kept)
    }

    /// Where a lane goes.
    pub(super) fn target_of(&self, lane: LaneId) -> SocketAddr {
        if let Some(kept) = self.kept.filter(|_| self.is_kept(lane)) {
            return kept.target;
        }
        match lane.0 as usize % (self.others.len() + 1) {
            0 => self.target,
            number => self.others[number - 1],
        }
    }

    pub(super) fn check(&self) -> Result<(), ClientConfigError> {
        let wrong = |key, value: u64, allowed| {
            Err(ClientConfigError {
                key,
                value,
                allowed,
            })
        };
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return wrong("connections", self.connections.into(), "1..=16384");
        }
        if !(1..=PIPELINE_MAX).contains(&self.pipeline_max) {
            return wrong("pipeline", self.pipeline_max.into(), "1..=64");
        }
        let in_flight = self.connections as usize * self.pipeline_max as usize;
        if in_flight > IN_FLIGHT_MAX {
            return wrong("connections x pipeline", in_flight as u64, "1..=262144");
        }
        if let Some(kept) = self.kept
            && kept.lanes >= self.connections
        {
            return wrong("kept lanes", kept.lanes.into(), "fewer than connections");
        }
        if self.connect_ms == 0 {
            return wrong("connect_ms", 0, "1 or more");
        }
        if self.answer_ms == 0 {
            return wrong("answer_ms", 0, "1 or more");
        }
        Ok(())
    }
}

/// A value of [`ClientConfig`] outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfigError {
    /// Its name.
    pub key: &'static str,
    /// What it was.
    pub value: u64,
    /// What it may be.
    pub allowed: &'static str,
}

impl fmt::Display for ClientConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} = {} is not possible; allowed: {}",
            self.key, self.value, self.allowed
        )
    }
}

impl std::error::Error for ClientConfigError {}
