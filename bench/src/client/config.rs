//! How the engine is set up, and what is refused.

use crate::limits::{CONNECTIONS_MAX, IN_FLIGHT_MAX, PIPELINE_MAX};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

/// How the engine is set up. Start from [`ClientConfig::new`] and change what differs.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The server.
    pub target: SocketAddr,
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
