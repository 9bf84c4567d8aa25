//! `weir_bench::run` over real sockets and the uring driver, and what it refuses before it sends anything.

#![allow(clippy::unwrap_used)] // a test that meets one has failed

use std::sync::Arc;
use weir_bench::mix::{Mix, Weights};
use weir_bench::{BenchConfig, BenchError, Rate, run};
use weir_core::mail::Addr;
use weir_core::port::{Effects, Event, Handler};
use weir_core::time::{Mono, Now};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_io::uring;

/// Answers each blank line; closes with every hundredth answer.
#[derive(Default)]
struct Null {
    answers: u32,
}

impl Handler for Null {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}
    fn on_event(&mut self, _: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Received { conn, mut input } => {
                let blank = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n");
                while let Some(end) = blank(input.bytes()) {
                    input.consume(end + 4);
                    self.answers += 1;
                    let close = self.answers.is_multiple_of(100);
                    let line = if close { "Connection: close\r\n" } else { "" };
                    let answer = format!("HTTP/1.1 200 OK\r\n{line}Content-Length: 2\r\n\r\nok");
                    fx.outbox(conn).extend_from_slice(answer.as_bytes());
                    if close {
                        fx.finish(conn);
                    }
                }
                if input.ended() {
                    fx.close(conn);
                }
            }
            Event::Drain => fx.stop(),
            _ => {}
        }
    }
    fn on_flush(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

#[test]
fn every_request_of_a_schedule_is_answered_over_real_sockets() {
    let listen = ListenSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let target = listen.local_addr();
    let post = Arc::new(PostOffice::new([Addr::Log]).unwrap());
    let drain = Arc::new(DrainSwitch::new(post.clone()));
    let mut ring = DriverConfig::new(Addr::Log);
    ring.listen = Some(listen);
    let switch = drain.clone();
    let server = std::thread::spawn(move || {
        let stats = Arc::new(DriverStats::default());
        uring::run(ring, Box::<Null>::default(), post, switch, stats).map(|_| ())
    });
    let mut config = BenchConfig::new(target);
    config.rate = Rate::Poisson(2_000);
    config.duration_ms = 500;
    config.connections = 8;
    config.sources = 3;
    let report = run(&config, |_| true).unwrap();
    assert_eq!((report.requests, report.answered), (1_000, 1_000));
    assert_eq!((report.transport_errors, report.not_sent), (0, 0));
    assert_eq!(report.statuses, [("200".to_owned(), 1_000)].into());
    assert_eq!(report.connections_seen.closed_with_answer, 10);
    assert_eq!(report.latency_us.count, 1_000);
    assert!(report.generator.cpu_us > 0);

    // Told to stop, it reports what was sent until then.
    config.rate = Rate::Max;
    config.duration_ms = 60_000;
    let report = run(&config, |look| look.answered < 1_000).unwrap();
    assert!(report.answered >= 1_000 && report.elapsed_ms < 60_000);
    assert_eq!(report.requests, report.answered);
    drain.throw();
    server.join().unwrap().unwrap();
}

#[test]
fn other_machines_and_values_out_of_range_are_refused_with_a_remedy() {
    let loopback = BenchConfig::new("127.0.0.1:9".parse().unwrap());
    let with = |change: &dyn Fn(&mut BenchConfig)| {
        let mut config = loopback.clone();
        change(&mut config);
        match run(&config, |_| true) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{config:?} was accepted"),
        }
    };
    let far = run(&BenchConfig::new("192.0.2.1:80".parse().unwrap()), |_| true);
    assert!(matches!(far, Err(BenchError::NotLoopback(_))));
    let mapped = BenchConfig::new("[::ffff:192.0.2.1]:80".parse().unwrap());
    assert!(matches!(
        run(&mapped, |_| true),
        Err(BenchError::NotLoopback(_))
    ));
    let tickets = Mix {
        weights: Weights {
            submit: 1,
            ..Weights::default()
        },
        ..Mix::get_only()
    };
    for (message, part) in [
        (with(&|c| c.rate = Rate::Constant(0)), "rate = 0"),
        (with(&|c| c.duration_ms = 3_600_001), "one hour"),
        (with(&|c| c.requests_max = 100_000_001), "100000000"),
        (
            with(&|c| c.warm_up_ms = c.duration_ms),
            "less than the duration",
        ),
        (with(&|c| c.connections = 0), "1..=16384"),
        (with(&|c| c.pipeline = 65), "1..=64"),
        (with(&|c| c.sources = 5_000), "4096"),
        (with(&|c| c.path = "x".into()), "must start with `/`"),
        (with(&|c| c.mix = tickets.clone()), "--config FILE"),
    ] {
        assert!(message.contains(part), "{message}");
    }
}
