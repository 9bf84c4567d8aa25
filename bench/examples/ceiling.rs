//! How fast the generator is: a server that answers everything with the same bytes on core 0, the generator on core 1.
//!
//! `cargo run --release -p weir-bench --example ceiling -- [connections] [pipeline] [rate|max] [seconds]`

use std::sync::Arc;
use weir_bench::{BenchConfig, Rate};
use weir_core::mail::Addr;
use weir_core::port::{Effects, Event, Handler};
use weir_core::time::{Mono, Now};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_io::uring;

/// Answers each blank line.
struct Null;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: null\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";

impl Handler for Null {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}
    fn on_event(&mut self, _now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Received { conn, mut input } => {
                while let Some(end) = input
                    .bytes()
                    .windows(4)
                    .position(|four| four == b"\r\n\r\n")
                {
                    fx.outbox(conn).extend_from_slice(ANSWER);
                    input.consume(end + 4);
                }
                if input.ended() {
                    fx.close(conn);
                }
            }
            Event::Drain => fx.stop(),
            _ => {}
        }
    }
    fn on_flush(&mut self, _now: Now, _fx: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        words
            .get(index)
            .and_then(|word| word.parse().ok())
            .unwrap_or(default)
    };
    let listen = ListenSocket::bind("127.0.0.1:0".parse()?)?;
    let target = listen.local_addr();
    let post = Arc::new(PostOffice::new([Addr::Log])?);
    let drain = Arc::new(DrainSwitch::new(post.clone()));
    let mut ring = DriverConfig::new(Addr::Log);
    ring.listen = Some(listen);
    ring.cpu = Some(0);
    let switch = drain.clone();
    let server = std::thread::spawn(move || {
        uring::run(
            ring,
            Box::new(Null),
            post,
            switch,
            Arc::new(DriverStats::default()),
        )
        .map(|_| ())
    });
    let mut config = BenchConfig::new(target);
    config.connections = number(0, 64) as u32;
    config.pipeline = number(1, 1) as u32;
    config.rate = match number(2, 0) {
        0 => Rate::Max,
        rate => Rate::Constant(rate),
    };
    config.duration_ms = 1_000 * number(3, 5);
    config.cpu = Some(1);
    let report = weir_bench::run(&config, |_| true)?;
    print!("{}", report.text());
    drain.throw();
    server.join().map_err(|_| "the server panicked")??;
    Ok(())
}
