//! What weir thinks of Redis Cluster, held against real servers: the slot map, redirections, holes, failover.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

#[path = "redis_part/mod.rs"]
mod redis_part;

use redis_part::cluster::Cluster;
use redis_part::link::Link;
use redis_part::{Redis, until};
use std::path::Path;
use weir_core::redis::endpoint::{Endpoint, Host, Redirect, RedirectKind};
use weir_core::redis::slots::{SlotMap, SlotsReject};
use weir_proto::resp::{SLOTS_COUNT, Value, key_slot, read};

#[test]
fn a_server_answers_and_is_gone_with_its_test() {
    let Some(server) = Redis::start() else {
        return;
    };
    assert_eq!(server.cli(&["PING"]), "PONG");
    assert_eq!(
        server.cli(&["CONFIG", "GET", "appendonly"]),
        "appendonly\nno"
    );
    let (pid, addr) = (server.pid(), server.addr());
    let fallen = std::thread::spawn(move || {
        assert_eq!(server.cli(&["GET", "nothing"]), "something");
    });
    fallen
        .join()
        .expect_err("the thread panics, with the server in its hands");
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    std::net::TcpStream::connect(addr).expect_err("nobody listens any more");
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        host: Host::parse(b"127.0.0.1").unwrap(),
        port,
    }
}

/// The map that the node at `index` tells by `question`, in RESP2 or RESP3.
fn map_of(cluster: &Cluster, index: usize, resp3: bool, question: &str) -> SlotMap {
    let mut link = cluster.link(index);
    if resp3 {
        let hello = link.say("HELLO 3");
        assert!(matches!(read(&hello), Value::Map(_)));
    }
    let frame = link.say(question);
    SlotMap::from_reply(read(&frame), &endpoint(cluster.nodes[index].port)).unwrap()
}

fn uncovered(map: &SlotMap) -> Vec<String> {
    map.uncovered().map(|range| range.to_string()).collect()
}

/// What a map says, without the order in which it was told.
fn told(map: &SlotMap) -> Vec<(Option<u16>, Vec<u16>)> {
    let of_slot = |slot: u16| {
        let mut replicas: Vec<u16> = map.replicas_of(slot).map(|replica| replica.port).collect();
        replicas.sort_unstable();
        (map.node_of(slot).map(|node| node.port), replicas)
    };
    (0..SLOTS_COUNT).map(of_slot).collect()
}

/// The redirection in a reply, which must be one.
fn redirection(frame: &[u8], asked: &Endpoint) -> Result<Redirect, SlotsReject> {
    let Value::Error(error) = read(frame) else {
        panic!("{:?} is no error", read(frame));
    };
    Ok(Redirect::parse(&error, asked)?.expect("a redirection"))
}

/// Every node tells the same by either command in either version; each slot has a master with one replica.
fn every_node_tells_the_same(cluster: &Cluster) -> SlotMap {
    let first = map_of(cluster, 0, false, "CLUSTER SHARDS");
    assert_eq!(uncovered(&first), [""; 0]);
    let masters = cluster.nodes.len() / 2;
    assert_eq!(first.masters().len(), masters);
    let wanted = told(&first);
    assert!(wanted.iter().all(|(_, replicas)| replicas.len() == 1));
    for index in 0..cluster.nodes.len() {
        for (resp3, question) in [
            (false, "CLUSTER SHARDS"),
            (true, "CLUSTER SHARDS"),
            (false, "CLUSTER SLOTS"),
            (true, "CLUSTER SLOTS"),
        ] {
            let map = map_of(cluster, index, resp3, question);
            assert!(
                told(&map) == wanted,
                "{question} of node {index}, RESP3 {resp3}"
            );
        }
    }
    first
}

/// Keys lie where weir thinks; whoever else is asked says MOVED, to where weir thinks.
fn every_key_is_found(cluster: &Cluster, map: &SlotMap) {
    let mut links: Vec<Link> = (0..cluster.nodes.len())
        .map(|index| cluster.link(index))
        .collect();
    for number in 0..200 {
        let key = match number % 4 {
            0 => format!("{{a{number}:s1}}:stock"),
            1 => format!("a{{}}{{{number}}}"),
            2 => format!("{{{{{number}}}}}"),
            _ => format!("plain{number}"),
        };
        let slot = key_slot(key.as_bytes());
        let frame = links[0].say(&format!("CLUSTER KEYSLOT {key}"));
        assert_eq!(read(&frame), Value::Integer(i64::from(slot)), "{key}");
        let node = map.node_of(slot).unwrap();
        let owner = cluster.index_of(node.port);
        links[owner].order(&format!("SET {key} {number}"));
        let stranger = (owner + 1) % cluster.nodes.len();
        let frame = links[stranger].say(&format!("GET {key}"));
        let moved = redirection(&frame, &endpoint(cluster.nodes[stranger].port)).unwrap();
        let wanted = Redirect {
            kind: RedirectKind::Moved,
            slot,
            endpoint: node.clone(),
        };
        assert_eq!(moved, wanted, "{key}");
    }
}

/// A slot on its way: the old node says ASK, the new one serves behind ASKING only, and the map stays.
fn a_slot_on_its_way_is_asked_for(cluster: &Cluster, map: &SlotMap) {
    let key = "{on-its-way}";
    let slot = key_slot(key.as_bytes());
    let from = cluster.index_of(map.node_of(slot).unwrap().port);
    let other = map
        .masters()
        .iter()
        .find(|master| **master != endpoint(cluster.nodes[from].port));
    let to = cluster.index_of(other.unwrap().port);
    let id = |index: usize| cluster.nodes[index].cli(&["CLUSTER", "MYID"]);
    let (mut old, mut new) = (cluster.link(from), cluster.link(to));
    new.order(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from)));
    old.order(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to)));
    let asked = endpoint(cluster.nodes[from].port);
    let ask = redirection(&old.say(&format!("SET {key} 1")), &asked).unwrap();
    let wanted = Redirect {
        kind: RedirectKind::Ask,
        slot,
        endpoint: endpoint(cluster.nodes[to].port),
    };
    assert_eq!(ask, wanted);
    let unasked = redirection(&new.say(&format!("SET {key} 1")), &ask.endpoint).unwrap();
    assert_eq!(
        (unasked.kind, unasked.endpoint),
        (RedirectKind::Moved, asked)
    );
    new.order("ASKING");
    new.order(&format!("SET {key} 1"));
    new.order("ASKING");
    assert_eq!(read(&new.say(&format!("DEL {key}"))), Value::Integer(1));
    for link in [&mut old, &mut new] {
        link.order(&format!("CLUSTER SETSLOT {slot} STABLE"));
    }
    assert!(told(&map_of(cluster, from, true, "CLUSTER SHARDS")) == told(map));
}

/// Nodes that do not tell their host are where we asked; those that lack a host name are found by their address, but not
/// from a redirection, which tells none.
fn hosts_that_are_not_told(cluster: &Cluster, map: &SlotMap) {
    let setting = "CONFIG SET cluster-preferred-endpoint-type";
    let mut link = cluster.link(0);
    let slot = key_slot(b"foo");
    let owner = map.node_of(slot).unwrap();
    let stranger = (cluster.index_of(owner.port) + 1) % cluster.nodes.len();
    let asked = endpoint(cluster.nodes[stranger].port);
    let mut other = cluster.link(stranger);
    for (kind, moved) in [
        ("unknown-endpoint", Ok(owner.clone())),
        ("hostname", Err(SlotsReject::HostUnknown)),
    ] {
        link.order(&format!("{setting} {kind}"));
        other.order(&format!("{setting} {kind}"));
        for (resp3, question) in [
            (false, "CLUSTER SHARDS"),
            (true, "CLUSTER SHARDS"),
            (false, "CLUSTER SLOTS"),
            (true, "CLUSTER SLOTS"),
        ] {
            let now = map_of(cluster, 0, resp3, question);
            assert!(told(&now) == told(map), "{kind}, {question}, RESP3 {resp3}");
        }
        let frame = other.say("GET foo");
        assert_eq!(
            redirection(&frame, &asked).map(|moved| moved.endpoint),
            moved,
            "{kind}"
        );
    }
    link.order(&format!("{setting} ip"));
    other.order(&format!("{setting} ip"));
}

/// A master dies: for a while its slots are nobody's, then its replica's.
fn a_dead_master_is_followed_by_its_replica(cluster: &Cluster, map: &SlotMap) {
    let slot = key_slot(b"foo");
    let dead = map.node_of(slot).unwrap().clone();
    let heir = map.replicas_of(slot).next().unwrap().clone();
    let witness = map
        .masters()
        .iter()
        .find(|master| **master != dead)
        .unwrap();
    let witness = cluster.index_of(witness.port);
    cluster.nodes[cluster.index_of(dead.port)].signal("KILL");
    let mut now = map.clone();
    until("the replica is the master", || {
        now = map_of(cluster, witness, true, "CLUSTER SHARDS");
        now.node_of(slot) == Some(&heir) && uncovered(&now).is_empty()
    });
    assert_eq!(
        now.replicas_of(slot).count(),
        0,
        "a dead node is no replica"
    );
    assert_eq!(now.masters().len(), map.masters().len());
    // One MOVED repairs the old map for this slot.
    let mut link = cluster.link(witness);
    let moved = redirection(&link.say("GET foo"), &endpoint(cluster.nodes[witness].port)).unwrap();
    let mut old = map.clone();
    old.moved(moved.slot, &moved.endpoint).unwrap();
    assert_eq!(old.node_of(slot), Some(&heir));
    assert_eq!(old.replicas_of(slot).count(), 0);
}

/// A node that is told to serve no longer some of its slots: they are named.
fn a_hole_is_named(cluster: &Cluster, map: &SlotMap) {
    let owner = cluster.index_of(map.node_of(100).unwrap().port);
    // The heir of the master that died may be news to it.
    until("it has heard who serves every slot", || {
        uncovered(&map_of(cluster, owner, true, "CLUSTER SHARDS")).is_empty()
    });
    let mut link = cluster.link(owner);
    link.order("CLUSTER DELSLOTSRANGE 100 199 201 201");
    for question in ["CLUSTER SHARDS", "CLUSTER SLOTS"] {
        let now = map_of(cluster, owner, true, question);
        assert_eq!(uncovered(&now), ["100-199", "201"], "{question}");
        assert_eq!(now.node_of(150), None);
        assert_eq!(now.node_of(200), map.node_of(200));
    }
}

#[test]
fn a_cluster_of_three_and_three_is_as_its_map_says() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let map = every_node_tells_the_same(&cluster);
    every_key_is_found(&cluster, &map);
    a_slot_on_its_way_is_asked_for(&cluster, &map);
    hosts_that_are_not_told(&cluster, &map);
    a_dead_master_is_followed_by_its_replica(&cluster, &map);
    let survivor = map
        .masters()
        .iter()
        .find(|master| Some(*master) != map.node_of(key_slot(b"foo")));
    let now = map_of(
        &cluster,
        cluster.index_of(survivor.unwrap().port),
        true,
        "CLUSTER SHARDS",
    );
    a_hole_is_named(&cluster, &now);
}
