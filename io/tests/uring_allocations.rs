//! The uring driver allocates nothing per request once its slots are warm, also for requests that come in pieces.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use weir_core::limit::lease::ShardId;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{Effects, Event, Handler};
use weir_core::time::{Mono, Now};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_io::uring;

#[path = "../../tests/support/counting.rs"]
mod counting;

/// Requests of this many bytes; answers are as long.
const REQUEST_BYTES: usize = 300;

/// Answers each whole request; tells its thread's count of allocations at each mail.
struct Whole(SyncSender<u64>);

impl Handler for Whole {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}

    fn on_event(&mut self, _: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Received { conn, mut input } => {
                while input.bytes().len() >= REQUEST_BYTES {
                    fx.outbox(conn)
                        .extend_from_slice(&input.bytes()[..REQUEST_BYTES]);
                    input.consume(REQUEST_BYTES);
                }
                if input.ended() {
                    fx.close(conn);
                }
            }
            Event::Mail(_) => self.0.send(counting::allocations()).unwrap(),
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
fn a_warm_ring_allocates_nothing_per_request_and_nothing_per_connection() {
    let addr = Addr::Shard(ShardId(0));
    let post = Arc::new(PostOffice::new([addr]).unwrap());
    let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
    let stats = Arc::new(DriverStats::default());
    let listen = ListenSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = listen.local_addr();
    let mut config = DriverConfig::new(addr);
    config.listen = Some(listen);
    config.conns_max = 8; // so that every slot is warm
    let (sender, counts) = sync_channel(2);
    let thread = {
        let (post, drain, stats) = (Arc::clone(&post), Arc::clone(&drain), Arc::clone(&stats));
        std::thread::spawn(move || uring::run(config, Box::new(Whole(sender)), post, drain, stats))
    };
    let count = || {
        post.deliver(addr, Mail::StatsAsk).unwrap();
        counts.recv_timeout(Duration::from_secs(20)).unwrap()
    };
    // While it warms up every request arrives in two parts: between them the ring turns twice.
    let round = |is_warming: bool| {
        let mut clients: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(to).unwrap()).collect();
        for client in &mut clients {
            client.set_nodelay(true).unwrap();
            client
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            let request: [u8; REQUEST_BYTES] = std::array::from_fn(|at| at as u8);
            let mut answer = [0; REQUEST_BYTES];
            for cut in (0..REQUEST_BYTES).step_by(29) {
                client.write_all(&request[..cut]).unwrap();
                if is_warming {
                    count();
                    count();
                }
                client.write_all(&request[cut..]).unwrap();
                client.read_exact(&mut answer).unwrap();
                assert_eq!(answer, request);
            }
        }
    };
    for _ in 0..20 {
        round(true);
    }
    let before = count();
    assert!(before > 0, "the counter counts");
    for _ in 0..20 {
        round(false);
    }
    let requests = 20 * 8 * REQUEST_BYTES.div_ceil(29);
    assert_eq!(count() - before, 0, "allocations in {requests} requests");
    drain.throw();
    thread.join().unwrap().unwrap();
}
