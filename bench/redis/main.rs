//! Reserves of many users on a real Redis through weir's desk, without HTTP; what a peer needs to ask the same; a delay.
//!
//! `bench/redis.sh` starts it: `open`, `reserve` and `delay` each print one JSON object. `bench/README.md` says what is
//! counted. Invariants: a reserve is one of a new user with a new request id and nonce; a run is bounded in count and
//! time; only addresses of this machine are asked.

mod asker;
mod delay;
mod words;

use asker::{Asker, Course, Spent};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use weir_core::limits::LINK_SENT_MAX;
use weir_core::mail::Addr;
use weir_core::port::Handler;
use weir_io::choice::{self, Wanted};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;

const USAGE: &str = "usage: weir-redis open --server ADDRESS --stock UNITS
       weir-redis reserve --server ADDRESS --count N [--under-way N]
       weir-redis delay --server ADDRESS --delay-us N";
/// Most reserves of one run: what one SKU of Redis has room for.
const COUNT_MAX: u64 = weir_core::limits::RESERVATIONS_MAX;
/// Asks under way unless told otherwise: with replies after 10 ms, 100,000 a second.
const UNDER_WAY: u64 = 1_024;
/// A run takes no longer; a delay ends with its standard input or after this.
const RUN: Duration = Duration::from_secs(300);
/// Largest delay, microseconds.
const DELAY_US_MAX: u64 = 1_000_000;

/// What is asked for on the command line.
struct Order {
    server: SocketAddr,
    count: u64,
    under_way: u64,
    stock: u64,
    delay_us: u64,
}

impl Order {
    fn read(words: &[String]) -> Result<Self, String> {
        let mut server = None;
        let mut order = Self {
            server: SocketAddr::from(([127, 0, 0, 1], 0)),
            count: 0,
            under_way: UNDER_WAY,
            stock: 0,
            delay_us: 0,
        };
        for pair in words.chunks(2) {
            let wrong = || format!("{}: not understood\n{USAGE}", pair.join(" "));
            let [name, value] = pair else {
                return Err(wrong());
            };
            let within = |most: u64| {
                let number = value.parse().ok().filter(|n| (1..=most).contains(n));
                number.ok_or_else(|| format!("{name} {value}: must be 1..={most}"))
            };
            match name.as_str() {
                "--server" => server = Some(value.parse::<SocketAddr>().map_err(|_| wrong())?),
                "--count" => order.count = within(COUNT_MAX)?,
                "--under-way" => order.under_way = within(LINK_SENT_MAX as u64)?,
                "--stock" => order.stock = within(COUNT_MAX)?,
                "--delay-us" => order.delay_us = within(DELAY_US_MAX)?,
                _ => return Err(wrong()),
            }
        }
        order.server = server.ok_or_else(|| format!("--server is missing\n{USAGE}"))?;
        if !order.server.ip().is_loopback() {
            return Err(format!(
                "--server {}: only this machine is measured",
                order.server
            ));
        }
        Ok(order)
    }

    fn need(&self, name: &str, value: u64) -> Result<u64, String> {
        (value > 0)
            .then_some(value)
            .ok_or_else(|| format!("{name} is missing\n{USAGE}"))
    }
}

/// Runs a handler on the best driver until it stops; `listen`: clients come in there.
fn carry(
    handler: Box<dyn Handler>,
    listen: Option<ListenSocket>,
) -> Result<(Arc<DrainSwitch>, std::thread::JoinHandle<()>), String> {
    let post = Arc::new(PostOffice::new([Addr::Ops]).map_err(|error| error.to_string())?);
    let drain = Arc::new(DrainSwitch::new(post.clone()));
    let chosen = Wanted::Auto.choose(false);
    let kind = chosen.map_err(|(_, error)| error.to_string())?.kind;
    let mut config = DriverConfig::new(Addr::Ops);
    config.listen = listen;
    config.recv_buffer_bytes = 16 * 1024; // many replies at a time
    let switch = drain.clone();
    let thread = std::thread::Builder::new()
        .name("weir-redis".into())
        .spawn(move || {
            let stats = Arc::new(DriverStats::default());
            if let Err(error) = choice::run(kind, config, handler, post, switch, stats) {
                eprintln!("weir-redis: {error}");
            }
        })
        .map_err(|error| error.to_string())?;
    Ok((drain, thread))
}

/// Runs an asker to its end.
fn ask(server: SocketAddr, course: Course) -> Result<Spent, String> {
    let (done, told) = channel();
    let (drain, thread) = carry(Box::new(Asker::new(server, course, done)), None)?;
    let spent = told
        .recv_timeout(RUN)
        .map_err(|_| format!("no end within {} s: does Redis answer?", RUN.as_secs()));
    drain.throw();
    let ended = thread.join();
    ended.map_err(|_| "the thread has panicked: see above".to_owned())?;
    spent?
}

fn run(words: &[String]) -> Result<(), String> {
    let (verb, rest) = words.split_first().ok_or(USAGE)?;
    match verb.as_str() {
        "open" => {
            let order = Order::read(rest)?;
            let stock = order.need("--stock", order.stock)?;
            let opened = ask(order.server, Course::Open { stock })?;
            let reserve = words::of_a_reserve(&opened.home);
            println!("{{\"words\":{}}}", words::json(&reserve));
        }
        "reserve" => {
            let order = Order::read(rest)?;
            let course = Course::Reserve {
                count: order.need("--count", order.count)?,
                under_way: order.under_way,
            };
            let spent = ask(order.server, course)?;
            println!(
                "{{\"granted\":{},\"took_ns\":{},\"cpu_ns\":{},\"under_way\":{}}}",
                spent.granted, spent.took_ns, spent.cpu_ns, order.under_way
            );
        }
        "delay" => {
            let order = Order::read(rest)?;
            let delay_us = order.need("--delay-us", order.delay_us)?;
            delay::run(order.server, delay_us, RUN)?;
        }
        _ => return Err(USAGE.to_owned()),
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("weir-redis: {message}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Order, String> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        Order::read(&words)
    }

    #[test]
    fn only_this_machine_and_bounded_counts_are_taken() {
        let order = read("--server 127.0.0.1:6379 --count 5 --under-way 4096").unwrap();
        assert_eq!((order.server.port(), order.count), (6379, 5));
        for wrong in [
            "--server 192.0.2.1:6379",
            "--count 5",
            "--server 127.0.0.1:1 --count 0",
            "--server 127.0.0.1:1 --under-way 4097",
            "--server 127.0.0.1:1 --count",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
