//! The limit: weir's own drivers with a handler that parses nothing and answers every request with the same bytes.
//!
//! `weir-null serve` learns the length of a request from the first one that it sees, with proto's parser; every later
//! request of the run must have that length, and is only counted. Answers leave as weir's do: one write per connection
//! and turn. A request that asks for `Connection: close` makes it end every connection after its answer, as weir does.
//! `weir-null mac` measures the bare MAC of the JWS ticket on fresh tickets. `bench/compare.sh` runs both.

mod mac;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use weir_core::mail::Addr;
use weir_core::port::{ConnId, Effects, Event, Handler, Input};
use weir_core::time::{Mono, Now};
use weir_io::choice::{self, Wanted};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_proto::http::{Parsed, RequestParser};

const USAGE: &str = "usage:
  weir-null serve [--listen 127.0.0.1:0] [--driver auto|uring|epoll|monoio] [--answer-bytes 480] [--connections 4096]
  weir-null mac [--count 200000] [--rounds 5]
serve prints `serving http://ADDRESS` and runs until a signal ends it; mac prints one JSON object";

/// What an answer says besides when its connection ends.
const CLOSE: &str = "Connection: close\r\n";
/// A sold-out answer of weir with its headers, when nobody says how long it is.
const ANSWER_BYTES: usize = 480;
/// Shortest answer that is still a head and a JSON body with a code.
const ANSWER_BYTES_MIN: usize = 160;
/// Longest answer: what the load generator reads as one.
const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// What the first request taught.
#[derive(Clone, Copy)]
struct Shape {
    request_bytes: usize,
    closes: bool,
}

/// The handler: counts requests by their length.
struct Null {
    keep: Vec<u8>,
    close: Vec<u8>,
    shape: Option<Shape>,
}

impl Null {
    fn new(answer_bytes: usize) -> Self {
        Self {
            keep: answer(answer_bytes, ""),
            close: answer(answer_bytes + CLOSE.len(), CLOSE),
            shape: None,
        }
    }

    /// The length of the first request, once it is whole.
    fn learn(&mut self, bytes: &[u8]) -> Option<Shape> {
        if let Parsed::Done { request, consumed } = RequestParser::default().parse(bytes) {
            self.shape = Some(Shape {
                request_bytes: consumed,
                closes: !request.keep_alive,
            });
        }
        self.shape
    }

    fn received(&mut self, conn: ConnId, mut input: Input<'_>, fx: &mut Effects) {
        if let Some(shape) = self.shape.or_else(|| self.learn(input.bytes())) {
            self.count(shape, conn, &mut input, fx);
        }
        if input.ended() {
            input.consume(input.bytes().len());
            fx.close(conn);
        }
    }

    fn count(&self, shape: Shape, conn: ConnId, input: &mut Input<'_>, fx: &mut Effects) {
        let bytes = input.bytes().len();
        let requests = bytes / shape.request_bytes;
        if requests == 0 {
            return;
        }
        if shape.closes {
            fx.outbox(conn).extend_from_slice(&self.close);
            input.consume(bytes);
            fx.finish(conn);
            return;
        }
        let outbox = fx.outbox(conn);
        for _ in 0..requests {
            outbox.extend_from_slice(&self.keep);
        }
        input.consume(requests * shape.request_bytes);
    }
}

impl Handler for Null {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}
    fn on_event(&mut self, _now: Now, event: Event<'_>, fx: &mut Effects) {
        if let Event::Received { conn, input } = event {
            self.received(conn, input, fx);
        }
    }
    fn on_flush(&mut self, _now: Now, _fx: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// An answer of exactly `bytes` bytes that reads like weir's "sold out".
fn answer(bytes: usize, line: &str) -> Vec<u8> {
    let open = "{\"code\":\"SECKILL_SOLD_OUT\",\"pad\":\"";
    let head = |body: usize| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{line}Content-Length: {body:03}\r\n\r\n"
        )
    };
    let body_bytes = bytes.saturating_sub(head(0).len());
    let pad = body_bytes.saturating_sub(open.len() + "\"}".len());
    let body = format!("{open}{}\"}}", ".".repeat(pad));
    let mut whole = head(body.len()).into_bytes();
    whole.extend_from_slice(body.as_bytes());
    whole
}

/// `--name value` pairs; unknown names are refused.
struct Args(Vec<(String, String)>);

impl Args {
    fn read(words: &[String], known: &[&str]) -> Result<Self, String> {
        let mut pairs = Vec::new();
        for pair in words.chunks(2) {
            let (name, value) = match pair {
                [name, value] if known.contains(&name.as_str()) => (name, value),
                _ => return Err(format!("{}: not understood\n{USAGE}", pair.join(" "))),
            };
            pairs.push((name.clone(), value.clone()));
        }
        Ok(Self(pairs))
    }

    fn get<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        let given = self.0.iter().rev().find(|(known, _)| known == name);
        match given {
            None => Ok(default),
            Some((_, value)) => value
                .parse()
                .map_err(|_| format!("{name} {value}: not understood\n{USAGE}")),
        }
    }
}

fn serve(words: &[String]) -> Result<(), String> {
    let known = ["--listen", "--driver", "--answer-bytes", "--connections"];
    let args = Args::read(words, &known)?;
    let listen: SocketAddr = args.get("--listen", SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let answer_bytes = args.get("--answer-bytes", ANSWER_BYTES)?;
    if !(ANSWER_BYTES_MIN..=ANSWER_BYTES_MAX).contains(&answer_bytes) {
        return Err(format!(
            "--answer-bytes {answer_bytes}: must be {ANSWER_BYTES_MIN}..={ANSWER_BYTES_MAX}"
        ));
    }
    let name = args.get("--driver", "auto".to_owned())?;
    let wanted = Wanted::named(&name).ok_or_else(|| {
        format!(
            "--driver {name}: must be one of {}",
            Wanted::NAMES.join(", ")
        )
    })?;
    let kind = wanted
        .choose(false)
        .map_err(|(_, error)| error.to_string())?
        .kind;
    let socket = ListenSocket::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    let address = socket.local_addr();
    let post = Arc::new(PostOffice::new([Addr::Ops]).map_err(|error| error.to_string())?);
    let drain = Arc::new(DrainSwitch::new(post.clone()));
    let mut driver = DriverConfig::new(Addr::Ops);
    driver.listen = Some(socket);
    driver.conns_max = args.get("--connections", driver.conns_max)?;
    println!("serving http://{address} by {}", kind.name());
    let null = Box::new(Null::new(answer_bytes));
    choice::run(
        kind,
        driver,
        null,
        post,
        drain,
        Arc::new(DriverStats::default()),
    )
    .map(drop)
    .map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.split_first() {
        Some((command, rest)) if command == "serve" => serve(rest),
        Some((command, rest)) if command == "mac" => Args::read(rest, &["--count", "--rounds"])
            .and_then(|args| mac::run(args.get("--count", 200_000)?, args.get("--rounds", 5)?)),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("weir-null: {message}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const REQUEST: &[u8] = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok";

    /// Shows `bytes` to a null that may have learned; returns what it consumed and the bytes that it answered.
    fn show(null: &mut Null, bytes: &[u8]) -> (usize, usize) {
        let mut fx = Effects::new(1);
        let conn = ConnId {
            slot: 0,
            generation: 1,
        };
        fx.open_conn(conn);
        let consumed = Cell::new(0);
        null.received(conn, Input::new(bytes, false, &consumed), &mut fx);
        (consumed.get(), fx.outbox(conn).len())
    }

    #[test]
    fn requests_are_counted_by_the_length_of_the_first_and_parts_wait() {
        let mut null = Null::new(300);
        assert_eq!(show(&mut null, &REQUEST[..20]), (0, 0), "not whole yet");
        assert_eq!(show(&mut null, REQUEST), (REQUEST.len(), 300));
        let three_and_a_part = [REQUEST, REQUEST, REQUEST, &REQUEST[..7]].concat();
        assert_eq!(show(&mut null, &three_and_a_part), (3 * REQUEST.len(), 900));
    }

    #[test]
    fn a_request_that_asks_for_the_end_gets_one_answer_that_says_so() {
        let request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let mut null = Null::new(300);
        assert_eq!(show(&mut null, request), (request.len(), 300 + CLOSE.len()));
        assert!(String::from_utf8_lossy(&null.close).contains("Connection: close"));
    }

    #[test]
    fn who_goes_without_a_request_is_let_go() {
        let (mut null, mut fx, consumed) = (Null::new(300), Effects::new(1), Cell::new(0));
        let conn = ConnId {
            slot: 0,
            generation: 1,
        };
        fx.open_conn(conn);
        null.received(conn, Input::new(b"", true, &consumed), &mut fx);
        let mut ops = Vec::new();
        fx.take_ops(&mut ops);
        assert!(matches!(ops[..], [weir_core::port::Op::Close(closed)] if closed == conn));
    }

    #[test]
    fn answers_have_exactly_the_bytes_asked_for() {
        for bytes in [ANSWER_BYTES_MIN, 300, 480, 900] {
            for line in ["", CLOSE] {
                assert_eq!(answer(bytes, line).len(), bytes);
            }
        }
    }
}
