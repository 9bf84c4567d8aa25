//! A Redis Cluster of our own: masters with replicas, made by CLUSTER ADDSLOTSRANGE, MEET and REPLICATE, so that no
//! redis-cli is needed (redis.io, "Scaling with Redis Cluster" and "Cluster specification").

use super::{PrivateRedisError, Result, Server, TRIES, free_port, is_here, until};
use std::path::Path;
use weir_proto::resp::SLOTS_COUNT;

/// How many nodes, and how they are set.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Three at least: fewer cannot elect the heir of one of them.
    pub masters: usize,
    /// Of each master.
    pub replicas: usize,
    /// How long a node may be silent before the others call it failed, milliseconds.
    pub node_timeout_ms: u64,
    /// More words for each `redis-server`.
    pub options: &'a [&'a str],
    /// Where each makes its directory; `None`: among the system's temporary ones.
    pub place: Option<&'a Path>,
}

/// Ports of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Where clients and replicas come in.
    pub clients: u16,
    /// Where the other nodes come in.
    pub bus: u16,
}

/// Nodes that agree and serve every slot. The first ones were made masters; then come the replicas of the first master,
/// of the second, and so on.
#[derive(Debug)]
pub struct Cluster {
    /// In the order in which they were started.
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// Starts it and waits until it is whole.
    ///
    /// # Errors
    /// `redis-server` is missing, does not start, or its nodes do not agree within [`super::PATIENCE`].
    pub fn start(shape: Shape<'_>) -> Result<Self> {
        Self::start_behind(shape, |_, ports| Ok((ports, Vec::new())))
    }

    /// As [`Self::start`]; `front` is told the number and the ports of a node that is about to start, and says where
    /// others find it (a proxy of ours), with more words for its `redis-server`.
    ///
    /// # Errors
    /// As [`Self::start`], and those of `front`.
    pub fn start_behind(
        shape: Shape<'_>,
        mut front: impl FnMut(usize, Ports) -> Result<(Ports, Vec<String>)>,
    ) -> Result<Self> {
        is_here()?;
        let count = shape.masters * (1 + shape.replicas);
        let (mut nodes, mut found_at) = (Vec::new(), Vec::new());
        for index in 0..count {
            let (node, ports) = node(shape, |ports| front(index, ports))?;
            nodes.push(node);
            found_at.push(ports);
        }
        let cluster = Self { nodes };
        cluster.share_slots(shape.masters)?;
        for ports in &found_at[1..] {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", ports.clients, ports.bus);
            cluster.nodes[0].connect()?.order(&meet)?;
        }
        until("every node knows every other", || {
            cluster.nodes.iter().all(|node| is_known_to(node, count))
        })?;
        for (replica, node) in cluster.nodes[shape.masters..].iter().enumerate() {
            let master = cluster.nodes[replica / shape.replicas]
                .connect()?
                .text("CLUSTER MYID")?;
            node.connect()?
                .order(&format!("CLUSTER REPLICATE {master}"))?;
        }
        cluster.until_whole(shape.masters)?;
        Ok(cluster)
    }

    fn share_slots(&self, masters: usize) -> Result<()> {
        let slots = usize::from(SLOTS_COUNT);
        for (index, node) in self.nodes.iter().enumerate() {
            let mut link = node.connect()?;
            // Each its own: equal ones would have to be sorted out first.
            link.order(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1))?;
            if index < masters {
                let (first, end) = (slots * index / masters, slots * (index + 1) / masters);
                link.order(&format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1))?;
            }
        }
        Ok(())
    }

    /// Waits until it is whole: see [`Self::is_whole`].
    ///
    /// # Errors
    /// It is not within [`super::PATIENCE`].
    pub fn until_whole(&self, masters: usize) -> Result<()> {
        until(
            "every node is up and each replica follows its master",
            || self.is_whole(masters),
        )
    }

    /// True when each node says that the cluster is up, every node online, all but `masters` of them replicas, and each
    /// replica has its master's data.
    pub fn is_whole(&self, masters: usize) -> bool {
        let count = self.nodes.len();
        let is_in_place =
            |node: &Server| is_in_place(node, count, count - masters).unwrap_or(false);
        self.nodes
            .iter()
            .all(|node| is_known_to(node, count) && is_in_place(node))
    }

    /// The node that listens on `port`.
    pub fn index_of(&self, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.port == port)
    }
}

/// True when `node` is connected to `count` nodes, itself among them, and holds none for failing.
fn is_known_to(node: &Server, count: usize) -> bool {
    let Ok(text) = node
        .connect()
        .and_then(|mut link| link.text("CLUSTER NODES"))
    else {
        return false;
    };
    let is_fine = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let flags = words.get(2).copied().unwrap_or("fail");
        let has_no_fault = !["fail", "handshake", "noaddr"]
            .iter()
            .any(|fault| flags.contains(fault));
        has_no_fault && words.get(7) == Some(&"connected")
    };
    text.lines().count() == count && text.lines().all(is_fine)
}

fn is_in_place(node: &Server, count: usize, replicas: usize) -> Result<bool> {
    let mut link = node.connect()?;
    let is_up = link.text("CLUSTER INFO")?.contains("cluster_state:ok");
    let replication = link.text("INFO replication")?;
    let has_data =
        replication.contains("role:master") || replication.contains("master_link_status:up");
    let shards = link.say("CLUSTER SHARDS");
    let shards = shards.map_err(|error| PrivateRedisError::of("CLUSTER SHARDS", error))?;
    let shards = String::from_utf8_lossy(&shards);
    let told = |word: &str| shards.matches(&format!("\r\n{word}\r\n")).count();
    Ok(is_up && has_data && told("online") == count && told("replica") == replicas)
}

/// One node of a cluster yet to be made, and where others find it. Its bus has a port of its own: the usual one, 10,000
/// above, may be beyond 65,535.
fn node(
    shape: Shape<'_>,
    mut front: impl FnMut(Ports) -> Result<(Ports, Vec<String>)>,
) -> Result<(Server, Ports)> {
    let mut last = PrivateRedisError(String::new());
    for _ in 0..TRIES {
        let ports = Ports {
            clients: free_port()?,
            bus: free_port()?,
        };
        let (found_at, more) = front(ports)?;
        let (timeout, bus) = (shape.node_timeout_ms.to_string(), ports.bus.to_string());
        let own = [
            ["--cluster-enabled", "yes"],
            ["--cluster-config-file", "nodes.conf"],
            ["--cluster-node-timeout", &timeout],
            ["--cluster-port", &bus],
        ];
        let words = own.as_flattened().iter().chain(shape.options);
        let options = words.map(|word| (*word).to_owned()).chain(more).collect();
        let temporary = std::env::temp_dir();
        let place = shape.place.unwrap_or(&temporary);
        match Server::on_port(ports.clients, options, place) {
            Ok(node) => return Ok((node, found_at)),
            Err(error) => last = error,
        }
    }
    Err(last)
}
