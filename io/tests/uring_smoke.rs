//! The uring driver against plain std clients, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_core::limit::lease::ShardId;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{
    CloseCause, ConnId, Connect, ConnectError, ConnectToken, Effects, Event, Handler,
};
use weir_core::time::{Mono, Now};
use weir_io::choice::DriverKind;
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::error::DriverError;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_io::uring;

const SHARD: Addr = Addr::Shard(ShardId(0));
const PATIENCE: Duration = Duration::from_secs(20);

/// What a handler saw, without the bytes.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Accepted(ConnId),
    Connected(u64),
    ConnectFailed(u64, ConnectError),
    Ended(ConnId, usize),
    Sent,
    Closed(ConnId, CloseCause),
    Mail,
    Tick,
}

/// How the handler under test behaves.
#[derive(Clone, Default)]
struct Ways {
    /// Leave bytes while more than this is unsent, and ask again at `Sent`.
    unsent_max: Option<usize>,
    /// Consume nothing before the peer has ended.
    only_at_end: bool,
    /// Consume nothing until the first mail comes.
    until_mail: bool,
    /// Connect here at the first turn: to, from, milliseconds.
    connect: Vec<(SocketAddr, Option<SocketAddr>, u64)>,
    /// A tick so many ms after the start.
    tick_ms: Option<u64>,
}

/// Sends back what it gets; finishes when the peer has; on drain closes everything and stops.
struct Echo {
    ways: Ways,
    conns: BTreeSet<ConnId>,
    mail_came: bool,
    tick_at: Option<Mono>,
    seen: Sender<Seen>,
}

impl Echo {
    fn tell(&self, seen: Seen) {
        let _ = self.seen.send(seen);
    }
}

impl Handler for Echo {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        self.tick_at = self.ways.tick_ms.map(|ms| now.mono.plus_ms(ms));
        for (at, (to, from, ms)) in self.ways.connect.iter().enumerate() {
            fx.connect(Connect {
                token: ConnectToken(at as u64),
                to: *to,
                from: *from,
                deadline: now.mono.plus_ms(*ms),
            });
        }
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Accepted { conn, peer } => {
                assert!(peer.ip().is_loopback());
                assert!(self.conns.insert(conn), "an id used twice");
                self.tell(Seen::Accepted(conn));
            }
            Event::Connected { conn, token } => {
                self.conns.insert(conn);
                fx.outbox(conn).extend_from_slice(b"hello");
                self.tell(Seen::Connected(token.0));
            }
            Event::ConnectFailed { token, error } => {
                self.tell(Seen::ConnectFailed(token.0, error));
            }
            Event::Received { conn, mut input } => {
                assert!(self.conns.contains(&conn), "bytes after Closed");
                let bytes = input.bytes();
                let full = self
                    .ways
                    .unsent_max
                    .is_some_and(|max| fx.unsent_bytes(conn) > max);
                let held = (self.ways.only_at_end && !input.ended())
                    || (self.ways.until_mail && !self.mail_came);
                if !full && !held {
                    fx.outbox(conn).extend_from_slice(bytes);
                    input.consume(bytes.len());
                }
                if input.ended() {
                    self.tell(Seen::Ended(conn, bytes.len()));
                    if input.bytes().is_empty() {
                        fx.finish(conn);
                    }
                }
            }
            Event::Sent { conn } => {
                if self.ways.unsent_max.is_some() {
                    fx.receive(conn, true);
                }
                self.tell(Seen::Sent);
            }
            Event::Closed { conn, cause } => {
                assert!(self.conns.remove(&conn), "Closed twice, or of nobody");
                fx.outbox(conn)
                    .extend_from_slice(b"nobody may ever read this");
                self.tell(Seen::Closed(conn, cause));
            }
            Event::Mail(_) => {
                self.mail_came = true;
                for conn in &self.conns {
                    fx.receive(*conn, true);
                }
                self.tell(Seen::Mail);
            }
            Event::Tick => {
                assert!(
                    self.tick_at.is_some_and(|at| at <= now.mono),
                    "a tick too early"
                );
                self.tick_at = None;
                self.tell(Seen::Tick);
            }
            Event::Drain => {
                for conn in &self.conns {
                    fx.close(*conn);
                }
                fx.stop();
            }
        }
    }

    fn on_flush(&mut self, _: Now, _: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        self.tick_at
    }
}

struct Server {
    addr: SocketAddr,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
    seen: Receiver<Seen>,
    thread: JoinHandle<Result<Box<dyn Handler>, DriverError>>,
}

impl Server {
    fn start(ways: Ways, change: impl FnOnce(&mut DriverConfig)) -> Self {
        let listen = ListenSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listen.local_addr();
        let mut config = DriverConfig::new(SHARD);
        config.conns_max = 1024;
        config.listen = Some(listen);
        change(&mut config);
        let post = Arc::new(PostOffice::new([SHARD]).unwrap());
        let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
        let stats = Arc::new(DriverStats::default());
        let (sender, seen) = channel();
        let handler = Box::new(Echo {
            ways,
            conns: BTreeSet::new(),
            mail_came: false,
            tick_at: None,
            seen: sender,
        });
        let thread = {
            let (post, drain, stats) = (Arc::clone(&post), Arc::clone(&drain), Arc::clone(&stats));
            std::thread::spawn(move || uring::run(config, handler, post, drain, stats))
        };
        Self {
            addr,
            post,
            drain,
            stats,
            seen,
            thread,
        }
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.addr).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_write_timeout(Some(PATIENCE)).unwrap();
        client
    }

    fn next(&self) -> Seen {
        self.seen
            .recv_timeout(PATIENCE)
            .expect("the handler sees something")
    }

    fn until(&self, mut wanted: impl FnMut(&Seen) -> bool) -> Seen {
        loop {
            let seen = self.next();
            if wanted(&seen) {
                return seen;
            }
        }
    }

    /// Drains, and waits for the thread. What was seen after the last look.
    fn end(self) -> Vec<Seen> {
        self.drain.throw();
        self.thread.join().unwrap().unwrap();
        self.seen.try_iter().collect()
    }
}

/// Bytes that show where they were cut or swapped.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .take(bytes)
        .collect()
}

/// Resets: closing with bytes unread does (RFC 2525 §2.17).
fn reset(client: TcpStream) {
    assert!(client.peek(&mut [0]).unwrap() > 0);
    drop(client);
}

#[test]
fn an_echo_comes_back_and_a_half_close_is_answered_with_the_rest() {
    let server = Server::start(Ways::default(), |_| {});
    let mut client = server.client();
    let mut answer = [0; 4];
    for _ in 0..100 {
        client.write_all(b"ping").unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
    }
    client.write_all(b"last").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"last");
    let Seen::Accepted(conn) = server.next() else {
        panic!("accepted comes first")
    };
    let closed = server.until(|seen| matches!(seen, Seen::Closed(..)));
    assert_eq!(closed, Seen::Closed(conn, CloseCause::Local));
    assert_eq!(server.stats.accepts.get(), 1);
    assert!(server.end().is_empty(), "Closed is last");
}

#[test]
fn eight_mebibytes_come_back_in_order_through_a_slow_reader_with_bounded_memory() {
    let ways = Ways {
        unsent_max: Some(64 * 1024),
        ..Ways::default()
    };
    let server = Server::start(ways, |config| config.recv_buffers = 64);
    let sent = pattern(8 << 20);
    let mut client = server.client();
    let writer = {
        let (mut client, sent) = (client.try_clone().unwrap(), sent.clone());
        std::thread::spawn(move || {
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        })
    };
    let mut got = Vec::new();
    let mut piece = vec![0; 3000];
    while got.len() < sent.len() {
        let bytes = client.read(&mut piece).unwrap();
        assert!(bytes > 0, "ended after {} bytes", got.len());
        got.extend_from_slice(&piece[..bytes]);
    }
    writer.join().unwrap();
    assert!(got == sent, "bytes were lost, doubled or swapped");
    server.until(|seen| matches!(seen, Seen::Closed(_, CloseCause::Local)));
    server.end();
}

#[test]
fn a_client_whose_bytes_nobody_consumes_is_stopped_and_loses_none_of_them() {
    let ways = Ways {
        until_mail: true,
        ..Ways::default()
    };
    let server = Server::start(ways, |_| {});
    let mut client = server.client();
    client
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let piece = pattern(1 << 20);
    let mut sent = 0;
    // The kernel's buffers take some MiB; then the window is closed and a write blocks.
    while let Ok(bytes) = client.write(&piece[sent % piece.len()..]) {
        sent += bytes;
        assert!(sent < 256 << 20, "backpressure never reached the client");
    }
    assert_eq!(server.stats.recv_stops.get(), 1);
    server.post.deliver(SHARD, Mail::StatsAsk).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent);
    assert!(
        got.chunks(piece.len())
            .all(|chunk| chunk == &piece[..chunk.len()])
    );
    server.end();
}

#[test]
fn unconsumed_bytes_are_shown_again_with_the_end() {
    let ways = Ways {
        only_at_end: true,
        ..Ways::default()
    };
    let server = Server::start(ways, |_| {});
    let mut client = server.client();
    let sent = pattern(20_000);
    for piece in sent.chunks(777) {
        client.write_all(piece).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, sent);
    let ended = server.until(|seen| matches!(seen, Seen::Ended(..)));
    assert!(matches!(ended, Seen::Ended(_, 20_000)));
    server.until(|seen| matches!(seen, Seen::Closed(..)));
    assert!(
        server
            .end()
            .iter()
            .all(|seen| !matches!(seen, Seen::Ended(..))),
        "the end is shown once"
    );
}

#[test]
fn a_reset_closes_once_and_the_next_client_gets_nothing_of_the_last() {
    let server = Server::start(Ways::default(), |config| config.conns_max = 1);
    for _ in 0..20 {
        let mut client = server.client();
        client.write_all(b"x").unwrap();
        reset(client);
        let closed = server.until(|seen| matches!(seen, Seen::Closed(..)));
        assert!(matches!(closed, Seen::Closed(_, CloseCause::Reset)));
    }
    server.end();
}

#[test]
fn five_hundred_connections_at_once_all_get_their_own_echo() {
    let server = Server::start(Ways::default(), |config| config.recv_buffers = 32);
    let mut clients: Vec<TcpStream> = (0..500).map(|_| server.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.write_all(&pattern(4000 + at)).unwrap();
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let mut got = vec![0; 4000 + at];
        client.read_exact(&mut got).unwrap();
        assert_eq!(got, pattern(4000 + at));
    }
    let seen = server.end();
    let closed = seen
        .iter()
        .filter(|seen| matches!(seen, Seen::Closed(..)))
        .count();
    assert_eq!(closed, 500);
}

#[test]
fn accepting_pauses_at_the_cap_and_goes_on_when_slots_free_up() {
    let server = Server::start(Ways::default(), |config| config.conns_max = 4);
    let mut clients: Vec<TcpStream> = (0..40).map(|_| server.client()).collect();
    for client in &mut clients {
        client.write_all(b"me?").unwrap();
    }
    let mut open = 0;
    // The answers come in some order; each close lets one more in, never more than four at once.
    let mut served = 0;
    for mut client in clients {
        let mut got = [0; 3];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"me?");
        drop(client);
        served += 1;
        server.until(|seen| {
            match seen {
                Seen::Accepted(_) => open += 1,
                Seen::Closed(..) => open -= 1,
                _ => {}
            }
            assert!(open <= 4, "more connections than slots");
            matches!(seen, Seen::Closed(..))
        });
    }
    assert_eq!(served, 40);
    assert_eq!(server.stats.accepts.get(), 40);
    server.end();
}

#[test]
fn mail_from_other_threads_arrives_whether_the_ring_sleeps_or_not() {
    let server = Server::start(Ways::default(), |_| {});
    // One by one: the ring sleeps in between.
    for _ in 0..200 {
        server.post.deliver(SHARD, Mail::StatsAsk).unwrap();
        assert_eq!(server.next(), Seen::Mail);
    }
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let post = Arc::clone(&server.post);
            std::thread::spawn(move || {
                for _ in 0..2000 {
                    post.deliver(SHARD, Mail::StatsAsk).unwrap();
                }
            })
        })
        .collect();
    for _ in 0..8000 {
        assert_eq!(server.next(), Seen::Mail);
    }
    for sender in senders {
        sender.join().unwrap();
    }
    assert_eq!(server.stats.mail_in.get(), 8200);
    server.end();
}

#[test]
fn connects_succeed_from_a_chosen_address_are_refused_or_come_too_late() {
    let good = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        gone.local_addr().unwrap()
    };
    let ways = Ways {
        connect: vec![
            (
                good.local_addr().unwrap(),
                Some("127.9.8.7:0".parse().unwrap()),
                60_000,
            ),
            (refused, None, 60_000),
            (good.local_addr().unwrap(), None, 0),
            (refused, Some("8.8.8.8:0".parse().unwrap()), 60_000),
        ],
        ..Ways::default()
    };
    let server = Server::start(ways, |_| {});
    let (mut peer, from) = good.accept().unwrap();
    assert_eq!(from.ip().to_string(), "127.9.8.7");
    let mut got = [0; 5];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello");
    let mut fates: Vec<Seen> = std::iter::repeat_with(|| server.until(|seen| *seen != Seen::Sent))
        .take(4)
        .collect();
    fates.sort_by_key(|seen| match seen {
        Seen::Connected(token) | Seen::ConnectFailed(token, _) => *token,
        _ => u64::MAX,
    });
    assert_eq!(
        fates,
        [
            Seen::Connected(0),
            Seen::ConnectFailed(1, ConnectError::Refused),
            Seen::ConnectFailed(2, ConnectError::TimedOut),
            Seen::ConnectFailed(3, ConnectError::LocalLimit),
        ]
    );
    server.end();
}

#[test]
fn a_tick_comes_when_nothing_else_does_and_never_early() {
    let ways = Ways {
        tick_ms: Some(30),
        ..Ways::default()
    };
    let server = Server::start(ways, |_| {});
    assert_eq!(server.next(), Seen::Tick);
    server.end();
}

#[test]
fn a_second_listener_on_the_port_is_refused_with_the_remedy_and_a_second_driver_on_the_box_too() {
    let server = Server::start(Ways::default(), |_| {});
    let error = ListenSocket::bind(server.addr).unwrap_err().to_string();
    assert!(error.contains("another program listens there"), "{error}");
    assert!(error.contains(&server.addr.to_string()), "{error}");
    drop(server.client()); // after this the first driver certainly has its box
    server.next();
    let seen = channel().0;
    let handler = Box::new(Echo {
        ways: Ways::default(),
        conns: BTreeSet::new(),
        mail_came: false,
        tick_at: None,
        seen,
    });
    let result = uring::run(
        DriverConfig::new(SHARD),
        handler,
        Arc::clone(&server.post),
        Arc::clone(&server.drain),
        Arc::clone(&server.stats),
    );
    assert!(matches!(result, Err(DriverError::MailboxTaken(SHARD))));
    server.end();
}

#[test]
fn two_listeners_share_a_port_and_memory_grows_with_what_is_configured() {
    let pair = ListenSocket::bind_shared("127.0.0.1:0".parse().unwrap(), 2).unwrap();
    assert_eq!(pair[0].local_addr(), pair[1].local_addr());
    let small = DriverConfig::new(SHARD);
    let mut large = DriverConfig::new(SHARD);
    large.conns_max *= 2;
    for kind in [DriverKind::Uring, DriverKind::Epoll, DriverKind::Monoio] {
        let (small, large) = (kind.memory_needed(&small), kind.memory_needed(&large));
        assert!(large > small + 4096 * 2048, "{}", kind.name());
    }
}

#[test]
fn a_reset_while_everything_is_under_way_still_ends_in_one_closed() {
    let server = Server::start(Ways::default(), |_| {});
    let blocked = Mutex::new(0);
    for _ in 0..30 {
        let mut client = server.client();
        client
            .set_write_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let piece = pattern(1 << 16);
        // The client never reads: the echo backs up in our outbox with a send under way.
        for _ in 0..64 {
            match client.write(&piece) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    *blocked.lock().unwrap() += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        reset(client);
        let closed = server.until(|seen| matches!(seen, Seen::Closed(..)));
        assert!(matches!(closed, Seen::Closed(_, CloseCause::Reset)));
    }
    server.end();
}

#[test]
fn a_ring_of_eight_entries_serves_three_hundred_connections() {
    let server = Server::start(Ways::default(), |config| {
        config.ring_entries = 8;
        config.recv_buffers = 8;
    });
    let mut clients: Vec<TcpStream> = (0..300).map(|_| server.client()).collect();
    for round in 0..5 {
        for (at, client) in clients.iter_mut().enumerate() {
            client.write_all(&pattern(at + round + 1)).unwrap();
        }
        for (at, client) in clients.iter_mut().enumerate() {
            let mut got = vec![0; at + round + 1];
            client.read_exact(&mut got).unwrap();
            assert_eq!(got, pattern(at + round + 1));
        }
    }
    assert_eq!(server.stats.accepts.get(), 300);
    server.end();
}
