//! The private cluster under torture: three masters with replicas behind [`Wire`], who is the SKU's master now, and
//! what the SKU's books look like there.

use super::super::{Result, TortureError};
use super::limits::{ANSWER_MS, MASTERS, MAX_LAG_S, NODE_TIMEOUT_MS};
use super::wire::{Wire, source_of};
use crate::private_redis::cluster::{Cluster, Ports, Shape};
use crate::private_redis::link::Link;
use crate::private_redis::{PrivateRedisError, Server};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use weir_io::signals::Signal;
use weir_proto::resp::{Value, key_slot, read};

/// See the module.
#[derive(Debug)]
pub struct Nodes {
    /// Dropped before its network is.
    cluster: Cluster,
    /// What cuts them apart.
    pub wire: Wire,
    /// By node: where others find it.
    fronts: Vec<Ports>,
    /// Of each master.
    replicas: usize,
    /// Name of a key of the SKU, up to its end: `{a1:s1}:`.
    prefix: String,
}

/// The state of the SKU as its master shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Number of the next reservation.
    pub next: u64,
    /// Units that nobody has.
    pub free: u64,
    /// Behind a fence, or frozen.
    pub is_frozen: bool,
}

impl Nodes {
    /// Starts it below `place`; `min_replicas`: how many must be there and fresh for a write, and how many a master has
    /// at least.
    ///
    /// # Errors
    /// `redis-server` is missing or does not start.
    pub fn start(place: &Path, min_replicas: u64, tag: &str) -> Result<Self> {
        let wire = Wire::default();
        let replicas = min_replicas.max(1) as usize;
        let (min_replicas, lag) = (min_replicas.to_string(), MAX_LAG_S.to_string());
        let options = [
            ["--min-replicas-to-write", &min_replicas],
            ["--min-replicas-max-lag", &lag],
            // A replica that comes back is served what it missed, and at once.
            ["--repl-backlog-size", "16mb"],
            ["--repl-diskless-sync-delay", "0"],
            ["--cluster-replica-validity-factor", "0"],
            ["--enable-debug-command", "local"],
            ["--appendonly", "no"],
        ];
        let shape = Shape {
            masters: MASTERS,
            replicas,
            node_timeout_ms: NODE_TIMEOUT_MS,
            options: options.as_flattened(),
            place: Some(place),
        };
        let mut fronts = Vec::new();
        let cluster = Cluster::start_behind(shape, |node, ports| {
            let front = |port| {
                let at = wire.front(node, port);
                at.map_err(|TortureError(why)| PrivateRedisError(why))
            };
            let found_at = Ports {
                clients: front(ports.clients)?,
                bus: front(ports.bus)?,
            };
            fronts.truncate(node); // of a try that failed
            fronts.push(found_at);
            let words = [
                "--bind-source-addr".to_owned(),
                source_of(node).to_string(),
                "--cluster-announce-ip".to_owned(),
                "127.0.0.1".to_owned(),
                "--cluster-announce-port".to_owned(),
                found_at.clients.to_string(),
                "--cluster-announce-bus-port".to_owned(),
                found_at.bus.to_string(),
            ];
            Ok((found_at, words.to_vec()))
        });
        Ok(Self {
            cluster: cluster.map_err(TortureError::of)?,
            wire,
            fronts,
            replicas,
            prefix: format!("{{{tag}}}:"),
        })
    }

    /// What `redis.servers` says.
    pub fn servers(&self) -> String {
        let servers: Vec<String> = self
            .fronts
            .iter()
            .map(|ports| format!("\"127.0.0.1:{}\"", ports.clients))
            .collect();
        format!("[{}]", servers.join(", "))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.cluster.nodes.len()
    }

    /// The server of that number.
    pub fn server(&mut self, node: usize) -> &mut Server {
        &mut self.cluster.nodes[node]
    }

    /// Tells the process of a node something.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, node: usize, signal: Signal) -> Result<()> {
        let sent = self.cluster.nodes[node].signal(signal);
        sent.map_err(TortureError::of)
    }

    /// A connection that waits a moment only: a node may stand still.
    fn link(&self, node: usize) -> Result<Link> {
        let to = self.cluster.nodes[node].addr();
        Link::connect(to, Duration::from_millis(ANSWER_MS)).map_err(TortureError::of)
    }

    /// An order to a node, such as `CLUSTER FAILOVER`.
    ///
    /// # Errors
    /// It does not take it.
    pub fn order(&self, node: usize, order: &str) -> Result<()> {
        self.link(node)?.order(order).map_err(TortureError::of)
    }

    /// Makes a node stand still for so long (DEBUG SLEEP), without waiting for it.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn sleep(&self, node: usize, ms: u64) -> Result<()> {
        let seconds = format!("{}.{:03}", ms / 1000, ms % 1000);
        // It answers when it wakes up: that nobody waits so long is what is wanted.
        let _ = self.link(node)?.say(&format!("DEBUG SLEEP {seconds}"));
        Ok(())
    }

    /// The nodes that hold the SKU's slot: its master at first, and that one's replicas.
    pub fn family(&self) -> Vec<usize> {
        let slot = usize::from(key_slot(self.key("sku").as_bytes()));
        let master = (0..MASTERS)
            .rfind(|master| slot >= 16_384 * master / MASTERS)
            .unwrap_or(0);
        let first = MASTERS + master * self.replicas;
        std::iter::once(master)
            .chain(first..first + self.replicas)
            .collect()
    }

    /// The master of the SKU's slot, as the nodes say that have nothing to do with it.
    pub fn master(&self) -> Option<usize> {
        let family = self.family();
        let bystanders = (0..self.count()).filter(|node| !family.contains(node));
        let told = bystanders.filter_map(|node| self.link(node).ok()?.text("CLUSTER NODES").ok());
        let slot = u32::from(key_slot(self.key("sku").as_bytes()));
        told.map(|nodes| self.owner(&nodes, slot)).next().flatten()
    }

    fn owner(&self, nodes: &str, slot: u32) -> Option<usize> {
        let line = nodes.lines().find(|line| {
            let mut ranges = line
                .split(' ')
                .skip(8)
                .filter(|range| !range.starts_with('['));
            ranges.any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let bounds = first.parse().ok().zip(last.parse().ok());
                bounds.is_some_and(|(first, last): (u32, u32)| (first..=last).contains(&slot))
            })
        })?;
        let address = line.split([' ', '@']).nth(1)?;
        let port: u16 = address.rsplit(':').next()?.parse().ok()?;
        self.fronts.iter().position(|ports| ports.clients == port)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// How the SKU stands at `node`; `None`: it does not say, or has it not.
    pub fn look(&self, node: usize) -> Option<Look> {
        let sku = self.sku(node)?;
        let number = |name: &str| sku.get(name)?.parse().ok();
        let is_empty = |name: &str| sku.get(name).is_none_or(String::is_empty);
        Some(Look {
            next: number("next")?,
            free: number("free")?,
            is_frozen: !(is_empty("frozen") && is_empty("fence")),
        })
    }

    /// The state of the SKU at `node`; `None`: it does not tell it.
    fn sku(&self, node: usize) -> Option<BTreeMap<String, String>> {
        let mut link = self.link(node).ok()?;
        let reply = link.ask(&[b"HGETALL", self.key("sku").as_bytes()]).ok()?;
        let Value::Array(mut items) = read(&reply) else {
            return None;
        };
        let text = |value: Value<'_>| {
            let text = value.text().map(String::from_utf8_lossy);
            text.map(std::borrow::Cow::into_owned)
        };
        let mut all = BTreeMap::new();
        while let (Some(field), Some(value)) = (items.next(), items.next()) {
            all.extend(text(field).zip(text(value)));
        }
        Some(all)
    }

    /// True when every node is up again and each replica follows its master.
    pub fn is_whole(&self) -> bool {
        self.cluster.is_whole(MASTERS)
    }
}
