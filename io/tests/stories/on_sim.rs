//! The stories on driver sim: handler and clients are parts of one world, and waiting is running the world.

use super::subject::{Act, Seen, Subject};
use super::{End, Harness, Sock, Target};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use weir_core::limit::lease::ShardId;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{CloseCause, ConnId, Connect, ConnectToken, Effects, Event, Handler};
use weir_core::rng::Rng;
use weir_core::time::{Mono, NS_PER_S, Now};
use weir_io::sim::{Config, Dial, DialFate, Faults, Listen, Status, World};
use weir_io::stats::DriverStats;

const SUBJECT: Addr = Addr::Shard(ShardId(0));
const CLIENTS: Addr = Addr::Client(0);
const POSTER: Addr = Addr::Worker;
/// Virtual time after which a story waits in vain.
const BOUND_NS: u64 = 600 * NS_PER_S;

const fn address(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 80)
}
const SERVED: SocketAddr = address(1);
const LISTENS: SocketAddr = address(2);
const REFUSES: SocketAddr = address(3);
const SILENT: SocketAddr = address(4);

struct SilentAddress;

impl Faults for SilentAddress {
    fn dial(&mut self, _: Now, dial: Dial, _: &mut Rng) -> DialFate {
        if dial.to == SILENT {
            DialFate::Drop
        } else {
            DialFate::Pass
        }
    }
}

/// Posts what it is given.
#[derive(Default)]
struct Poster {
    mails: Vec<Mail>,
}

impl Handler for Poster {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}
    fn on_event(&mut self, _: Now, _: Event<'_>, _: &mut Effects) {}
    fn on_flush(&mut self, _: Now, fx: &mut Effects) {
        for mail in self.mails.drain(..) {
            fx.post(SUBJECT, mail);
        }
    }
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

#[derive(Clone, Copy)]
enum Command {
    Dial,
    Finish,
    Close,
    Read,
}

#[derive(Default)]
struct Socket {
    conn: Option<ConnId>,
    to_send: Vec<u8>,
    unsent_bytes: usize,
    /// Bytes that the story waits for, beyond `got`.
    wanted_bytes: usize,
    got: Vec<u8>,
    ended: Option<End>,
    closed: bool,
}

/// All clients of a story: does what the story says, one command after the other.
#[derive(Default)]
struct Clients {
    sockets: Vec<Socket>,
    accepted: VecDeque<usize>,
    commands: Vec<(usize, Command)>,
}

impl Clients {
    fn of(&mut self, conn: ConnId) -> &mut Socket {
        let mut sockets = self.sockets.iter_mut();
        sockets
            .find(|socket| socket.conn == Some(conn))
            .expect("conns are told of first")
    }
}

impl Handler for Clients {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}

    fn on_event(&mut self, _: Now, event: Event<'_>, _: &mut Effects) {
        match event {
            Event::Accepted { conn, .. } => {
                self.accepted.push_back(self.sockets.len());
                self.sockets.push(Socket {
                    conn: Some(conn),
                    ..Socket::default()
                });
            }
            Event::Connected { conn, token } => {
                self.sockets[token.0 as usize].conn = Some(conn);
            }
            Event::ConnectFailed { error, .. } => panic!("a client could not connect: {error:?}"),
            Event::Received { conn, mut input } => {
                let socket = self.of(conn);
                let mut taken = input.bytes().len();
                if input.ended() {
                    socket.ended = Some(End::Fin); // the driver may close now: nothing can be left with it
                } else {
                    taken = taken.min(socket.wanted_bytes);
                }
                socket.got.extend_from_slice(&input.bytes()[..taken]);
                socket.wanted_bytes = socket.wanted_bytes.saturating_sub(taken);
                input.consume(taken);
            }
            Event::Closed { conn, cause } => {
                let socket = self.of(conn);
                socket.closed = true;
                if cause == CloseCause::Reset {
                    socket.ended.get_or_insert(End::Reset);
                }
            }
            _ => {}
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            if let Some(conn) = socket.conn {
                fx.outbox(conn).append(&mut socket.to_send);
                socket.unsent_bytes = fx.unsent_bytes(conn);
            }
            for (_, command) in self.commands.iter().filter(|(of, _)| *of == index) {
                match (command, socket.conn) {
                    (Command::Dial, _) => fx.connect(Connect {
                        token: ConnectToken(index as u64),
                        to: SERVED,
                        from: None,
                        deadline: now.mono.plus_ms(60_000),
                    }),
                    (Command::Finish, Some(conn)) => fx.finish(conn),
                    (Command::Close, Some(conn)) => fx.close(conn),
                    (Command::Read, Some(conn)) => fx.receive(conn, true),
                    (_, None) => panic!("a command before the connection"),
                }
            }
        }
        self.commands.clear();
    }

    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// One story's world.
pub struct OnSim {
    world: World,
    seen: Arc<Seen>,
}

impl OnSim {
    /// The seed chooses latencies, cuts, and how wide the windows are.
    pub fn new(seed: u64) -> Self {
        let config = Config {
            window_bytes: [64 * 1024, 4096, 700][(seed % 3) as usize],
            ..Config::default()
        };
        let mut world = World::new(seed, config);
        world.set_faults(Box::new(SilentAddress));
        let clients = Box::<Clients>::default();
        world.add_part(CLIENTS, clients, Listen::On(LISTENS), 1024);
        world.add_part(POSTER, Box::<Poster>::default(), Listen::No, 0);
        Self {
            world,
            seen: Arc::default(),
        }
    }

    pub fn hash(&self) -> u64 {
        self.world.hash()
    }

    fn clients(&mut self) -> &mut Clients {
        self.world.part_mut(CLIENTS).expect("clients never crash")
    }

    fn socket(&mut self, sock: Sock) -> &mut Socket {
        &mut self.clients().sockets[sock.0]
    }

    fn command(&mut self, sock: Sock, command: Command) {
        self.clients().commands.push((sock.0, command));
        self.world.poke(CLIENTS);
    }

    /// Runs the world until the clients are so.
    fn until_clients(&mut self, what: &str, done: impl Fn(&Clients) -> bool) {
        let done = |world: &World| done(world.part(CLIENTS).expect("clients never crash"));
        assert!(
            self.world.run_until(BOUND_NS, done),
            "waited in vain: {what}"
        );
    }

    fn want(&mut self, sock: Sock, bytes: usize) {
        self.socket(sock).wanted_bytes = bytes;
        if !self.socket(sock).closed {
            self.command(sock, Command::Read);
        }
    }
}

impl Harness for OnSim {
    fn serve(&mut self, act: Act, conns_max: u32) -> Arc<Seen> {
        let (subject, seen) = Subject::new(act);
        let listen = Listen::On(SERVED);
        self.world
            .add_part(SUBJECT, Box::new(subject), listen, conns_max as usize);
        self.seen = Arc::clone(&seen);
        seen
    }

    fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    fn stats(&self) -> Arc<DriverStats> {
        Arc::default()
    }

    fn mail(&mut self, number: u16) {
        let poster: &mut Poster = self.world.part_mut(POSTER).expect("it never crashes");
        poster.mails.push(Mail::ViewsAsk(ShardId(number)));
        self.world.poke(POSTER);
    }

    fn mail_from_many(&mut self, senders: u16, each: u16) {
        for sender in 0..senders {
            let numbers = sender * each..(sender + 1) * each;
            let mails = numbers.map(|number| Mail::ViewsAsk(ShardId(number)));
            let poster = Poster {
                mails: mails.collect(),
            };
            let addr = Addr::Client(100 + sender);
            self.world.add_part(addr, Box::new(poster), Listen::No, 0);
        }
    }

    fn drain(&mut self) {
        self.world.drain(SUBJECT);
    }

    fn until(&mut self, what: &str, done: &mut dyn FnMut() -> bool) {
        let came = self.world.run_until(BOUND_NS, |_| done());
        assert!(came, "waited in vain: {what}");
    }

    fn stop(&mut self) {
        let poster: &mut Poster = self.world.part_mut(POSTER).expect("it never crashes");
        poster.mails.push(Mail::StatsAsk);
        self.world.poke(POSTER);
    }

    fn join(&mut self) {
        let stopped = |world: &World| world.status(SUBJECT) == Status::Stopped;
        assert!(self.world.run_until(BOUND_NS, stopped), "it does not stop");
    }

    fn dial(&mut self) -> Sock {
        let clients = self.clients();
        let sock = Sock(clients.sockets.len());
        clients.sockets.push(Socket::default());
        self.command(sock, Command::Dial);
        self.until_clients("connected", |clients| {
            clients.sockets[sock.0].conn.is_some()
        });
        sock
    }

    fn target(&mut self, target: Target) -> SocketAddr {
        match target {
            Target::Listens => LISTENS,
            Target::Refuses => REFUSES,
            Target::Silent => SILENT,
        }
    }

    fn accept(&mut self) -> Sock {
        self.until_clients("a connection", |clients| !clients.accepted.is_empty());
        let accepted = self.clients().accepted.pop_front();
        Sock(accepted.expect("just seen"))
    }

    fn send(&mut self, sock: Sock, bytes: &[u8]) {
        self.try_send(sock, bytes);
        self.until_clients("sent", |clients| {
            let socket = &clients.sockets[sock.0];
            socket.closed || (socket.unsent_bytes == 0 && socket.to_send.is_empty())
        });
    }

    fn try_send(&mut self, sock: Sock, bytes: &[u8]) -> usize {
        let socket = self.socket(sock);
        if socket.unsent_bytes + socket.to_send.len() > 0 {
            return 0;
        }
        socket.to_send.extend_from_slice(bytes);
        self.world.poke(CLIENTS);
        bytes.len()
    }

    fn read(&mut self, sock: Sock, bytes: usize) -> Vec<u8> {
        let missing = bytes.saturating_sub(self.socket(sock).got.len());
        self.want(sock, missing);
        self.until_clients("read", |clients| {
            let socket = &clients.sockets[sock.0];
            socket.got.len() >= bytes || socket.ended.is_some()
        });
        let got = &mut self.socket(sock).got;
        assert!(got.len() >= bytes, "the stream ended after {}", got.len());
        got.drain(..bytes).collect()
    }

    fn read_to_end(&mut self, sock: Sock) -> (Vec<u8>, End) {
        self.want(sock, usize::MAX);
        self.until_clients("the end", |clients| {
            let socket = &clients.sockets[sock.0];
            socket.ended.is_some() || socket.closed
        });
        let socket = self.socket(sock);
        socket.wanted_bytes = 0;
        let end = socket.ended.expect("nobody closes here while it is read");
        (std::mem::take(&mut socket.got), end)
    }

    fn half_close(&mut self, sock: Sock) {
        self.command(sock, Command::Finish);
    }

    fn reset(&mut self, sock: Sock) {
        if let Some(conn) = self.socket(sock).conn {
            self.world.reset_conn(CLIENTS, conn);
        }
    }

    fn close(&mut self, sock: Sock) {
        self.command(sock, Command::Close);
    }
}
