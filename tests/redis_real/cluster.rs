//! The desk on a real driver against a cluster of three masters and three replicas: slots that move, masters that die
//! and masters that change.

use super::books;
use super::load::{End, Load, Report, Sale, endpoint};
use super::redis_part::cluster::Cluster;
use super::redis_part::link::Link;
use super::redis_part::say;
use super::redis_part::until;
use weir_core::redis::slots::SlotMap;
use weir_io::choice::{DriverKind, Wanted};
use weir_proto::resp::{Value, key_slot, read};

const STOCK: u64 = 1_000_000;

fn slot_of(number: u64) -> u16 {
    key_slot(books::key(number, "sku").as_bytes())
}

/// The master of the slot of that SKU, as the node at `asked` sees it.
fn master_of(cluster: &Cluster, asked: usize, number: u64) -> Option<usize> {
    let frame = cluster.link(asked).say("CLUSTER SHARDS");
    let map = SlotMap::from_reply(read(&frame), &endpoint(cluster.nodes[asked].port)).unwrap();
    let node = map.node_of(slot_of(number))?;
    Some(cluster.index_of(node.port))
}

/// Two SKUs on each of the three masters, from number `first` on: those of one master after another.
fn spread(cluster: &Cluster, first: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for master in 0..3 {
        let there = (first..).filter(|&number| master_of(cluster, 0, number) == Some(master));
        numbers.extend(there.take(2));
    }
    numbers
}

fn load(cluster: &Cluster, kind: DriverKind, numbers: &[u64], patience_ms: u64) -> Load {
    let load = Load::start(Sale {
        // One of them is enough to find the others; a dead one must not be needed.
        ports: vec![cluster.nodes[0].port, cluster.nodes[1].port],
        is_cluster: true,
        kind,
        skus: numbers.iter().map(|&number| (number, STOCK)).collect(),
        lanes: 8,
        buyers: None,
        patience_ms,
    });
    for place in 0..numbers.len() {
        until("it sells", || load.granted(place) > 20);
    }
    load
}

/// Waits until so many more of that SKU were granted.
fn sells_on(load: &Load, place: usize) {
    let before = load.granted(place);
    until("it sells on", || load.granted(place) > before + 50);
}

/// How often a node said that error.
fn errors(cluster: &Cluster, word: &str) -> u64 {
    let stat = format!("errorstat_{word}:count=");
    let mut sum = 0;
    for node in &cluster.nodes {
        let info = node.cli(&["INFO", "errorstats"]);
        let lines = info.lines().filter_map(|line| line.strip_prefix(&stat));
        sum += lines
            .map(|line| line.trim().parse::<u64>().unwrap())
            .sum::<u64>();
    }
    sum
}

/// Moves the slot of a SKU key by key, as `redis-cli --cluster reshard` does, while it is asked for.
fn move_slot(cluster: &Cluster, load: &Load, place: usize, number: u64, to: usize) {
    let slot = slot_of(number);
    let from = master_of(cluster, to, number).unwrap();
    let id = |index: usize| cluster.nodes[index].cli(&["CLUSTER", "MYID"]);
    let (mut old, mut new) = (cluster.link(from), cluster.link(to));
    new.order(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from)));
    old.order(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to)));
    let port = cluster.nodes[to].port;
    let before = load.counts();
    until("TRYAGAIN is met", || {
        load.counts().refusals > before.refusals
    });
    let keys = keys_in(&mut old, slot);
    let mut left = keys;
    while let Some(key) = left.pop() {
        old.order(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
        if left.is_empty() {
            left = keys_in(&mut old, slot); // tombstones come meanwhile
        }
    }
    let before = errors(cluster, "ASK");
    until("ASK is met", || errors(cluster, "ASK") > before);
    let node = id(to);
    for link in [&mut new, &mut old] {
        link.order(&format!("CLUSTER SETSLOT {slot} NODE {node}"));
    }
    sells_on(load, place);
}

fn keys_in(link: &mut Link, slot: u16) -> Vec<String> {
    let frame = link.say(&format!("CLUSTER GETKEYSINSLOT {slot} 100"));
    let Value::Array(items) = read(&frame) else {
        panic!("{:?} is no list", read(&frame));
    };
    let text = |value: Value<'_>| String::from_utf8(value.text().unwrap().to_vec()).unwrap();
    items.map(text).collect()
}

/// Says the sums of it and holds the books of these places against it.
fn judge(what: &str, cluster: &Cluster, report: &Report, numbers: &[u64], places: &[usize]) {
    let mut wrong = report.wrong.clone();
    for &place in places {
        wrong.extend(books::differences(
            &cluster.nodes[0],
            report,
            place,
            numbers[place],
        ));
    }
    let resent = report.wrong.iter().filter(|what| what.contains("Repeated"));
    say::say(&format!(
        "{what}: asks {}, wrong {}, resent_unknown {}; {:?}",
        report.asks,
        wrong.len(),
        resent.count(),
        report.counts
    ));
    wrong.truncate(5);
    assert_eq!(wrong, [""; 0]);
    for &place in places {
        let ends = report.ends(place);
        let given_up = [End::GaveUp, End::Unknown, End::Lost].map(|end| ends.contains_key(&end));
        assert_eq!(given_up, [false; 3], "{ends:?}");
    }
}

/// Field bug R26, and slots that move under load: MOVED, ASK and TRYAGAIN are each met.
#[test]
fn slots_move_under_load_and_every_book_is_right() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let numbers = spread(&cluster, 1);
    let load = load(&cluster, DriverKind::Epoll, &numbers, 30_000);
    for round in 1..=2 {
        for (place, &number) in numbers.iter().enumerate() {
            let to = (place / 2 + round) % 3;
            move_slot(&cluster, &load, place, number, to);
        }
    }
    let report = load.finish();
    for word in ["MOVED", "ASK", "TRYAGAIN"] {
        assert!(errors(&cluster, word) > 0, "no {word} was met");
    }
    judge(
        "12 slots moved",
        &cluster,
        &report,
        &numbers,
        &[0, 1, 2, 3, 4, 5],
    );
    let counts = report.counts;
    assert!(counts.resends > 0, "{counts:?}");
    // A slot on its way is no reason to leave the other SKUs of its nodes alone.
    assert_eq!((counts.broken, counts.faults, counts.unknown), (0, 0, 0));
}

/// A new master is looked at before it grants anything: it may lack grants that were acknowledged.
fn is_frozen_until_trusted(cluster: &Cluster, load: &Load, places: [usize; 2], heir: usize) {
    let heir = endpoint(cluster.nodes[heir].port);
    for place in places {
        let before = load.frozen(place);
        until("its asks are refused", || load.frozen(place) > before + 10);
    }
    let granted = places.map(|place| load.granted(place));
    let others: Vec<usize> = (0..6).filter(|place| !places.contains(place)).collect();
    others.iter().for_each(|&place| sells_on(load, place));
    assert_eq!(places.map(|place| load.granted(place)), granted);
    assert_eq!(load.changed(), std::slice::from_ref(&heir));
    for (place, before) in places.into_iter().zip(granted) {
        until("it sells on once its books are taken for right", || {
            load.mend();
            load.granted(place) > before + 10
        });
    }
    assert_eq!(load.changed(), []);
}

/// The master of that SKU and its replica.
fn pair_of(cluster: &Cluster, number: u64) -> (usize, usize) {
    let master = master_of(cluster, 0, number).unwrap();
    let id = cluster.nodes[master].cli(&["CLUSTER", "MYID"]);
    let replicas = cluster.nodes[master].cli(&["CLUSTER", "REPLICAS", &id]);
    let mut nodes = cluster.nodes.iter();
    let heir = nodes.position(|node| replicas.contains(&format!("127.0.0.1:{}@", node.port)));
    (master, heir.expect("each master has a replica"))
}

/// Field bugs R27 and R34.
#[test]
fn a_dead_master_stops_no_other_slot_and_a_new_one_grants_nothing_until_it_is_trusted() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    for node in &cluster.nodes {
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let numbers = spread(&cluster, 1);
    let kind = Wanted::Auto.choose(false).unwrap().kind;
    let load = load(&cluster, kind, &numbers, 3_000);
    // A change of roles that loses nothing: the old master stays, and its link, too.
    let (_, heir) = pair_of(&cluster, numbers[2]);
    cluster.link(heir).order("CLUSTER FAILOVER");
    is_frozen_until_trusted(&cluster, &load, [2, 3], heir);
    // A master dies and nobody takes its place.
    let (master, heir) = pair_of(&cluster, numbers[4]);
    cluster.nodes[heir].cli(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]);
    cluster.nodes[master].signal("KILL");
    let over = load.over(4);
    until("asks for it end", || load.over(4) > over + 20);
    (0..4).for_each(|place| sells_on(&load, place));
    // Now its replica does.
    cluster.nodes[heir].cli(&["CONFIG", "SET", "cluster-replica-no-failover", "no"]);
    is_frozen_until_trusted(&cluster, &load, [4, 5], heir);
    // A master hangs: its replica takes its place, and it comes back as a replica.
    let (master, heir) = pair_of(&cluster, numbers[0]);
    cluster.nodes[master].signal("STOP");
    is_frozen_until_trusted(&cluster, &load, [0, 1], heir);
    cluster.nodes[master].signal("CONT");
    until("it is a replica", || {
        cluster.nodes[master].cli(&["ROLE"]).starts_with("slave")
    });
    (0..6).for_each(|place| sells_on(&load, place));
    let report = load.finish();
    say::say(&format!(
        "of a SKU of the dead master {:?}, of the one that hung {:?}",
        report.ends(4),
        report.ends(0)
    ));
    // Redis acknowledges before its replica has it: only where the old master was asked first nothing can be lost.
    judge("masters changed", &cluster, &report, &numbers, &[2, 3]);
}
