//! Which node an ask goes to: the only one, or the one that owns its slot.

use crate::redis::endpoint::Endpoint;
use crate::redis::slots::SlotMap;

/// See the module.
#[derive(Debug)]
pub(super) enum Routes {
    /// One server has every key.
    Single,
    /// As the nodes last said; `None` before the first map.
    Cluster(Option<SlotMap>),
}

/// Where an ask goes.
pub(super) enum Route<'a> {
    /// To the only server.
    Only,
    /// To this node.
    Node(&'a Endpoint),
    /// Nobody is known to own the slot.
    Nowhere,
}

impl Routes {
    pub fn new(is_cluster: bool) -> Self {
        if is_cluster {
            Self::Cluster(None)
        } else {
            Self::Single
        }
    }

    /// True when asks can be routed.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Cluster(None))
    }

    pub fn of(&self, slot: u16) -> Route<'_> {
        match self {
            Self::Single => Route::Only,
            Self::Cluster(map) => {
                let node = map.as_ref().and_then(|map| map.node_of(slot));
                node.map_or(Route::Nowhere, Route::Node)
            }
        }
    }

    /// Notes a MOVED; a map without room for the node is replaced by the next one.
    pub fn moved(&mut self, slot: u16, node: &Endpoint) {
        if let Self::Cluster(map) = self {
            let map = map.get_or_insert_with(SlotMap::new);
            if map.moved(slot, node).is_err() {
                *map = SlotMap::new();
            }
        }
    }

    /// Takes a whole map.
    pub fn take(&mut self, map: SlotMap) {
        if let Self::Cluster(known) = self {
            *known = Some(map);
        }
    }
}
