//! What the driver alone costs: answers every receive with the same 100 bytes.
//!
//! `cargo run --release -p weir-io --example null -- [port [core [direct]]]`, then `taskset -c 1 wrk -t1 -c64 -d5 http://127.0.0.1:PORT/`,
//! then SIGTERM: prints answers and CPU per answer of the ring's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::limit::lease::ShardId;
use weir_core::mail::Addr;
use weir_core::port::{ConnId, Effects, Event, Handler};
use weir_core::time::{Mono, Now};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_io::uring;
use weir_io::{rlimit, signals};

const ANSWER: &[u8; 100] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: null\r\nContent-Length: 21\r\n\r\none hundred bytes all";

struct Null {
    open: Vec<ConnId>,
    answers: Arc<AtomicU64>,
    count: u64,
}

impl Handler for Null {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}

    fn on_event(&mut self, _: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Accepted { conn, .. } => self.open.push(conn),
            Event::Received { conn, mut input } => {
                input.consume(input.bytes().len());
                if input.ended() {
                    fx.close(conn);
                } else {
                    fx.outbox(conn).extend_from_slice(ANSWER);
                    self.count += 1;
                }
            }
            Event::Closed { conn, .. } => self.open.retain(|open| *open != conn),
            Event::Drain => {
                self.answers.store(self.count, Ordering::Relaxed);
                for conn in &self.open {
                    fx.close(*conn);
                }
                fx.stop();
            }
            _ => {}
        }
    }

    fn on_flush(&mut self, _: Now, _: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// CPU nanoseconds of the calling thread, as the scheduler counts them.
fn cpu_ns() -> u64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let port: u16 = args.next().map_or(Ok(0), |text| text.parse())?;
    let cpu = args.next().map(|text| text.parse()).transpose()?;
    let direct = args.next().is_some_and(|word| word == "direct");
    signals::block()?;
    rlimit::raise_open_files()?;
    let addr = Addr::Shard(ShardId(0));
    let post = Arc::new(PostOffice::new([addr])?);
    let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
    let stats = Arc::new(DriverStats::default());
    let answers = Arc::new(AtomicU64::new(0));
    let listen = ListenSocket::bind(([127, 0, 0, 1], port).into())?;
    println!("http://{}/", listen.local_addr());
    let mut config = DriverConfig::new(addr);
    config.listen = Some(listen);
    config.cpu = cpu;
    config.direct = direct;
    println!("{} KiB planned", uring::memory_needed(&config) / 1024);
    {
        let drain = Arc::clone(&drain);
        std::thread::spawn(move || {
            signals::wait();
            drain.throw();
        });
    }
    let null = Box::new(Null {
        open: Vec::new(),
        answers: Arc::clone(&answers),
        count: 0,
    });
    let before = cpu_ns();
    uring::run(config, null, post, drain, Arc::clone(&stats))?;
    let spent = cpu_ns() - before;
    let answers = answers.load(Ordering::Relaxed);
    println!(
        "{answers} answers, {} ns of CPU each",
        spent / answers.max(1)
    );
    println!("{stats:?}");
    Ok(())
}
