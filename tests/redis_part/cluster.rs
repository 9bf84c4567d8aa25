//! A Redis Cluster for tests: masters with a replica each, made by `redis-cli --cluster create`.

use super::link::Link;
use super::{PATIENCE, Redis, cli, free_port, is_here, until};

/// How long a node may be silent before the others call it failed. Short: a test that kills a master waits for it.
const NODE_TIMEOUT_MS: &str = "1000";

/// Nodes that agree and serve every slot. The first half were made masters.
pub struct Cluster {
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// `masters` masters (three at least, redis-cli wants them) and a replica of each; `None`: SKIPPED.
    pub fn start(masters: usize) -> Option<Self> {
        if !is_here() {
            return None;
        }
        let nodes: Vec<Redis> = (0..2 * masters).map(|_| node()).collect();
        let addresses: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
        let mut arguments = vec!["--cluster", "create"];
        arguments.extend(addresses.iter().map(String::as_str));
        arguments.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        let made = cli(nodes[0].port, &arguments);
        assert!(made.status.success(), "{made:?}");
        let cluster = Self { nodes };
        cluster.until_whole();
        Some(cluster)
    }

    /// Waits until each node says that the cluster is up, every node online, and every second one a replica.
    pub fn until_whole(&self) {
        until("every node is up and known to every other", || {
            self.nodes.iter().all(|node| {
                let shards = node.cli(&["CLUSTER", "SHARDS"]);
                let (online, replicas) = (shards.matches("online"), shards.matches("\nreplica\n"));
                let is_up = node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
                is_up
                    && online.count() == self.nodes.len()
                    && replicas.count() * 2 == self.nodes.len()
            })
        });
    }

    /// A connection to the node at `index`.
    pub fn link(&self, index: usize) -> Link {
        Link::new(self.nodes[index].connect())
    }

    /// The node that listens on `port`.
    pub fn index_of(&self, port: u16) -> usize {
        let found = self.nodes.iter().position(|node| node.port == port);
        found.expect("a port of this cluster")
    }
}

/// One node of a cluster yet to be made. Its bus has a port of its own: the usual one, 10,000 above, may be beyond 65,535.
fn node() -> Redis {
    let mut last = String::new();
    for _ in 0..super::TRIES {
        let bus = free_port().to_string();
        let options = [
            "--cluster-enabled",
            "yes",
            "--cluster-config-file",
            "nodes.conf",
            "--cluster-node-timeout",
            NODE_TIMEOUT_MS,
            "--cluster-port",
            &bus,
        ];
        match Redis::on_port(free_port(), &options) {
            Ok(node) => return node,
            Err(said) => last = said,
        }
    }
    panic!(
        "no node starts within {} tries or {PATIENCE:?}; the last one said:\n{last}",
        super::TRIES
    );
}
