//! The slot map of a Redis Cluster: replies as clusters give them in both versions of the protocol, what is refused, and
//! redirections.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use proptest::collection::vec;
use proptest::prelude::*;
use weir_core::limits::{HOST_NAME_BYTES_MAX, REDIS_NODES_MAX};
use weir_core::redis::endpoint::{Endpoint, Host, Redirect, RedirectKind};
use weir_core::redis::slots::{SlotMap, SlotRange, SlotsReject};
use weir_proto::resp::{ErrorReply, SLOTS_COUNT, Scan, Scanner, Value, key_slot, read};

/// A reply in short: `[a b]` an array, `{k v}` a map, digits an integer, `_` a null, anything else a string; `""` is empty.
/// `resp3`: how maps and nulls are written.
fn reply(text: &str, resp3: bool) -> Vec<u8> {
    fn items<'w>(words: &mut impl Iterator<Item = &'w str>, resp3: bool) -> (usize, String) {
        let (mut count, mut out) = (0, String::new());
        while let Some(word) = words.next() {
            match word {
                "]" | "}" => return (count, out),
                "[" | "{" => {
                    let (inside, body) = items(words, resp3);
                    out += &match (word, resp3) {
                        ("{", true) => format!("%{}\r\n{body}", inside / 2),
                        _ => format!("*{inside}\r\n{body}"),
                    };
                }
                "_" => out += if resp3 { "_\r\n" } else { "$-1\r\n" },
                "\"\"" => out += "$0\r\n\r\n",
                word if word
                    .parse::<i64>()
                    .is_ok_and(|number| number.to_string() == word) =>
                {
                    out += &format!(":{word}\r\n")
                }
                word => out += &format!("${}\r\n{word}\r\n", word.len()),
            }
            count += 1;
        }
        (count, out)
    }
    let spaced: String = text
        .chars()
        .map(|c| {
            if "[]{}".contains(c) {
                format!(" {c} ")
            } else {
                c.to_string()
            }
        })
        .collect();
    let raw = items(&mut spaced.split_whitespace(), resp3).1.into_bytes();
    assert_eq!(
        Scanner::new().scan(&raw),
        Scan::Done { bytes: raw.len() },
        "{text}"
    );
    raw
}

#[test]
fn a_map_that_came_by_tls_has_the_ports_of_tls() {
    let shard = "{slots [0 5] nodes [{port 7000 tls-port 7100 ip 10.0.0.1 endpoint 10.0.0.1 role master health online}]}";
    let plain =
        "{slots [6 9] nodes [{port 7000 ip 10.0.0.2 endpoint 10.0.0.2 role master health online}]}";
    let raw = reply(&format!("[{shard} {plain}]"), true);
    let map = SlotMap::from_reply_by_tls(read(&raw), &asked()).unwrap();
    assert_eq!(map.node_of(5), Some(&at("10.0.0.1:7100")));
    assert_eq!(map.node_of(6), None, "it cannot be reached by TLS");
    let map = SlotMap::from_reply(read(&raw), &asked()).unwrap();
    assert_eq!(map.node_of(5), Some(&at("10.0.0.1:7000")));
}

fn at(text: &str) -> Endpoint {
    let (host, port) = text.rsplit_once(':').unwrap();
    Endpoint {
        host: Host::parse(host.as_bytes()).unwrap(),
        port: port.parse().unwrap(),
    }
}

/// The node that was asked.
fn asked() -> Endpoint {
    at("10.0.0.9:7000")
}

/// The map of a reply, which is the same in both versions.
fn map(text: &str) -> Result<SlotMap, SlotsReject> {
    let [two, three] =
        [false, true].map(|resp3| SlotMap::from_reply(read(&reply(text, resp3)), &asked()));
    assert_eq!(two, three, "{text}");
    three
}

fn uncovered(map: &SlotMap) -> String {
    map.uncovered().map(|range| format!("{range} ")).collect()
}

fn node(name: &str, port: u32, role: &str, health: &str) -> String {
    format!(
        "{{id {name} port {port} ip 10.0.0.1 endpoint 10.0.0.1 role {role} replication-offset 72 health {health}}}"
    )
}

fn shard(slots: &str, nodes: &[String]) -> String {
    format!("{{slots [{slots}] nodes [{}]}}", nodes.concat())
}

#[test]
fn shards_and_slots_tell_the_same_map() {
    let shards = [
        shard(
            "10923 16383",
            &[
                node("c", 3, "master", "online"),
                node("f", 6, "replica", "online"),
            ],
        ),
        shard(
            "0 5460",
            &[
                node("d", 4, "replica", "online"),
                node("a", 1, "master", "online"),
            ],
        ),
        shard(
            "5461 10922",
            &[
                node("b", 2, "master", "online"),
                node("e", 5, "replica", "online"),
            ],
        ),
    ];
    let shards = map(&format!("[{}]", shards.concat())).unwrap();
    let slots = map(
        "[[10923 16383 [10.0.0.1 3 c []] [10.0.0.1 6 f {}]] [0 5460 [10.0.0.1 1 a {hostname h}] [10.0.0.1 4 d {}]] \
          [5461 10922 [10.0.0.1 2 b] [10.0.0.1 5]]]",
    )
    .unwrap();
    assert_eq!(shards, slots);
    for (slot, master, replica) in [
        (0, 1, 4),
        (5460, 1, 4),
        (5461, 2, 5),
        (10_922, 2, 5),
        (16_383, 3, 6),
    ] {
        assert_eq!(
            shards.node_of(slot),
            Some(&at(&format!("10.0.0.1:{master}")))
        );
        let replicas: Vec<&Endpoint> = shards.replicas_of(slot).collect();
        assert_eq!(replicas, [&at(&format!("10.0.0.1:{replica}"))]);
    }
    assert_eq!(shards.node_of(SLOTS_COUNT), None);
    assert_eq!(shards.replicas_of(SLOTS_COUNT).count(), 0);
    assert_eq!(shards.masters().len(), 3);
    assert_eq!(uncovered(&shards), "");
    // A SKU's keys have one slot, so one node.
    assert_eq!(
        shards.node_of(key_slot(b"{a1:s2}:stock")),
        shards.node_of(key_slot(b"{a1:s2}:users"))
    );
}

#[test]
fn slots_that_nobody_serves_are_named() {
    assert_eq!(uncovered(&SlotMap::new()), "0-16383 ");
    assert_eq!(uncovered(&map("[]").unwrap()), "0-16383 ");
    let nodes = [node("a", 1, "master", "online")];
    let holes = map(&format!("[{}]", shard("1 3 5 5 7 9 11 16382", &nodes))).unwrap();
    assert_eq!(uncovered(&holes), "0 4 6 10 16383 ");
    let first = SlotRange { first: 0, last: 0 };
    assert_eq!(holes.uncovered().next(), Some(first));
    // A shard may serve nothing (shards).
    let idle = map(&format!(
        "[{}]",
        shard(
            "",
            &[
                node("a", 1, "master", "online"),
                node("b", 2, "replica", "online")
            ]
        )
    ))
    .unwrap();
    assert_eq!(idle, SlotMap::new());
}

#[test]
fn nodes_that_are_not_online_serve_nothing() {
    for health in ["fail", "failed", "loading", "odd"] {
        let nodes = [
            node("a", 1, "master", health),
            node("b", 2, "replica", "online"),
        ];
        assert_eq!(
            uncovered(&map(&format!("[{}]", shard("0 16383", &nodes))).unwrap()),
            "0-16383 "
        );
        let nodes = [
            node("a", 1, "master", "online"),
            node("b", 2, "replica", health),
        ];
        let map = map(&format!("[{}]", shard("0 16383", &nodes))).unwrap();
        assert_eq!((map.masters().len(), map.replicas_of(0).count()), (1, 0));
    }
    // While a failover is noted, the old master may still stand beside the new one.
    let nodes = [
        node("a", 1, "master", "fail"),
        node("b", 2, "master", "online"),
    ];
    let failed_over = map(&format!("[{}]", shard("0 16383", &nodes))).unwrap();
    assert_eq!(failed_over.node_of(0), Some(&at("10.0.0.1:2")));
}

#[test]
fn a_node_without_a_host_is_where_we_asked_and_one_with_a_question_mark_is_unknown() {
    for (endpoint, more, host) in [
        ("_", "", Some("10.0.0.9")),
        ("\"\"", "ip 10.0.0.3", Some("10.0.0.9")),
        ("?", "ip 10.0.0.3", Some("10.0.0.3")),
        ("?", "ip \"\"", None),
        ("?", "", None),
        ("redis-1.test", "ip 10.0.0.3", Some("redis-1.test")),
        ("2001:db8::1", "", Some("2001:db8::1")),
    ] {
        let shards = format!(
            "[{{slots [0 16383] nodes [{{endpoint {endpoint} {more} port 5 role master health online}}]}}]"
        );
        let slots = format!("[[0 16383 [{endpoint} 5 id {{{more}}}]]]");
        for text in [shards, slots] {
            let map = map(&text).unwrap();
            let wanted = host.map(|host| at(&format!("{host}:5")));
            assert_eq!(map.node_of(0), wanted.as_ref(), "{text}");
            assert_eq!(uncovered(&map).is_empty(), host.is_some(), "{text}");
        }
    }
}

#[test]
fn a_node_that_speaks_only_tls_serves_nothing_here() {
    let text =
        "[{slots [0 16383] nodes [{endpoint 10.0.0.1 tls-port 5 role master health online}]}]";
    assert_eq!(uncovered(&map(text).unwrap()), "0-16383 ");
}

#[test]
fn what_is_out_of_range_or_said_twice_is_refused_whole() {
    let one = |field: &str, value: &str| {
        let fields = [
            ("endpoint", "10.0.0.1"),
            ("port", "5"),
            ("role", "master"),
            ("health", "online"),
        ];
        let told = fields
            .map(|(name, told)| format!("{name} {} ", if name == field { value } else { told }));
        format!("[{{slots [0 16383] nodes [{{{}}}]}}]", told.concat())
    };
    assert!(map(&one("none", "")).is_ok());
    let good = "{endpoint 10.0.0.1 port 5 role master health online}";
    let slots = |slots: &str| format!("[{{slots [{slots}] nodes [{good}]}}]");
    for (text, reject) in [
        (one("port", "0"), SlotsReject::Port),
        (one("port", "65536"), SlotsReject::Port),
        (one("port", "-1"), SlotsReject::Port),
        (one("port", "x"), SlotsReject::Shape),
        (one("role", "slave"), SlotsReject::Shape),
        (one("role", "_"), SlotsReject::Shape),
        (one("health", "1"), SlotsReject::Shape),
        (one("endpoint", "1"), SlotsReject::Shape),
        (one("endpoint", "a/b"), SlotsReject::Host),
        (one("endpoint", "[10.0.0.1]"), SlotsReject::Shape),
        (
            one("endpoint", &"x".repeat(HOST_NAME_BYTES_MAX + 1)),
            SlotsReject::Host,
        ),
        (slots("0 16384"), SlotsReject::Slot),
        (slots("-1 5"), SlotsReject::Slot),
        (slots("6 5"), SlotsReject::Slot),
        (slots("0 5 5 6"), SlotsReject::SlotTwice),
        (slots("0"), SlotsReject::Shape),
        (slots("a b"), SlotsReject::Shape),
        (
            format!("[{{slots [] nodes [{good}{good}]}}]"),
            SlotsReject::MasterTwice,
        ),
        (
            format!("[{{slots [0 1] nodes [{good}]}} {{slots [1 2] nodes [{good}]}}]"),
            SlotsReject::SlotTwice,
        ),
        (
            "[{nodes [] slots [] slots []}]".to_owned(),
            SlotsReject::Shape,
        ),
        ("[{slots []}]".to_owned(), SlotsReject::Shape),
        ("[{slots _ nodes []}]".to_owned(), SlotsReject::Shape),
        ("[{slots [] nodes [x]}]".to_owned(), SlotsReject::Shape),
        ("[5]".to_owned(), SlotsReject::Shape),
        ("{}".to_owned(), SlotsReject::Shape),
        ("[[0 1]]".to_owned(), SlotsReject::Shape),
        ("[[0 1 [10.0.0.1]]]".to_owned(), SlotsReject::Shape),
        ("[[0 1 [10.0.0.1 0 id]]]".to_owned(), SlotsReject::Port),
        (
            "[[0 1 [10.0.0.1 5 id]] [1 1 [10.0.0.1 6 id]]]".to_owned(),
            SlotsReject::SlotTwice,
        ),
        ("[[5 4 [10.0.0.1 5 id]]]".to_owned(), SlotsReject::Slot),
        (
            "[[0 1 [10.0.0.1 5 id [ip]]]]".to_owned(),
            SlotsReject::Shape,
        ),
    ] {
        // An empty map in RESP2 is an empty array, which tells of no shards.
        let told = SlotMap::from_reply(read(&reply(&text, true)), &asked());
        assert_eq!(told.unwrap_err(), reject, "{text}");
    }
    for value in [Value::Null, Value::Simple(b"OK"), Value::Integer(1)] {
        assert_eq!(
            SlotMap::from_reply(value, &asked()),
            Err(SlotsReject::Shape)
        );
    }
}

#[test]
fn a_cluster_has_its_limit_of_nodes() {
    let cluster = |nodes_count: usize| {
        let entry = |at: usize| match at {
            0 => format!(
                "[0 0 [h 1] {}]",
                (1..nodes_count / 2)
                    .map(|at| format!("[h {}]", at + 1))
                    .collect::<String>()
            ),
            at => format!("[{at} {at} [m {at}]]"),
        };
        let masters = nodes_count - nodes_count / 2;
        format!("[{}]", (0..=masters).map(entry).collect::<String>())
    };
    let mut full = map(&cluster(REDIS_NODES_MAX)).unwrap();
    assert_eq!(
        full.masters().len() + full.replicas_of(0).count(),
        REDIS_NODES_MAX
    );
    assert_eq!(
        map(&cluster(REDIS_NODES_MAX + 1)),
        Err(SlotsReject::TooManyNodes)
    );
    let before = full.clone();
    assert_eq!(full.moved(9, &at("new:1")), Err(SlotsReject::TooManyNodes));
    assert_eq!(full, before);
    // A replica that has become a master is not one more.
    assert_eq!(full.moved(0, &at("h:2")), Ok(()));
    assert_eq!(full.node_of(0), Some(&at("h:2")));
    // In one shard alone, whose nodes are counted before its slots are read.
    let many = "{endpoint h port 5 role replica health online}".repeat(REDIS_NODES_MAX + 1);
    assert_eq!(
        map(&format!("[{{slots [] nodes [{many}]}}]")),
        Err(SlotsReject::TooManyNodes)
    );
}

#[test]
fn the_same_node_is_kept_once() {
    // CLUSTER SLOTS repeats a master and its replicas for each of its ranges.
    let slots = map("[[0 5 [h 1 a] [h 2 b]] [7 9 [h 1 a] [h 2 b]] [6 6 [h 3 c]]]").unwrap();
    assert_eq!(
        (slots.masters().len(), slots.replicas_of(8).count()),
        (2, 1)
    );
    assert_eq!(slots.node_of(9), slots.node_of(0));
}

fn redirect(text: &str) -> Result<Option<Redirect>, SlotsReject> {
    let raw = format!("-{text}\r\n");
    let Value::Error(error) = read(raw.as_bytes()) else {
        panic!("{text}");
    };
    Redirect::parse(&error, &asked())
}

#[test]
fn redirections_are_read_strictly() {
    for (text, kind, slot, endpoint) in [
        (
            "MOVED 3999 127.0.0.1:6381",
            RedirectKind::Moved,
            3999,
            "127.0.0.1:6381",
        ),
        (
            "ASK 16383 127.0.0.1:6381",
            RedirectKind::Ask,
            16_383,
            "127.0.0.1:6381",
        ),
        ("MOVED 0 :6381", RedirectKind::Moved, 0, "10.0.0.9:6381"),
        (
            "MOVED 1 redis-1.test:65535",
            RedirectKind::Moved,
            1,
            "redis-1.test:65535",
        ),
        (
            "MOVED 1 2001:db8::1:6381",
            RedirectKind::Moved,
            1,
            "2001:db8::1:6381",
        ),
        (
            "MOVED 1 [2001:db8::1]:6381",
            RedirectKind::Moved,
            1,
            "2001:db8::1:6381",
        ),
    ] {
        let endpoint = at(endpoint);
        assert_eq!(
            redirect(text),
            Ok(Some(Redirect {
                kind,
                slot,
                endpoint
            })),
            "{text}"
        );
    }
    for text in [
        "ERR MOVED 1 h:1",
        "MOVEDX 1 h:1",
        "CLUSTERDOWN Hash slot not served",
        "TRYAGAIN",
        "",
    ] {
        assert_eq!(redirect(text), Ok(None), "{text}");
    }
    for (text, reject) in [
        ("MOVED", SlotsReject::Shape),
        ("MOVED 1", SlotsReject::Shape),
        ("MOVED 1 h", SlotsReject::Shape),
        ("MOVED 1 h:1 more", SlotsReject::Shape),
        ("MOVED  1 h:1", SlotsReject::Shape),
        ("MOVED 16384 h:1", SlotsReject::Slot),
        ("MOVED -1 h:1", SlotsReject::Slot),
        ("MOVED +1 h:1", SlotsReject::Slot),
        ("MOVED 01 h:1", SlotsReject::Slot),
        ("MOVED x h:1", SlotsReject::Slot),
        ("ASK 1 h:0", SlotsReject::Port),
        ("ASK 1 h:65536", SlotsReject::Port),
        ("ASK 1 h:", SlotsReject::Port),
        ("ASK 1 h:+1", SlotsReject::Port),
        ("ASK 1 ?:1", SlotsReject::HostUnknown),
        ("ASK 1 h\u{e9}:1", SlotsReject::Host),
        ("ASK 1 [10.0.0.1]:1", SlotsReject::Host),
        ("ASK 1 ::g:1", SlotsReject::Host),
    ] {
        assert_eq!(redirect(text), Err(reject), "{text}");
    }
    assert_eq!(at("::1:80").to_string(), "[::1]:80");
    assert_eq!(at("10.0.0.1:80").to_string(), "10.0.0.1:80");
    assert_eq!(at("redis-1:80").to_string(), "redis-1:80");
}

#[test]
fn a_moved_slot_has_its_new_master_until_the_next_map() {
    let mut map = map("[[0 16383 [h 1 a] [h 2 b]]]").unwrap();
    let moved = redirect("MOVED 3999 h:3").unwrap().unwrap();
    map.moved(moved.slot, &moved.endpoint).unwrap();
    assert_eq!(map.node_of(3999), Some(&at("h:3")));
    assert_eq!(map.node_of(3998), Some(&at("h:1")));
    assert_eq!(map.replicas_of(3999).count(), 0);
    // A failover: the replica is the master now, and no replica any more.
    map.moved(0, &at("h:2")).unwrap();
    assert_eq!(map.node_of(0), Some(&at("h:2")));
    assert_eq!(map.replicas_of(1).count(), 0);
    assert_eq!(map.moved(SLOTS_COUNT, &at("h:2")), Err(SlotsReject::Slot));
    assert_eq!(uncovered(&map), "");
}

#[test]
fn every_reason_has_words_of_its_own() {
    let all = [
        SlotsReject::Shape,
        SlotsReject::Slot,
        SlotsReject::SlotTwice,
        SlotsReject::Port,
        SlotsReject::Host,
        SlotsReject::HostUnknown,
        SlotsReject::MasterTwice,
        SlotsReject::TooManyNodes,
    ];
    let words: std::collections::BTreeSet<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), all.len());
    assert!(
        SlotsReject::TooManyNodes
            .to_string()
            .contains(&format!(" {REDIS_NODES_MAX} "))
    );
}

/// Words of replies, good and bad, in any order.
fn scraps() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "slots", "nodes", "endpoint", "ip", "port", "role", "health", "master", "replica",
        "online", "fail", "10.0.0.1", "?", "\"\"", "_", "0", "1", "5", "16383", "16384", "-1",
        "6379", "65536", "h",
    ])
    .prop_map(str::to_owned);
    let node = "(endpoint (10\\.0\\.0\\.1|_|\\?|h) )?(port (1|6379|0) )?(role (master|replica) )?(health (online|fail))?"
        .prop_map(|fields| format!("{{{fields}}}"));
    let entry = (vec(0..20_i32, 0..5), vec(node, 0..3)).prop_map(|(slots, nodes)| {
        let slots: String = slots.iter().map(|slot| format!("{slot} ")).collect();
        format!("{{slots [{slots}] nodes [{}]}}", nodes.concat())
    });
    let range = "[0-9]{1,2} [0-9]{1,2} \\[(10\\.0\\.0\\.1|_|h) [0-9]\\]( \\[h [0-9]\\])?"
        .prop_map(|range| format!("[{range}]"));
    prop_oneof![leaf, entry, range].prop_recursive(4, 40, 6, |inner| {
        vec(inner, 0..6).prop_map(|items| format!("[{}]", items.join(" ")))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_reply_panics_and_each_slot_is_served_or_uncovered(text in scraps(), resp3 in any::<bool>()) {
        let raw = reply(&text, resp3);
        if let Ok(map) = SlotMap::from_reply(read(&raw), &asked()) {
            let free: Vec<u16> = map.uncovered().flat_map(|range| range.first..=range.last).collect();
            for slot in 0..SLOTS_COUNT {
                prop_assert_eq!(map.node_of(slot).is_none(), free.binary_search(&slot).is_ok());
            }
            prop_assert!(map.masters().iter().all(|master| master.port > 0));
        }
    }

    #[test]
    fn no_bytes_panic(raw in vec(any::<u8>(), 0..80)) {
        if let Scan::Done { bytes } = Scanner::new().scan(&raw) {
            let _ = SlotMap::from_reply(read(&raw[..bytes]), &asked());
        }
        let code = raw.split(|&byte| byte == b' ').next().unwrap_or_default();
        let _ = Redirect::parse(&ErrorReply { code, text: &raw }, &asked());
        let redirection = [b"MOVED ", raw.as_slice()].concat();
        let error = ErrorReply { code: b"MOVED", text: &redirection };
        if let Ok(Some(redirect)) = Redirect::parse(&error, &asked()) {
            prop_assert!(redirect.slot < SLOTS_COUNT && redirect.endpoint.port > 0);
        }
    }
}
