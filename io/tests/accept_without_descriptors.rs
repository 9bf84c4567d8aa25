//! Accepting when the process has no descriptor left. A test program of its own: it takes all of them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use weir_core::limit::lease::ShardId;
use weir_core::mail::Addr;
use weir_core::port::{Effects, Event, Handler};
use weir_core::time::{Mono, Now};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_io::uring;

struct Echo;

impl Handler for Echo {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}

    fn on_event(&mut self, _: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Received { conn, mut input } => {
                fx.outbox(conn).extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
                if input.ended() {
                    fx.finish(conn);
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
fn clients_wait_while_descriptors_are_short_and_are_served_when_some_come_free() {
    let addr = Addr::Shard(ShardId(0));
    let post = Arc::new(PostOffice::new([addr]).unwrap());
    let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
    let stats = Arc::new(DriverStats::default());
    let listen = ListenSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = listen.local_addr();
    let mut config = DriverConfig::new(addr);
    config.listen = Some(listen);
    let thread = {
        let (post, drain, stats) = (Arc::clone(&post), Arc::clone(&drain), Arc::clone(&stats));
        std::thread::spawn(move || uring::run(config, Box::new(Echo), post, drain, stats))
    };
    let echo = |client: &mut TcpStream| {
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        client.write_all(b"here").unwrap();
        let mut got = [0; 4];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"here");
    };
    echo(&mut TcpStream::connect(to).unwrap()); // it runs
    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    hoard.pop();
    let mut client = TcpStream::connect(to).unwrap(); // takes the last one
    while stats.accept_errors.get() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(stats.accepts.get(), 1);
    hoard.truncate(hoard.len() - 8);
    echo(&mut client);
    assert_eq!(stats.accepts.get(), 2);
    drop((client, hoard));
    drain.throw();
    thread.join().unwrap().unwrap();
}
