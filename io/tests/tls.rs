//! `OverTls` against a server of rustls in memory: a handler behind it never sees wrong bytes, however its records are
//! split, changed or cut, and each handshake that fails has its reason.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use weir_core::port::{
    CloseCause, ConnId, Connect, ConnectError, ConnectToken, Effects, Event, Handler, Input, Op,
};
use weir_core::time::{Mono, Now, WallMs};
use weir_core::tls::{Host, TlsFault, TlsId, TlsPeer};
use weir_io::tls::over::OverTls;
use weir_io::tls::{TlsClient, TlsFiles, TlsReject};

const CONN: ConnId = ConnId {
    slot: 1,
    generation: 3,
};
const TOKEN: ConnectToken = ConnectToken(7);
const DEADLINE: Mono = Mono(1_000);

fn at(mono: u64) -> Now {
    Now {
        mono: Mono(mono),
        wall: WallMs(0),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Connected(ConnId),
    Failed(ConnectError),
    Line(Vec<u8>),
    Ended,
    /// With what the outbox had unsent.
    Sent(usize),
    Closed,
}

/// Bytes to send, and whether to close then.
type Orders = Arc<Mutex<Vec<(Vec<u8>, bool)>>>;

/// Says hello, takes whole lines only, and does what it is ordered to.
struct Probe {
    peer: Option<TlsPeer>,
    told: mpsc::Sender<Told>,
    orders: Orders,
}

impl Handler for Probe {
    fn on_start(&mut self, _now: Now, fx: &mut Effects) {
        let connect = Connect {
            token: TOKEN,
            to: SocketAddr::from(([127, 0, 0, 1], 1)),
            from: None,
            deadline: DEADLINE,
        };
        match self.peer.take() {
            Some(peer) => fx.connect_tls(connect, peer),
            None => fx.connect(connect),
        }
    }

    fn on_event(&mut self, _now: Now, event: Event<'_>, fx: &mut Effects) {
        let told = match event {
            Event::Connected { conn, token } => {
                assert_eq!(token, TOKEN);
                fx.outbox(conn).extend_from_slice(b"hello\n");
                Told::Connected(conn)
            }
            Event::ConnectFailed { token, error } => {
                assert_eq!(token, TOKEN);
                Told::Failed(error)
            }
            Event::Received { mut input, .. } => {
                while let Some(end) = input.bytes().iter().position(|&byte| byte == b'\n') {
                    self.told
                        .send(Told::Line(input.bytes()[..end].to_vec()))
                        .unwrap();
                    input.consume(end + 1);
                }
                match input.ended() {
                    true => Told::Ended,
                    false => return,
                }
            }
            Event::Sent { conn } => Told::Sent(fx.unsent_bytes(conn)),
            Event::Closed { .. } => Told::Closed,
            _ => return,
        };
        self.told.send(told).unwrap();
    }

    fn on_flush(&mut self, _now: Now, fx: &mut Effects) {
        for (bytes, closes) in self.orders.lock().unwrap().drain(..) {
            fx.outbox(CONN).extend_from_slice(&bytes);
            if closes {
                fx.close(CONN);
            }
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// What a server has: certificates and keys as PEM.
struct Papers {
    ca: String,
    cert: String,
    key: String,
}

fn papers(host: &str, change: impl FnOnce(&mut CertificateParams)) -> Papers {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(authority, ca_key);
    let mut params = CertificateParams::new([host.to_owned()]).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    Papers {
        ca,
        cert: params.signed_by(&key, &issuer).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

fn roots(ca: &str) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
        .unwrap();
    Arc::new(roots)
}

fn server(
    papers: &Papers,
    versions: &[&'static SupportedProtocolVersion],
    clients_of: Option<&str>,
) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(versions).unwrap();
    let builder = match clients_of {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(ca), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let cert = CertificateDer::from_pem_slice(papers.cert.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(papers.key.as_bytes()).unwrap();
    Arc::new(builder.with_single_cert(vec![cert], key).unwrap())
}

fn client(ca: &str, identity: Option<&Papers>) -> TlsClient {
    let identity = identity.map(|papers| (papers.cert.as_bytes(), papers.key.as_bytes()));
    let authorities = ca.as_bytes();
    TlsClient::new(TlsFiles {
        authorities,
        identity,
    })
    .unwrap()
}

/// A driver with one connection, and what is at its other end.
struct World {
    over: OverTls<Probe>,
    fx: Effects,
    told: mpsc::Receiver<Told>,
    orders: Orders,
    server: ServerConnection,
    /// Bytes for the server, and for us; what we were shown and did not consume.
    to_server: Vec<u8>,
    backlog: Vec<u8>,
    is_closed: bool,
    heard: Vec<u8>,
}

impl World {
    /// Connected below, nothing said.
    fn new(client: TlsClient, host: &str, server: &Arc<ServerConfig>) -> Self {
        let (sender, told) = mpsc::channel();
        let orders = Arc::default();
        let peer = TlsPeer {
            settings: TlsId(4),
            host: Host::parse(host.as_bytes()).unwrap(),
        };
        let probe = Probe {
            peer: Some(peer),
            told: sender,
            orders: Arc::clone(&orders),
        };
        let mut world = Self {
            over: OverTls::new(probe, vec![(TlsId(4), client)], 4),
            fx: Effects::new(4),
            told,
            orders,
            server: ServerConnection::new(Arc::clone(server)).unwrap(),
            to_server: Vec::new(),
            backlog: Vec::new(),
            is_closed: false,
            heard: Vec::new(),
        };
        world.over.on_start(at(0), &mut world.fx);
        let mut ops = Vec::new();
        world.fx.take_ops(&mut ops);
        assert!(
            matches!(ops[..], [Op::Connect(Connect { token: TOKEN, .. })]),
            "{ops:?}"
        );
        world.fx.open_conn(CONN);
        let token = TOKEN;
        world.turn(0, Some(Event::Connected { conn: CONN, token }));
        world
    }

    fn turn(&mut self, mono: u64, event: Option<Event<'_>>) {
        if let Some(event) = event {
            self.over.on_event(at(mono), event, &mut self.fx);
        }
        self.over.on_flush(at(mono), &mut self.fx);
        while let Some(conn) = self.fx.next_dirty() {
            assert_eq!(conn, CONN);
            let mut bytes = Vec::new();
            self.fx.take_pending(conn, &mut bytes);
            self.fx.sent(conn, bytes.len());
            self.to_server.append(&mut bytes);
        }
        let mut ops = Vec::new();
        self.fx.take_ops(&mut ops);
        let closes = ops
            .iter()
            .any(|op| matches!(op, Op::Close(conn) if *conn == CONN));
        if closes && !std::mem::replace(&mut self.is_closed, true) {
            self.fx.forget_conn(CONN);
            let (conn, cause) = (CONN, CloseCause::Local);
            self.turn(mono, Some(Event::Closed { conn, cause }));
        }
    }

    /// We receive `bytes`.
    fn receive(&mut self, bytes: &[u8], ended: bool) {
        if self.is_closed {
            return;
        }
        let mut backlog = std::mem::take(&mut self.backlog);
        backlog.extend_from_slice(bytes);
        let consumed = Cell::new(0);
        let input = Input::new(&backlog, ended, &consumed);
        self.turn(1, Some(Event::Received { conn: CONN, input }));
        backlog.drain(..consumed.get());
        self.backlog = backlog;
    }

    /// What the server has to say, when it has heard all that we said.
    fn server_says(&mut self) -> Vec<u8> {
        let mut said = std::mem::take(&mut self.to_server);
        let mut rest = &said[..];
        while !rest.is_empty() {
            self.server.read_tls(&mut rest).unwrap();
            if self.server.process_new_packets().is_err() {
                break; // its alert says so
            }
            let mut heard = Vec::new();
            let _ = self.server.reader().read_to_end(&mut heard); // until there is no more for now
            self.heard.append(&mut heard);
        }
        said.clear();
        while self.server.wants_write() {
            self.server.write_tls(&mut said).unwrap();
        }
        said
    }

    /// Both say what they have to, we receiving `piece` bytes at a time, until there is no more to say.
    fn exchange(&mut self, piece: usize) {
        loop {
            let said = self.server_says();
            if said.is_empty() {
                return;
            }
            for bytes in said.chunks(piece) {
                self.receive(bytes, false);
            }
        }
    }

    fn say(&mut self, text: &[u8]) {
        self.server.writer().write_all(text).unwrap();
    }

    fn told(&self) -> Vec<Told> {
        self.told.try_iter().collect()
    }
}

fn line(text: &str) -> Told {
    Told::Line(text.as_bytes().to_vec())
}

#[test]
fn bytes_are_right_however_records_are_split() {
    let papers = papers("redis.test", |_| {});
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let server = server(&papers, versions, None);
        for piece in 1..=40 {
            let mut world = World::new(client(&papers.ca, None), "redis.test", &server);
            world.exchange(piece);
            assert_eq!(world.heard, b"hello\n");
            world.say(b"one\ntw");
            world.exchange(piece);
            world.say(b"o\nthr");
            world.say(b"ee\n");
            world.exchange(piece);
            let lines = [
                Told::Connected(CONN),
                line("one"),
                line("two"),
                line("three"),
            ];
            assert_eq!(world.told(), lines, "{piece}");
        }
    }
}

/// A world after its handshake, and records with three lines that have not come yet.
fn before_three_lines(papers: &Papers, server: &Arc<ServerConfig>) -> (World, Vec<u8>) {
    let mut world = World::new(client(&papers.ca, None), "redis.test", server);
    world.exchange(usize::MAX);
    assert_eq!(world.told(), [Told::Connected(CONN)]);
    for text in ["one\n", "two\n", "three\n"] {
        world.say(text.as_bytes());
    }
    let records = world.server_says();
    (world, records)
}

#[test]
fn a_changed_byte_anywhere_closes_and_is_never_shown() {
    let papers = papers("redis.test", |_| {});
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let server = server(&papers, versions, None);
        let bytes_count = before_three_lines(&papers, &server).1.len();
        let mut unnoticed_count = 0;
        for place in 0..bytes_count {
            let (mut world, mut records) = before_three_lines(&papers, &server);
            records[place] ^= 0x04;
            world.receive(&records, false);
            world.receive(&[], true); // a length that grew waits for more
            let mut told = world.told();
            assert_eq!(told.pop(), Some(Told::Closed), "{place}");
            let lines = [line("one"), line("two"), line("three")];
            assert!(lines.starts_with(&told), "{place}: {told:?}");
            unnoticed_count += usize::from(told == lines);
        }
        // The version in a record's head has no meaning (RFC 8446 §5.1): one byte of three records.
        assert!(unnoticed_count <= 3, "{unnoticed_count}");
    }
}

#[test]
fn a_changed_byte_of_the_handshake_is_a_connect_that_failed() {
    let papers = papers("redis.test", |_| {});
    let server = server(&papers, &[&TLS13], None);
    let flight = |world: &mut World| world.server_says();
    let bytes_count = flight(&mut World::new(
        client(&papers.ca, None),
        "redis.test",
        &server,
    ))
    .len();
    let mut failed_count = 0;
    for place in (0..bytes_count).step_by(3) {
        let mut world = World::new(client(&papers.ca, None), "redis.test", &server);
        let mut bytes = flight(&mut world);
        if place >= bytes.len() {
            continue; // signatures vary in length
        }
        bytes[place] ^= 0x10;
        world.receive(&bytes, false);
        world.receive(&[], true);
        match &world.told()[..] {
            [Told::Failed(ConnectError::Tls(_))] => failed_count += 1,
            // The version of a record and what stands for compatibility have no meaning (RFC 8446 §5.1, §D.4). Then the
            // end is one of an open connection.
            [Told::Connected(_), Told::Closed] => {}
            other => panic!("{place}: {other:?}"),
        }
        assert!(world.is_closed);
    }
    assert!(failed_count > bytes_count / 6, "{failed_count}");
}

#[test]
fn an_end_counts_only_when_it_is_signed() {
    let papers = papers("redis.test", |_| {});
    let server = server(&papers, &[&TLS13], None);
    let (mut world, records) = before_three_lines(&papers, &server);
    world.receive(&records[..records.len() - 1], true);
    assert_eq!(world.told(), [line("one"), line("two"), Told::Closed]);
    let (mut world, records) = before_three_lines(&papers, &server);
    world.receive(&records, true);
    assert_eq!(world.told()[3..], [Told::Closed], "cut between two records");
    let (mut world, mut records) = before_three_lines(&papers, &server);
    world.server.send_close_notify();
    records.append(&mut world.server_says());
    world.receive(&records, false);
    assert_eq!(world.told()[3..], [Told::Ended]);
    world.receive(&[], true);
    assert_eq!(world.told(), [], "it is told once");
    assert!(!world.is_closed, "that is the handler's to do");
}

#[test]
fn what_closes_says_so_and_what_was_written_before_arrives() {
    let papers = papers("redis.test", |_| {});
    let (mut world, _) = before_three_lines(&papers, &server(&papers, &[&TLS13], None));
    world
        .orders
        .lock()
        .unwrap()
        .push((b"last\n".to_vec(), true));
    world.turn(2, None);
    world.server_says();
    assert_eq!(world.heard, b"hello\nlast\n");
    let state = world.server.process_new_packets().unwrap();
    assert!(state.peer_has_closed());
    assert_eq!(world.told(), [Told::Closed]);
}

#[test]
fn a_long_reply_and_a_long_request_pass_whole() {
    let papers = papers("redis.test", |_| {});
    let (mut world, records) = before_three_lines(&papers, &server(&papers, &[&TLS13], None));
    world.receive(&records, false);
    world.told();
    world.server.set_buffer_limit(None);
    let mut long = vec![b'x'; 1_000_000];
    world.say(&long);
    world.say(b"\nshort\n");
    world.exchange(8_192);
    assert_eq!(world.told(), [Told::Line(long.clone()), line("short")]);
    // The other way; it counts as unsent until the driver says that it is with the kernel.
    long.push(b'\n');
    world.orders.lock().unwrap().push((long.clone(), false));
    world.heard.clear();
    world.turn(2, None);
    world.turn(2, Some(Event::Sent { conn: CONN }));
    assert_eq!(world.told(), [Told::Sent(0)]);
    world.exchange(usize::MAX);
    assert!(world.heard == long);
}

#[test]
fn more_than_any_reply_is_not_kept() {
    let papers = papers("redis.test", |_| {});
    let (mut world, records) = before_three_lines(&papers, &server(&papers, &[&TLS13], None));
    world.receive(&records, false);
    world.server.set_buffer_limit(None);
    world.say(&vec![b'x'; 3_000_000]);
    let endless = world.server_says();
    world.receive(&endless, false);
    let kept = world.backlog.len();
    assert!(kept > 1_900_000, "the driver holds it back: {kept}");
}

/// Why there is no connection to `host`.
fn failure(client: TlsClient, host: &str, server: &Arc<ServerConfig>) -> Option<TlsFault> {
    let mut world = World::new(client, host, server);
    world.exchange(100);
    match world.told()[..] {
        [Told::Connected(_)] => None,
        [Told::Failed(ConnectError::Tls(fault))] => Some(fault),
        // A client's certificate is judged when the client holds itself for connected (RFC 8446 §4.4.2).
        [Told::Connected(_), Told::Closed] => Some(TlsFault::Ended),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_server_that_was_meant_is_spoken_to() {
    let named = papers("redis.test", |_| {});
    let at_address = papers("192.0.2.7", |_| {});
    let other = papers("redis.test", |_| {});
    let old = papers("redis.test", |params| {
        params.not_after = date_time_ymd(2020, 1, 1)
    });
    let early = papers("redis.test", |params| {
        params.not_before = date_time_ymd(4000, 1, 1)
    });
    let both: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];
    let of = |papers: &Papers| server(papers, both, None);
    let trusting = |papers: &Papers| client(&papers.ca, None);
    assert_eq!(failure(trusting(&named), "redis.test", &of(&named)), None);
    assert_eq!(
        failure(trusting(&at_address), "192.0.2.7", &of(&at_address)),
        None
    );
    let cases = [
        (&named, "redis-2.test", &named, TlsFault::WrongName),
        (&named, "192.0.2.7", &named, TlsFault::WrongName),
        (&at_address, "192.0.2.8", &at_address, TlsFault::WrongName),
        (&other, "redis.test", &named, TlsFault::UnknownIssuer),
        (&old, "redis.test", &old, TlsFault::Expired),
        (&early, "redis.test", &early, TlsFault::NotYetValid),
        (&named, "-redis..test", &named, TlsFault::NoName),
    ];
    for (trusted, host, there, fault) in cases {
        assert_eq!(
            failure(trusting(trusted), host, &of(there)),
            Some(fault),
            "{host}"
        );
    }
}

#[test]
fn a_server_that_asks_is_shown_who_we_are() {
    let there = papers("redis.test", |_| {});
    let ours = papers("weir.test", |_| {});
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let asking = server(&there, versions, Some(&ours.ca));
        let known = failure(client(&there.ca, Some(&ours)), "redis.test", &asking);
        assert_eq!(known, None);
        assert!(failure(client(&there.ca, None), "redis.test", &asking).is_some());
        let stranger = server(&there, versions, Some(&there.ca));
        assert!(failure(client(&there.ca, Some(&ours)), "redis.test", &stranger).is_some());
    }
}

#[test]
fn another_protocol_and_silence_have_names_of_their_own() {
    let papers = papers("redis.test", |_| {});
    let server = server(&papers, &[&TLS13], None);
    let new = || World::new(client(&papers.ca, None), "redis.test", &server);
    let failed = |fault| [Told::Failed(ConnectError::Tls(fault))];
    let mut plain = new();
    plain.receive(b"-ERR unknown command\r\n", false);
    assert_eq!(plain.told(), failed(TlsFault::NotTls));
    assert!(plain.is_closed);
    let mut gone = new();
    gone.receive(b"", true);
    assert_eq!(gone.told(), failed(TlsFault::Ended));
    let mut reset = new();
    let (conn, cause) = (CONN, CloseCause::Reset);
    reset.turn(1, Some(Event::Closed { conn, cause }));
    assert_eq!(reset.told(), failed(TlsFault::Ended));
    let mut silent = new();
    assert_eq!(silent.over.next_deadline(), Some(DEADLINE));
    silent.turn(DEADLINE.0 - 1, Some(Event::Tick));
    assert_eq!(silent.told(), []);
    silent.turn(DEADLINE.0, Some(Event::Tick));
    assert_eq!(silent.told(), failed(TlsFault::Silent));
    assert!(silent.is_closed);
    assert_eq!(silent.over.next_deadline(), None);
}

#[test]
fn a_plain_connect_stays_plain() {
    let (sender, told) = mpsc::channel();
    let probe = Probe {
        peer: None,
        told: sender,
        orders: Arc::default(),
    };
    let mut over = OverTls::new(probe, Vec::new(), 4);
    let mut fx = Effects::new(4);
    over.on_start(at(0), &mut fx);
    fx.open_conn(CONN);
    let (conn, token) = (CONN, TOKEN);
    over.on_event(at(0), Event::Connected { conn, token }, &mut fx);
    over.on_flush(at(0), &mut fx);
    assert_eq!(fx.outbox(CONN), b"hello\n");
    let consumed = Cell::new(0);
    let input = Input::new(b"a line\nand", false, &consumed);
    over.on_event(at(0), Event::Received { conn, input }, &mut fx);
    assert_eq!(consumed.get(), 7);
    let told: Vec<Told> = told.try_iter().collect();
    assert_eq!(told, [Told::Connected(CONN), line("a line")]);
}

#[test]
fn files_that_hold_something_else_are_told_apart() {
    let (ours, other) = (papers("weir.test", |_| {}), papers("weir.test", |_| {}));
    let new = |ca: &str, cert: &str, key: &str| {
        let identity = Some((cert.as_bytes(), key.as_bytes()));
        let authorities = ca.as_bytes();
        TlsClient::new(TlsFiles {
            authorities,
            identity,
        })
        .map(drop)
    };
    let (ca, cert, key) = (&ours.ca, &ours.cert, &ours.key);
    assert_eq!(new(ca, cert, key), Ok(()));
    assert_eq!(new("", cert, key), Err(TlsReject::Authorities));
    assert_eq!(new(key, cert, key), Err(TlsReject::Authorities));
    assert_eq!(new(ca, key, key), Err(TlsReject::Certificate));
    assert_eq!(new(ca, cert, cert), Err(TlsReject::Key));
    assert_eq!(new(ca, cert, &other.key), Err(TlsReject::Pair));
}
