//! A small Redis: keys, streams, Pub/Sub and the shipped Lua scripts, as a part of the simulated world.
//!
//! Used by `weir sim` and by `tests/redis_scenarios.rs`. It speaks RESP2 and RESP3 over the world's connections. A
//! [`Conduct`] decides for each command whether it is served, answered otherwise, late, in pieces or never.
//! Deliberately absent: everything that weir does not use; it is refused aloud.

mod commands;
mod greet;
mod groups;
mod keys;
mod mutants;
mod reply;
mod script;
mod streams;

pub use commands::FieldSet;
pub use keys::Keys;
pub use reply::Reply;

use commands::{Published, Scene};
use script::{Engine, Permit, Trail};
use sha1::{Digest, Sha1};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use weir_core::port::{ConnId, Effects, Event, Handler, Input};
use weir_core::time::{Mono, Now};
use weir_proto::resp::{self, Scan, Scanner, Value};

/// What happens to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out and answered.
    Serve,
    /// It is carried out; the answer leaves so many milliseconds later.
    ServeAfter(u64),
    /// It is carried out; the connection closes without the answer.
    ServeThenClose,
    /// It is not carried out; these bytes are the answer.
    Say(Vec<u8>),
    /// It is not carried out; these bytes leave, then the connection closes.
    SayThenClose(Vec<u8>),
    /// It is not carried out, and no answer comes.
    Ignore,
}

/// Decides what happens to commands.
pub trait Conduct: Send {
    /// `conn`: the connections of this server counted from 0; `words`: the command.
    fn fate(&mut self, now: Now, conn: u32, words: &[&[u8]]) -> Fate;

    /// How the `number`th reply (from 0) of this server leaves: pieces with the time at which each does. All of it at
    /// once unless told otherwise.
    fn pieces(&mut self, now: Now, number: u64, reply: Vec<u8>) -> Vec<(Mono, Piece)> {
        let _ = number;
        vec![(now.mono, Piece::Bytes(reply))]
    }
}

/// A part of what leaves on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The end of the connection.
    Close,
}

/// A server without mischief.
pub struct Honest;

impl Conduct for Honest {
    fn fate(&mut self, _now: Now, _conn: u32, _words: &[&[u8]]) -> Fate {
        Fate::Serve
    }
}

/// What a server is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// As INFO shows it.
    pub version: &'static str,
    /// 40 hexadecimal digits.
    pub run_id: String,
    /// 40 hexadecimal digits.
    pub replication_id: String,
    /// It refuses writes.
    pub is_replica: bool,
    /// It refuses a script's first write with these words.
    pub refuses_writes: Option<&'static str>,
    /// Everybody must say it first.
    pub password: Option<String>,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            version: "7.0.15",
            run_id: "a".repeat(40),
            replication_id: "b".repeat(40),
            is_replica: false,
            refuses_writes: None,
            password: None,
        }
    }
}

/// One client.
struct Client {
    number: u32,
    scanner: Scanner,
    is_resp3: bool,
    is_known: bool,
    channels: BTreeSet<Vec<u8>>,
    /// What leaves, in order; a piece waits for those before it.
    leaving: VecDeque<(Mono, Piece)>,
    is_closing: bool,
}

/// What a server did, for those who check it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// A field of a hash was set.
    Set(FieldSet),
    /// A script ran to its end, with these keys and arguments; it may have refused.
    Ran {
        /// Its name.
        sha1: String,
        /// KEYS and ARGV.
        words: Vec<Vec<u8>>,
        /// What it answered.
        reply: Reply,
    },
}

/// See the module.
pub struct RedisModel {
    /// Who it is; a test changes it between turns.
    pub identity: Identity,
    /// Everything stored.
    pub keys: Keys,
    /// Its clock is so much ahead of everybody's.
    pub clock_ahead_ms: i64,
    /// Replicas that have everything: what WAIT counts.
    pub replicas: u32,
    /// Nothing that is published reaches anybody.
    pub is_mute: bool,
    /// What was done since a checker last took it.
    pub done: Vec<Done>,
    engine: Engine,
    conduct: Box<dyn Conduct>,
    clients: BTreeMap<ConnId, Client>,
    accepted: u32,
    replies: u64,
}

impl RedisModel {
    /// An empty server.
    pub fn new(identity: Identity, conduct: Box<dyn Conduct>) -> Self {
        Self {
            identity,
            keys: Keys::default(),
            clock_ahead_ms: 0,
            replicas: 0,
            is_mute: false,
            done: Vec::new(),
            engine: Engine::default(),
            conduct,
            clients: BTreeMap::new(),
            accepted: 0,
            replies: 0,
        }
    }

    /// The process ends and another begins: no script is loaded, every connection closes. What is stored stays.
    pub fn restart(&mut self, identity: Identity) {
        self.identity = identity;
        self.engine.flush();
        self.drop_clients();
    }

    /// Closes every connection at the next turn.
    pub fn drop_clients(&mut self) {
        for client in self.clients.values_mut() {
            client.leaving.clear();
            client.leaving.push_back((Mono(0), Piece::Close));
        }
    }

    /// Carries out a command for an operator who sits at the machine; `wall_ms`: the server's clock.
    pub fn operate(&mut self, wall_ms: u64, words: &[&[u8]]) -> Reply {
        let mut published = Vec::new();
        let reply = self.carry_out(wall_ms, words, &mut published);
        self.deliver(Now::default(), &published); // due at once: the next turn lets it go
        reply
    }

    fn received(&mut self, now: Now, conn: ConnId, input: &mut Input<'_>) {
        loop {
            let Some(client) = self.clients.get_mut(&conn) else {
                return;
            };
            if client.is_closing {
                input.consume(input.bytes().len());
                return;
            }
            let frame = match client.scanner.scan(input.bytes()) {
                Scan::NeedMore => return,
                Scan::Done { bytes } => &input.bytes()[..bytes],
                Scan::Reject(_) => {
                    let words = b"-ERR Protocol error\r\n".to_vec();
                    client.leaving.push_back((now.mono, Piece::Bytes(words)));
                    client.leaving.push_back((now.mono, Piece::Close));
                    client.is_closing = true;
                    continue;
                }
            };
            let words = words(frame);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            self.command(now, conn, &words);
            input.consume(frame.len());
        }
    }

    fn command(&mut self, now: Now, conn: ConnId, words: &[&[u8]]) {
        let Some(number) = self.clients.get(&conn).map(|client| client.number) else {
            return;
        };
        let mut leaves_at = now;
        if let [b"WAIT", wanted, timeout_ms] = words {
            leaves_at.mono = now.mono.plus_ms(self.wait_ms(wanted, timeout_ms));
        }
        let (answer, closes) = match self.conduct.fate(now, number, words) {
            Fate::Serve => (Some(self.served(now, conn, words)), false),
            Fate::ServeAfter(ms) => {
                leaves_at.mono = leaves_at.mono.plus_ms(ms);
                (Some(self.served(now, conn, words)), false)
            }
            Fate::ServeThenClose => {
                self.served(now, conn, words);
                (None, true)
            }
            Fate::Say(bytes) => (Some(bytes), false),
            Fate::SayThenClose(bytes) => (Some(bytes), true),
            Fate::Ignore => (None, false),
        };
        let pieces = answer.map(|answer| {
            self.replies += 1;
            self.conduct.pieces(leaves_at, self.replies - 1, answer)
        });
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        client.leaving.extend(pieces.into_iter().flatten());
        if closes {
            client.leaving.push_back((now.mono, Piece::Close));
            client.is_closing = true;
        }
    }

    fn served(&mut self, now: Now, conn: ConnId, words: &[&[u8]]) -> Vec<u8> {
        let mut published = Vec::new();
        let reply = self.serve(now, conn, words, &mut published);
        let is_resp3 = self
            .clients
            .get(&conn)
            .is_some_and(|client| client.is_resp3);
        let mut bytes = Vec::new();
        reply.write(is_resp3, &mut bytes);
        self.deliver(now, &published);
        bytes
    }

    /// Messages to subscribers.
    fn deliver(&mut self, now: Now, published: &[Published]) {
        let heard = if self.is_mute { &[] } else { published };
        for message in heard {
            for client in self.clients.values_mut() {
                if client.channels.contains(&message.channel) {
                    let parts = [
                        b"message".to_vec(),
                        message.channel.clone(),
                        message.text.clone(),
                    ];
                    let mut bytes = Vec::new();
                    Reply::Push(parts.map(Reply::Bulk).to_vec()).write(client.is_resp3, &mut bytes);
                    client.leaving.push_back((now.mono, Piece::Bytes(bytes)));
                }
            }
        }
    }

    fn serve(
        &mut self,
        now: Now,
        conn: ConnId,
        words: &[&[u8]],
        published: &mut Vec<Published>,
    ) -> Reply {
        let Some((name, args)) = words.split_first() else {
            return Reply::err("empty command");
        };
        let name = name.to_ascii_uppercase();
        let is_known = self
            .clients
            .get(&conn)
            .is_some_and(|client| client.is_known);
        if !is_known && !matches!(name.as_slice(), b"HELLO" | b"AUTH") {
            return Reply::Error("NOAUTH Authentication required.".to_string());
        }
        match (name.as_slice(), args) {
            (b"HELLO", args) => self.hello(conn, args),
            (b"AUTH", [.., password]) => self.auth(conn, password),
            (b"SUBSCRIBE", channels) => self.subscribe(conn, channels),
            _ => {
                let wall_ms = now.wall.0.saturating_add_signed(self.clock_ahead_ms);
                self.carry_out(wall_ms, words, published)
            }
        }
    }

    /// What needs no connection.
    fn carry_out(
        &mut self,
        wall_ms: u64,
        words: &[&[u8]],
        published: &mut Vec<Published>,
    ) -> Reply {
        let Some((name, args)) = words.split_first() else {
            return Reply::err("empty command");
        };
        let name = name.to_ascii_uppercase();
        match (name.as_slice(), args) {
            (b"CLIENT" | b"SELECT" | b"ASKING", _) => Reply::ok(),
            (b"WAIT", [_, _]) => Reply::Integer(self.replicas.into()),
            (b"INFO", [section]) => self.info(section),
            (b"SCRIPT", [verb, source]) if verb.eq_ignore_ascii_case(b"LOAD") => self.load(source),
            (b"SCRIPT", [verb, ..]) if verb.eq_ignore_ascii_case(b"FLUSH") => {
                self.engine.flush();
                Reply::ok()
            }
            (b"EVALSHA", [sha1, count, rest @ ..]) => {
                self.evalsha(wall_ms, sha1, count, rest, published)
            }
            _ if self.identity.is_replica && commands::is_write(&name) => read_only(),
            _ => {
                let mut writes = Vec::new();
                let mut scene = Scene {
                    keys: &mut self.keys,
                    now_us: wall_ms * 1000,
                    published,
                    writes: &mut writes,
                };
                let reply = commands::run(&mut scene, &name, args);
                self.done.extend(writes.into_iter().map(Done::Set));
                reply
            }
        }
    }

    /// How long a WAIT waits: not at all where enough replicas have everything, and else in vain.
    fn wait_ms(&self, wanted: &[u8], timeout_ms: &[u8]) -> u64 {
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
        match number(wanted) {
            Some(wanted) if wanted <= u64::from(self.replicas) => 0,
            _ => number(timeout_ms).unwrap_or(0),
        }
    }

    fn load(&mut self, source: &[u8]) -> Reply {
        let sha1 = sha1_hex(source);
        match self.engine.load(sha1.clone(), source) {
            Ok(()) => Reply::bulk(sha1),
            Err(reply) => reply,
        }
    }

    fn evalsha(
        &mut self,
        wall_ms: u64,
        sha1: &[u8],
        count: &[u8],
        rest: &[&[u8]],
        published: &mut Vec<Published>,
    ) -> Reply {
        let count = std::str::from_utf8(count)
            .ok()
            .and_then(|text| text.parse().ok());
        let Some((keys, args)) = count.and_then(|count: usize| rest.split_at_checked(count)) else {
            return Reply::err("Number of keys can't be greater than number of args");
        };
        let permit = Permit {
            now_us: wall_ms * 1000,
            refuses_writes: if self.identity.is_replica {
                Some("READONLY You can't write against a read only replica.")
            } else {
                self.identity.refuses_writes
            },
        };
        let sha1 = String::from_utf8_lossy(sha1).to_lowercase();
        let mut writes = Vec::new();
        let trail = Trail {
            published,
            writes: &mut writes,
        };
        let reply = self
            .engine
            .run(&sha1, &mut self.keys, trail, keys, args, permit);
        self.done.extend(writes.into_iter().map(Done::Set));
        if !matches!(reply, Reply::Error(_)) {
            let words = rest.iter().map(|word| word.to_vec()).collect();
            let reply = reply.clone();
            self.done.push(Done::Ran { sha1, words, reply });
        }
        reply
    }

    /// Lets go what is due, in order per client.
    fn let_go(&mut self, now: Now, fx: &mut Effects) {
        for (conn, client) in &mut self.clients {
            while let Some((due, _)) = client.leaving.front() {
                if *due > now.mono {
                    break;
                }
                match client.leaving.pop_front() {
                    Some((_, Piece::Bytes(bytes))) => fx.outbox(*conn).extend_from_slice(&bytes),
                    Some((_, Piece::Close)) => {
                        client.is_closing = true;
                        client.leaving.clear();
                        fx.finish(*conn);
                    }
                    None => {}
                }
            }
        }
    }
}

impl Handler for RedisModel {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Accepted { conn, .. } => {
                let client = Client {
                    number: self.accepted,
                    scanner: Scanner::new(),
                    is_resp3: false,
                    is_known: self.identity.password.is_none(),
                    channels: BTreeSet::new(),
                    leaving: VecDeque::new(),
                    is_closing: false,
                };
                self.accepted += 1;
                self.clients.insert(conn, client);
            }
            Event::Received { conn, mut input } => {
                self.received(now, conn, &mut input);
                if input.ended() {
                    fx.close(conn);
                }
            }
            Event::Closed { conn, .. } => {
                self.clients.remove(&conn);
            }
            Event::Drain => fx.stop(),
            Event::Connected { .. }
            | Event::ConnectFailed { .. }
            | Event::Sent { .. }
            | Event::Mail(_)
            | Event::Tick => {}
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        self.let_go(now, fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        let firsts = self
            .clients
            .values()
            .filter_map(|client| client.leaving.front());
        firsts.map(|(due, _)| *due).min()
    }
}

fn read_only() -> Reply {
    Reply::Error("READONLY You can't write against a read only replica.".to_string())
}

/// The words of a command: an array of bulk strings.
fn words(frame: &[u8]) -> Vec<Vec<u8>> {
    let Value::Array(items) = resp::read(frame) else {
        return Vec::new();
    };
    items
        .map(|item| match item {
            Value::Bulk(word) => word.to_vec(),
            _ => Vec::new(),
        })
        .collect()
}

/// The name of a script.
pub fn sha1_hex(source: &[u8]) -> String {
    Sha1::digest(source)
        .iter()
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}"); // a String takes everything
            hex
        })
}
