//! Which node of a Redis Cluster serves which hash slot, as the cluster itself tells it.
//!
//! The link asks `CLUSTER SHARDS` (Redis 7; `CLUSTER SLOTS` before it) at start and after a `MOVED`, and builds the map
//! anew from the reply; [`SlotMap::moved`] serves until then. What is told is held to limits and to itself: a reply that
//! says something twice, or a number outside its range, is refused whole, and another node can be asked.
//! Facts: redis.io/docs/reference/cluster-spec ("the specification"), redis.io/commands/cluster-shards ("shards"),
//! redis.io/commands/cluster-slots ("slots"), and Redis 7.0.15 itself (`tests/redis_cluster.rs`).
//! Not here: resolving names, connecting, when to ask again.

use super::endpoint::{Endpoint, Host};
use crate::limits::REDIS_NODES_MAX;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use weir_proto::resp::{Items, SLOTS_COUNT, Value};

/// The owner of a slot that nobody serves.
const NOBODY: u16 = u16::MAX;
const _: () = assert!(REDIS_NODES_MAX < NOBODY as usize, "an index of a node fits");

/// Why what a cluster tells about itself is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsReject {
    /// Not an array of shards or of ranges, or a part of one is missing, told twice or of another type.
    Shape,
    /// A slot beyond 16,383, or a range that ends before it begins.
    Slot,
    /// A slot that two nodes serve.
    SlotTwice,
    /// Not in 1..=65535.
    Port,
    /// Neither an address nor a host name.
    Host,
    /// `?`: a node that is to be known by a host name and has none (slots).
    HostUnknown,
    /// Two masters of one shard that are both online (shards: one at a given time).
    MasterTwice,
    /// `REDIS_NODES_MAX`.
    TooManyNodes,
}

/// One English phrase.
impl fmt::Display for SlotsReject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "a reply that is not of the form of CLUSTER SHARDS or CLUSTER SLOTS",
            Self::Slot => {
                "a slot that is not in 0 to 16383, or a range of slots that ends before it begins"
            }
            Self::SlotTwice => "a slot that is served twice",
            Self::Port => "a port that is not in 1 to 65535",
            Self::Host => "a host that is neither an address nor a host name",
            Self::HostUnknown => {
                "a node whose host name is not configured (cluster-announce-hostname)"
            }
            Self::MasterTwice => "a shard with two masters",
            Self::TooManyNodes => "more than 256 nodes",
        })
    }
}

impl core::error::Error for SlotsReject {}

/// Slots that follow one another, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// 0..=`last`.
    pub first: u16,
    /// Below [`SLOTS_COUNT`].
    pub last: u16,
}

/// `0-5460`, or `7` for one slot, as `redis-cli` writes them.
impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.last > self.first {
            write!(f, "-{}", self.last)?;
        }
        Ok(())
    }
}

/// A replica and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replica {
    master: u16,
    endpoint: Endpoint,
}

/// Who serves which slot. 32 KiB and the nodes, allocated when it is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    /// Of each slot the index of its master, or `NOBODY`.
    owners: Box<[u16]>,
    masters: Vec<Endpoint>,
    replicas: Vec<Replica>,
}

impl Default for SlotMap {
    fn default() -> Self {
        Self::new()
    }
}

impl SlotMap {
    /// A map in which nobody serves anything.
    pub fn new() -> Self {
        Self {
            owners: vec![NOBODY; usize::from(SLOTS_COUNT)].into_boxed_slice(),
            masters: Vec::new(),
            replicas: Vec::new(),
        }
    }

    /// Reads the reply of `CLUSTER SHARDS` or `CLUSTER SLOTS`, in RESP2 or RESP3; its entries tell which.
    ///
    /// `asked`: the node that replied; a node without a host of its own has the same host. Nodes that are not online,
    /// have no port without TLS or no known host serve nothing; see [`uncovered`](Self::uncovered).
    ///
    /// [`Self::from_reply_by_tls`] is for nodes that are reached by TLS.
    ///
    /// # Errors
    /// What of the reply breaks its form or contradicts the rest.
    pub fn from_reply(reply: Value<'_>, asked: &Endpoint) -> Result<Self, SlotsReject> {
        Self::read(reply, asked, "port")
    }

    /// As [`Self::from_reply`], of a reply that came by TLS, with the ports of TLS (shards, `tls-port`). `CLUSTER SLOTS`
    /// tells the one port that nodes tell each other: of TLS with `tls-cluster yes`.
    ///
    /// # Errors
    /// As [`Self::from_reply`].
    pub fn from_reply_by_tls(reply: Value<'_>, asked: &Endpoint) -> Result<Self, SlotsReject> {
        Self::read(reply, asked, "tls-port")
    }

    fn read(reply: Value<'_>, asked: &Endpoint, port: &str) -> Result<Self, SlotsReject> {
        let Value::Array(entries) = reply else {
            return Err(SlotsReject::Shape);
        };
        let mut map = Self::new();
        for entry in entries {
            let is_range = match &entry {
                Value::Array(items) => matches!(items.clone().next(), Some(Value::Integer(_))),
                _ => false,
            };
            if is_range {
                map.add_range(entry, asked)?;
            } else {
                map.add_shard(entry, asked, port)?;
            }
        }
        Ok(map)
    }

    /// The master of `slot`; `None`: nobody that we know, or no slot.
    pub fn node_of(&self, slot: u16) -> Option<&Endpoint> {
        let owner = *self.owners.get(usize::from(slot))?;
        self.masters.get(usize::from(owner))
    }

    /// The replicas of the master of `slot`.
    pub fn replicas_of(&self, slot: u16) -> impl Iterator<Item = &Endpoint> {
        let owner = self.owners.get(usize::from(slot)).copied();
        self.replicas
            .iter()
            .filter(move |replica| Some(replica.master) == owner)
            .map(|replica| &replica.endpoint)
    }

    /// Every master that serves or has served a slot of this map; at most `REDIS_NODES_MAX`.
    pub fn masters(&self) -> &[Endpoint] {
        &self.masters
    }

    /// The ranges of slots that nobody serves, ascending. At start each of them is named and refused.
    pub fn uncovered(&self) -> impl Iterator<Item = SlotRange> {
        let mut slot = 0;
        core::iter::from_fn(move || {
            let is_free = |slot: u16| self.owners.get(usize::from(slot)) == Some(&NOBODY);
            while slot < SLOTS_COUNT && !is_free(slot) {
                slot += 1;
            }
            let first = slot;
            while is_free(slot) {
                slot += 1;
            }
            (first < slot).then(|| SlotRange {
                first,
                last: slot - 1,
            })
        })
    }

    /// Notes a `MOVED`: from now on `endpoint` is the master of `slot`, and no replica (the specification, "MOVED
    /// redirection").
    ///
    /// # Errors
    /// `Slot`, or `TooManyNodes` when there is no room for one more; then nothing has changed, and only a new map helps.
    pub fn moved(&mut self, slot: u16, endpoint: &Endpoint) -> Result<(), SlotsReject> {
        if slot >= SLOTS_COUNT {
            return Err(SlotsReject::Slot);
        }
        let was_replica = |replica: &Replica| replica.endpoint == *endpoint;
        if let Some(at) = self.replicas.iter().position(was_replica) {
            self.replicas.swap_remove(at);
        }
        let owner = self.master_index(endpoint)?;
        self.owners[usize::from(slot)] = owner;
        Ok(())
    }

    /// The index of `endpoint` among the masters, where it is added if it is new.
    fn master_index(&mut self, endpoint: &Endpoint) -> Result<u16, SlotsReject> {
        let known = self.masters.iter().rposition(|master| master == endpoint);
        let index = match known {
            Some(index) => index,
            None => {
                self.need_room()?;
                self.masters.push(endpoint.clone());
                self.masters.len() - 1
            }
        };
        Ok(index as u16) // below REDIS_NODES_MAX
    }

    fn need_room(&self) -> Result<(), SlotsReject> {
        if self.masters.len() + self.replicas.len() < REDIS_NODES_MAX {
            Ok(())
        } else {
            Err(SlotsReject::TooManyNodes)
        }
    }

    fn add_replica(&mut self, master: u16, endpoint: Endpoint) -> Result<(), SlotsReject> {
        let replica = Replica { master, endpoint };
        if !self.replicas.contains(&replica) {
            self.need_room()?;
            self.replicas.push(replica);
        }
        Ok(())
    }

    fn add_slots(&mut self, range: SlotRange, owner: u16) -> Result<(), SlotsReject> {
        let slots = &mut self.owners[usize::from(range.first)..=usize::from(range.last)];
        if slots.iter().any(|&other| other != NOBODY) {
            return Err(SlotsReject::SlotTwice);
        }
        slots.fill(owner);
        Ok(())
    }

    /// One entry of `CLUSTER SLOTS`: first, last, the master, its replicas (slots, "Nested Result Array").
    fn add_range(&mut self, entry: Value<'_>, asked: &Endpoint) -> Result<(), SlotsReject> {
        let Value::Array(mut items) = entry else {
            return Err(SlotsReject::Shape);
        };
        let range = next_range(&mut items)?.ok_or(SlotsReject::Shape)?;
        let master = items.next().ok_or(SlotsReject::Shape)?;
        let Some(master) = listed_node(master, asked)? else {
            return Ok(()); // a node nobody can reach: its slots stay uncovered
        };
        let owner = self.master_index(&master)?;
        self.add_slots(range, owner)?;
        for replica in items {
            if let Some(replica) = listed_node(replica, asked)? {
                self.add_replica(owner, replica)?;
            }
        }
        Ok(())
    }

    /// One entry of `CLUSTER SHARDS`: a map of `slots` and `nodes`.
    fn add_shard(
        &mut self,
        entry: Value<'_>,
        asked: &Endpoint,
        port: &str,
    ) -> Result<(), SlotsReject> {
        let [slots, nodes] = fields(entry, ["slots", "nodes"])?;
        let (Some(Value::Array(mut slots)), Some(Value::Array(nodes))) = (slots, nodes) else {
            return Err(SlotsReject::Shape);
        };
        let (mut master, mut replicas) = (None, Vec::new());
        for node in nodes {
            let Some((role, endpoint)) = shard_node(node, asked, port)? else {
                continue;
            };
            match role {
                Role::Master if master.is_some() => return Err(SlotsReject::MasterTwice),
                Role::Master => master = Some(endpoint),
                Role::Replica if replicas.len() == REDIS_NODES_MAX => {
                    return Err(SlotsReject::TooManyNodes);
                }
                Role::Replica => replicas.push(endpoint),
            }
        }
        let mut owner = None;
        while let Some(range) = next_range(&mut slots)? {
            let Some(master) = &master else {
                continue; // its slots stay uncovered
            };
            let index = self.master_index(master)?;
            owner = Some(index);
            self.add_slots(range, index)?;
        }
        if let Some(owner) = owner {
            for replica in replicas {
                self.add_replica(owner, replica)?;
            }
        }
        Ok(())
    }
}

enum Role {
    Master,
    Replica,
}

/// The next two numbers of `items` as a range; `None` when there are no more.
fn next_range(items: &mut Items<'_>) -> Result<Option<SlotRange>, SlotsReject> {
    let Some(first) = items.next() else {
        return Ok(None);
    };
    let (Value::Integer(first), Some(Value::Integer(last))) = (first, items.next()) else {
        return Err(SlotsReject::Shape);
    };
    let slot = |number: i64| {
        u16::try_from(number)
            .ok()
            .filter(|&slot| slot < SLOTS_COUNT)
    };
    match (slot(first), slot(last)) {
        (Some(first), Some(last)) if first <= last => Ok(Some(SlotRange { first, last })),
        _ => Err(SlotsReject::Slot),
    }
}

/// The values of some fields of a map, which RESP2 writes as an array of names and values. Others may be there
/// ("more attributes may be added in the future"); none of the wanted ones twice.
fn fields<'a, const N: usize>(
    map: Value<'a>,
    names: [&str; N],
) -> Result<[Option<Value<'a>>; N], SlotsReject> {
    let (Value::Map(mut items) | Value::Array(mut items)) = map else {
        return Err(SlotsReject::Shape);
    };
    let mut found = [const { None }; N];
    while let Some(name) = items.next() {
        let value = items.next().ok_or(SlotsReject::Shape)?;
        let name = name.text().ok_or(SlotsReject::Shape)?;
        if let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name)
            && found[at].replace(value).is_some()
        {
            return Err(SlotsReject::Shape);
        }
    }
    Ok(found)
}

/// The host of a node whose preferred endpoint is `endpoint` (slots; the same in shards). NULL and the empty text mean the
/// host that was asked. `?` is a node that has no host name although it should: its `ip` helps, if it is told; `None`:
/// it is not.
fn host(
    endpoint: &Value<'_>,
    ip: Option<&Value<'_>>,
    asked: &Endpoint,
) -> Result<Option<Host>, SlotsReject> {
    let text = match endpoint {
        Value::Null => b"",
        other => other.text().ok_or(SlotsReject::Shape)?,
    };
    match text {
        b"" => Ok(Some(asked.host.clone())),
        b"?" => match ip.and_then(Value::text) {
            None | Some(b"" | b"?") => Ok(None),
            Some(ip) => Host::parse(ip).map(Some),
        },
        text => Host::parse(text).map(Some),
    }
}

fn port(value: &Value<'_>) -> Result<u16, SlotsReject> {
    let Value::Integer(number) = value else {
        return Err(SlotsReject::Shape);
    };
    match u16::try_from(*number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(SlotsReject::Port),
    }
}

/// A node of `CLUSTER SLOTS`: preferred endpoint, port, id, a map of more; the last two are missing before Redis 4 and 7.
fn listed_node(node: Value<'_>, asked: &Endpoint) -> Result<Option<Endpoint>, SlotsReject> {
    let Value::Array(mut items) = node else {
        return Err(SlotsReject::Shape);
    };
    let (Some(endpoint), Some(listens)) = (items.next(), items.next()) else {
        return Err(SlotsReject::Shape);
    };
    let port = port(&listens)?;
    let ip = match items.nth(1) {
        Some(more) => fields(more, ["ip"])?[0].take(),
        None => None,
    };
    let host = host(&endpoint, ip.as_ref(), asked)?;
    Ok(host.map(|host| Endpoint { host, port }))
}

/// A node of `CLUSTER SHARDS`; `None`: one that is not to be asked.
fn shard_node(
    node: Value<'_>,
    asked: &Endpoint,
    port_name: &str,
) -> Result<Option<(Role, Endpoint)>, SlotsReject> {
    let [endpoint, ip, told_port, role, health] =
        fields(node, ["endpoint", "ip", port_name, "role", "health"])?;
    let (Some(endpoint), Some(role), Some(health)) = (endpoint, role, health) else {
        return Err(SlotsReject::Shape);
    };
    let role = match role.text() {
        Some(b"master") => Role::Master,
        Some(b"replica") => Role::Replica,
        _ => return Err(SlotsReject::Shape),
    };
    // `fail` and `loading` beside `online` (shards); whatever else may come is no promise to serve either.
    let is_online = health.text().ok_or(SlotsReject::Shape)? == b"online";
    let port = told_port.as_ref().map(port).transpose()?;
    let host = host(&endpoint, ip.as_ref(), asked)?;
    Ok(match (host, port) {
        (Some(host), Some(port)) if is_online => Some((role, Endpoint { host, port })),
        _ => None,
    })
}
