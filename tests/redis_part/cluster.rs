//! A Redis Cluster for tests: `weir::private_redis::cluster`, masters with a replica each.

use super::link::Link;
use super::{Redis, is_here};
use weir::private_redis::cluster::{Cluster as Nodes, Shape};

/// How long a node may be silent before the others call it failed. Short: a test that kills a master waits for it.
const NODE_TIMEOUT_MS: u64 = 1000;

/// Nodes that agree and serve every slot. The first half were made masters.
pub struct Cluster {
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// `masters` masters (three at least) and a replica of each; `None`: SKIPPED.
    pub fn start(masters: usize) -> Option<Self> {
        if !is_here() {
            return None;
        }
        let shape = Shape {
            masters,
            replicas: 1,
            node_timeout_ms: NODE_TIMEOUT_MS,
            options: &[],
            place: None,
        };
        let nodes = Nodes::start(shape).unwrap().nodes;
        let nodes = nodes.into_iter().map(Redis).collect();
        Some(Self { nodes })
    }

    /// A connection to the node at `index`.
    pub fn link(&self, index: usize) -> Link {
        Link::new(&self.nodes[index])
    }

    /// The node that listens on `port`.
    pub fn index_of(&self, port: u16) -> usize {
        let found = self.nodes.iter().position(|node| node.port == port);
        found.expect("a port of this cluster")
    }
}
