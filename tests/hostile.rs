//! Hostile connections (A1, A2): while each attack runs, good buyers lose nothing but what a named limit refuses, memory
//! stays under the bound printed at start, and afterwards nothing is left of it.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

#[path = "bad_input_world/mod.rs"]
mod world;

#[path = "hostile/attacks.rs"]
mod attacks;

#[path = "support/say.rs"]
mod say;

use attacks::{Attack, Tally, Way};
use say::say;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Instant;
use weir::config::Host;
use world::{PATIENCE, Running, Shop};

/// Good submits per second: far below a fifth of what a debug build takes beside an attack on two cores.
const GOOD_PER_S: u64 = 500;
/// Their connections.
const GOOD_CONNS: usize = 32;
/// Most idle connections: the clock of the test goes on while they are made.
const IDLE_MAX: usize = 19_000;
/// How long the good buyers come.
const GOOD_FOR: &str = "4s";
/// How often a void run (the generator itself lagged) is repeated.
const TRIES_MAX: u32 = 4;
/// Descriptors that test and server keep for other things.
const SPARE: usize = 1_000;

const HEAD: &[u8] = b"POST /v1/seckill/guess HTTP/1.1\r\nHost: shop\r\n\
    Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n";
const GET: &[u8] = b"GET /nothing HTTP/1.1\r\nHost: shop\r\n\r\n";
/// Sixty-four at once.
const GETS: &[u8] = &{
    let mut bytes = [0; 64 * GET.len()];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = GET[at % GET.len()];
        at += 1;
    }
    bytes
};
const TLS_HELLO: &[u8] =
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03weir-clear-port-gets-a-tls-hello";

/// One attack of each kind. `idle_conns`: as many as the process may have open.
fn attacks(idle_conns: usize) -> Vec<Attack> {
    let attack = |name, conns, told, way| Attack {
        name,
        conns,
        way,
        told,
        from_one: false,
    };
    let trickle = |at_once, slowly| Way::Trickle { at_once, slowly };
    let (late, bad, nothing) = (Some("408"), Some("400"), Some("404"));
    vec![
        attack("slow head", 500, late, trickle(b"", HEAD)),
        attack("slow body", 500, late, trickle(HEAD, &[b' '; 4_000])),
        attack(
            "slow read of pipelined answers",
            1_000,
            None,
            Way::NeverRead { request: GETS },
        ),
        attack("idle", idle_conns, None, Way::Idle),
        Attack {
            from_one: true,
            ..attack("idle from one address", 1_000, Some("429"), Way::Idle)
        },
        attack("connect and reset", 50, None, Way::Reset),
        attack("half-open", 500, bad, Way::HalfClose { bytes: b"GET / HT" }),
        attack(
            "one-byte segments",
            200,
            nothing,
            Way::Bytewise { request: GET },
        ),
        attack(
            "huge pipelines",
            50,
            nothing,
            Way::Pipeline { request: GETS },
        ),
        attack("a length without a body", 500, late, trickle(HEAD, b"")),
        attack("TLS on the clear port", 200, bad, trickle(TLS_HELLO, b"")),
    ]
}

#[test]
fn good_buyers_are_served_while_each_attack_runs_and_nothing_is_left_of_it() {
    let descriptors = Host::read().descriptors_max.unwrap();
    let idle_conns = (usize::try_from(descriptors).unwrap() - SPARE).min(IDLE_MAX);
    say(&format!(
        "hostile: {descriptors} descriptors a process, so {idle_conns} idle connections"
    ));
    for attack in attacks(idle_conns) {
        play(attack, "uring");
        // What one client may make a driver keep is the driver's own affair.
        if matches!(attack.way, Way::NeverRead { .. } | Way::Idle) {
            play(attack, "epoll");
        }
    }
}

/// A shop that the attack can fill: so its memory bound is close to what the attack can take.
fn shop_for(attack: Attack, driver: &str) -> Shop {
    let shop = Shop::new("hostile");
    shop.set(
        "server",
        &format!(
            "driver = \"{driver}\"\nconns_max = {}\nhead_timeout = \"1s\"\nbody_timeout = \"1s\"\nidle_timeout = \"30s\"\n\
             write_timeout = \"1s\"\nlinger_timeout = \"1s\"",
            attack.conns + GOOD_CONNS + 20
        ),
    );
    shop
}

/// What the first line of `serve` says it may take: `1 shard(s) of at most 600 MiB each, 120 MiB shared; …`.
fn bound_bytes(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains(" MiB shared; "));
    let numbers: Vec<u64> = line
        .unwrap()
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    (numbers[0] * numbers[1] + numbers[2]) << 20
}

/// The sum of a metric over its labels.
fn sample(metrics: &str, name: &str) -> u64 {
    let lines = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{'])
            .then(|| rest.rsplit(' ').next()?.parse::<u64>().ok())?
    });
    lines.sum()
}

/// The most memory the process has had, in bytes.
fn peak_bytes(server: &Running) -> u64 {
    let proc_file = |name: &str| format!("/proc/{}/{name}", server.pid());
    let status = std::fs::read_to_string(proc_file("status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

fn play(attack: Attack, driver: &str) {
    let shop = shop_for(attack, driver);
    let server = shop.start();
    let bound = bound_bytes(&server.said());
    let mut tries = 0;
    let (good, tally) = loop {
        tries += 1;
        let (stop, stopped) = channel::<()>();
        let attacker = std::thread::spawn({
            let target = server.listen;
            move || attacks::run(attack, target, &stopped)
        });
        let good = good_buyers(&shop, &server);
        drop(stop);
        let tally: Tally = attacker.join().unwrap();
        let void = good["void_because"].as_array().unwrap();
        if void.is_empty() || tries == TRIES_MAX {
            break (good, tally);
        }
    };
    let peak = peak_bytes(&server);
    let left = leftovers(&server);
    let number = |name: &str| good[name].as_u64().unwrap();
    let answers: BTreeMap<String, u64> = serde_json::from_value(good["answers"].clone()).unwrap();
    let Tally {
        made,
        held_max,
        ended,
        ..
    } = tally;
    say(&format!(
        "hostile: {}, {driver}: {made} connections, {held_max} at once, {ended} ended by the server, told {:?}; good: {} sent, \
         {} answered {answers:?}, runs {tries}; memory: {} of {} MiB; left: {left:?}",
        attack.name,
        tally.statuses,
        number("requests"),
        number("answered"),
        peak >> 20,
        bound >> 20,
    ));
    assert!(
        good["void_because"].as_array().unwrap().is_empty(),
        "{good:#}"
    );
    assert_eq!(number("transport_errors"), 0, "{good:#}");
    assert_eq!(number("requests"), number("answered"), "{good:#}");
    // Whatever was not decided on its merits met a limit that has a name.
    let named = [
        "SECKILL_QUEUED",
        "SECKILL_SOLD_OUT",
        "RATE_LIMITED",
        "SYSTEM_OVERLOADED",
    ];
    assert!(
        answers
            .keys()
            .all(|answer| named.contains(&answer.as_str())),
        "{answers:?}"
    );
    assert!(answers["SECKILL_QUEUED"] > 0, "somebody buys: {answers:?}");
    assert!(peak < bound, "{peak} of {bound}");
    assert!(left.values().all(|&count| count == 0), "{left:?}");
    assert!(
        tally.made > 0 && (attack.from_one || tally.held_max * 2 >= attack.conns),
        "{tally:?}"
    );
    if let Way::NeverRead { .. } = attack.way {
        assert!(ended > 0, "who takes no answer is dropped: {tally:?}");
    }
    let told: Vec<&str> = tally.statuses.keys().map(String::as_str).collect();
    assert_eq!(told, Vec::from_iter(attack.told), "{tally:?}");
    let metrics = server.get_ops("/metrics").body;
    assert_eq!(sample(&metrics, "weir_driver_cq_overflow_total"), 0);
    server.stop();
}

/// The report of buyers who come at an even rate, whatever happens.
fn good_buyers(shop: &Shop, server: &Running) -> Value {
    let mix = shop.path("mix.toml");
    std::fs::write(&mix, "[weights]\nsubmit = 9\n").unwrap();
    let output = Command::new(world::weir())
        .args(["bench", "--json", "--duration", GOOD_FOR, "--sources", "64"])
        .args(["--connections", &GOOD_CONNS.to_string(), "--pipeline", "4"])
        .args(["--rate", &GOOD_PER_S.to_string()])
        .args(["--url", &format!("http://{}/", server.listen)])
        .arg("--mix")
        .arg(&mix)
        .arg("--config")
        .arg(shop.toml())
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Waits until nothing is left of the clients, and says what still is when patience ends.
fn leftovers(server: &Running) -> BTreeMap<&'static str, u64> {
    let until = Instant::now() + PATIENCE;
    loop {
        let metrics = server.get_ops("/metrics").body;
        let left = BTreeMap::from(
            [
                "weir_connections_open",
                "weir_connection_sources",
                "weir_connections_turned_away_open",
                "seckill_inflight_requests",
            ]
            .map(|name| (name, sample(&metrics, name))),
        );
        if left.values().all(|&count| count == 0) || Instant::now() > until {
            return left;
        }
    }
}
