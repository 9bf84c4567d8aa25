//! A refusal reaches the client that earned it, whatever is still under way to the server: no reset destroys an answer
//! (field bug R16, A1). A good request before a bad one gets its answer, and nothing behind a bad one is answered.
//!
//! The program is `weir serve` as it is built, on every driver that has sockets.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

#[path = "support/answers.rs"]
mod answers;
#[path = "bad_input_world/mod.rs"]
mod bad_input_world;
#[path = "support/line.rs"]
mod line;
#[path = "support/say.rs"]
mod say;
#[path = "support/served.rs"]
mod served;

use answers::{Answer, answers};
use bad_input_world::{Buyer, GOOD, Running, Shop, body};
use line::{End, Line};
use served::DRIVERS;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_core::rng::Rng;

/// Refusals per driver.
const REFUSALS: usize = 10_000;
/// Of these, heads that never end: their deadline refuses them.
const OVERDUE: usize = 400;
/// Connections at one time: two waves are fewer than a door tells why they must go (a sixteenth of `conns_max`).
const WAVE: usize = 100;
/// Of these, connections above their address's rate: they are refused at the door, before anything is read.
const AT_THE_DOOR: usize = 400;
/// What a client sends behind a refusal, at most: several times what a driver holds, below what a shard drains.
const FLOOD_BYTES_MAX: u64 = 320 * 1024;

/// A server of one shard; `lines`: for its section `limits`.
fn server(driver: &str, name: &str, lines: &str) -> (Shop, Running) {
    let timeouts = "head_timeout = \"1s\"\nlinger_timeout = \"20s\"";
    let shop = served::shop(&format!("refusals-{name}"), driver, timeouts);
    shop.set("limits", lines);
    let running = shop.start();
    (shop, running)
}

/// Bytes that must be refused with this status; whatever follows them must not be read as a request.
struct Bad {
    status: u16,
    bytes: Vec<u8>,
}

fn bad(status: u16, bytes: impl Into<Vec<u8>>) -> Bad {
    Bad {
        status,
        bytes: bytes.into(),
    }
}

/// One of each kind that the bytes alone decide.
fn kinds() -> Vec<Bad> {
    let long = |count: usize| "a".repeat(count);
    vec![
        bad(400, "GET / HTTP/1.1\r\nHost: shop\r\nBad Name: x\r\n\r\n"),
        bad(400, "\0\0\0\0\0\0\0\0\r\n\r\n"),
        bad(
            400,
            "POST / HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        ),
        bad(
            400,
            "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        bad(405, "TRACE / HTTP/1.1\r\nHost: shop\r\n\r\n"),
        bad(
            413,
            "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 1000000\r\n\r\n",
        ),
        bad(
            413,
            format!(
                "POST / HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n4000\r\n{}",
                long(9_000)
            ),
        ),
        bad(414, format!("GET /{}", long(8_000))),
        bad(
            417,
            "POST / HTTP/1.1\r\nHost: shop\r\nExpect: tea\r\nContent-Length: 4\r\n\r\n",
        ),
        bad(
            431,
            format!("GET / HTTP/1.1\r\nHost: shop\r\nCookie: {}", long(17_000)),
        ),
        bad(501, "BREW / HTTP/1.1\r\nHost: shop\r\n\r\n"),
        bad(505, "GET / HTTP/3.0\r\nHost: shop\r\n\r\n"),
    ]
}

/// A submit that a server without rate left refuses, on a connection that it was asked to close.
fn too_busy(shop: &Shop) -> Bad {
    let text = body(7, "\"request_id\":\"req-00000007\",");
    let path = Buyer::of(shop).path();
    bad(
        503,
        format!(
            "POST {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        ),
    )
}

/// The whole answers that came, or what is wrong with them.
fn read(line: &mut Line) -> Result<Vec<Answer>, String> {
    if line.was_reset() {
        return Err(format!("reset; {} bytes came", line.got.len()));
    }
    match (answers(&line.got, |_| false), line.end) {
        (Ok((found, 0)), Some(End::Fin)) => Ok(found),
        (Ok((found, rest)), end) => Err(format!(
            "{} answers, {rest} bytes of one more, then {end:?}",
            found.len()
        )),
        (Err(fault), _) => Err(fault),
    }
}

/// True when exactly this refusal came, whole, and closes.
fn is_refused(line: &mut Line, status: u16) -> Result<(), String> {
    let found = read(line)?;
    match found.as_slice() {
        [only] if only.status == status && only.closes() && !only.body.is_empty() => Ok(()),
        other => {
            let heads: Vec<&str> = other.iter().map(|answer| answer.head.as_str()).collect();
            Err(format!("{heads:?}"))
        }
    }
}

/// Refusals by status, and what went wrong.
#[derive(Default)]
struct Count {
    readable: BTreeMap<u16, usize>,
    lost: Vec<String>,
}

impl Count {
    fn take(&mut self, status: u16, verdict: Result<(), String>) {
        match verdict {
            Ok(()) => *self.readable.entry(status).or_default() += 1,
            Err(fault) => self.lost.push(format!("{status}: {fault}")),
        }
    }

    fn sum(&self) -> usize {
        self.readable.values().sum()
    }
}

/// `total` refusals of all `kinds` in turn. Each client goes on sending: bytes are under way before the server decides,
/// while it answers and after it has ended its side; only then does the client look.
fn flood(port: u16, kinds: &[Bad], total: usize, count: &mut Count) {
    let noise = vec![b'n'; FLOOD_BYTES_MAX as usize];
    let mut rng = Rng::new(16);
    let mut numbers = 0..total;
    loop {
        let wave: Vec<usize> = numbers.by_ref().take(WAVE).collect();
        if wave.is_empty() {
            return;
        }
        let mut lines: Vec<(Line, u16)> = Vec::new();
        for number in wave {
            let bad = &kinds[number % kinds.len()];
            let mut line = Line::to(port, number);
            let mut bytes = bad.bytes.clone();
            let first = rng.below(64 * 1024) as usize;
            bytes.extend_from_slice(&noise[..first]);
            line.send_some(&bytes);
            lines.push((line, bad.status));
        }
        for (line, _) in &mut lines {
            let more = rng.below(FLOOD_BYTES_MAX - 64 * 1024) as usize;
            line.send_some(&noise[..more]);
        }
        for (line, status) in &mut lines {
            line.send_some(b"and more"); // behind the server's end, as a rule
            line.read_to_end();
            count.take(*status, is_refused(line, *status));
        }
    }
}

/// Heads that trickle on while their deadline passes.
fn trickle(port: u16, count: &mut Count) {
    let mut lines: Vec<Line> = (0..OVERDUE).map(|number| Line::to(port, number)).collect();
    for line in &mut lines {
        assert!(line.send(b"GET / HTTP/1.1\r\nHost: shop\r\nX: "));
    }
    let until = Instant::now() + line::PATIENCE;
    while lines.iter().any(|line| line.end.is_none()) && Instant::now() < until {
        for line in lines.iter_mut().filter(|line| line.end.is_none()) {
            line.send_some(b"x");
            line.read_now();
        }
        lines[0].read_for(Duration::from_millis(1));
    }
    for line in &mut lines {
        count.take(408, is_refused(line, 408));
    }
}

/// Connections that come too fast: what they send is good, and nobody reads it.
fn at_the_door(driver: &str, count: &mut Count) {
    let (shop, running) = server(driver, "door", "");
    running.stop();
    shop.edit("connect_rate = \"1000000/s\"", "connect_rate = \"1/h\"");
    shop.edit("connect_burst = 1000000", "connect_burst = 1");
    // One in sixteen may be told why at the same time: all of these.
    shop.set("server", &format!("conns_max = {}", 16 * AT_THE_DOOR));
    let running = shop.start();
    let port = running.listen.port();
    let mut first = Line::to(port, 0);
    first.send(GOOD);
    assert!(first.read_until(|bytes| bytes.starts_with(b"HTTP/1.1 404 ")));
    flood(port, &[bad(429, GOOD)], AT_THE_DOOR, count);
    running.stop();
}

#[test]
fn ten_thousand_refusals_are_read_by_clients_that_go_on_sending() {
    for driver in DRIVERS {
        let (shop, running) = server(
            driver,
            "busy",
            "instance_rate = \"1/h\"\ninstance_burst = 1",
        );
        let port = running.listen.port();
        let busy = too_busy(&shop);
        // The one submit that the rate allows: this ticket is none.
        let mut first = Line::to(port, 0);
        first.send(&busy.bytes);
        first.read_to_end();
        assert_eq!(read(&mut first).unwrap()[0].status, 401);
        let mut kinds = kinds();
        kinds.push(busy);
        let mut count = Count::default();
        flood(port, &kinds, REFUSALS - OVERDUE - AT_THE_DOOR, &mut count);
        trickle(port, &mut count);
        running.stop();
        at_the_door(driver, &mut count);
        let text = format!(
            "{driver}: {}/{REFUSALS} refusals readable {:?}",
            count.sum(),
            count.readable
        );
        say::say(&text);
        let lost: Vec<&String> = count.lost.iter().take(10).collect();
        assert!(count.lost.is_empty(), "{driver}: {lost:#?}");
        assert_eq!(count.sum(), REFUSALS);
    }
}

#[test]
fn what_is_good_is_answered_up_to_the_first_bad_one_and_nothing_behind_it() {
    for driver in DRIVERS {
        let (shop, running) = server(driver, "pipes", "");
        let port = running.listen.port();
        for (number, bad) in kinds().iter().enumerate() {
            for goods in 1..=8 {
                let mut bytes = GOOD.repeat(goods);
                bytes.extend_from_slice(&bad.bytes);
                bytes.extend_from_slice(&GOOD.repeat(3));
                let mut wanted = vec![404; goods];
                wanted.push(bad.status);
                // In one piece; and cut, so that the bad one comes alone and what is behind it comes late.
                let behind = bytes.len() - GOOD.len() * 3;
                for cuts in [
                    vec![],
                    vec![GOOD.len() * goods],
                    vec![GOOD.len() * goods, behind],
                ] {
                    let mut line = Line::to(port, number);
                    let mut start = 0;
                    for cut in cuts.into_iter().chain([bytes.len()]) {
                        line.send(&bytes[start..cut]);
                        start = cut;
                    }
                    line.read_to_end();
                    let found: Vec<u16> =
                        read(&mut line).unwrap().iter().map(|a| a.status).collect();
                    assert_eq!(found, wanted, "{driver}, kind {number}");
                }
            }
        }
        a_submit_that_waits_for_its_commit_is_answered_first(&shop, port);
        running.stop();
    }
}

/// The answer of a submit comes from the ledger, turns later; the refusal behind it waits.
fn a_submit_that_waits_for_its_commit_is_answered_first(shop: &Shop, port: u16) {
    let buyer = Buyer::of(shop);
    for user in 1..=20 {
        let mut bytes = buyer.bytes(&buyer.submit(user));
        bytes.extend_from_slice(&kinds()[user as usize % kinds().len()].bytes);
        bytes.extend_from_slice(GOOD);
        let mut line = Line::to(port, user as usize);
        line.send(&bytes);
        line.read_to_end();
        let found: Vec<u16> = read(&mut line).unwrap().iter().map(|a| a.status).collect();
        assert_eq!(found[0], 202, "{found:?}");
        assert_eq!(found[1..], [kinds()[user as usize % kinds().len()].status]);
    }
}
