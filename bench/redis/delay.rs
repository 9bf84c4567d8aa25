//! A forwarder on this machine that holds every chunk back for a while, each way.
//!
//! One thread on weir's own driver. Invariants: bytes of a direction stay in order; a side that ends ends the other one;
//! what is held is bounded by what its clients have under way. It ends with its standard input.

use super::carry;
use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::time::Duration;
use weir_core::port::{ConnId, Connect, ConnectToken, Effects, Event, Handler};
use weir_core::time::{Mono, Now};
use weir_io::net::ListenSocket;

/// To reach the server: milliseconds.
const CONNECT_MS: u64 = 5_000;

/// Bytes, or the end, on their way to `to`.
struct Held {
    due: Mono,
    to: ConnId,
    bytes: Vec<u8>,
    is_end: bool,
}

/// See the module.
struct Delay {
    server: SocketAddr,
    delay_ns: u64,
    /// A client by the connect that was made for it.
    waiting: HashMap<ConnectToken, ConnId>,
    other_side: HashMap<ConnId, ConnId>,
    held: VecDeque<Held>,
    tokens: u64,
}

impl Delay {
    fn new(server: SocketAddr, delay_us: u64) -> Self {
        Self {
            server,
            delay_ns: delay_us * 1_000,
            waiting: HashMap::new(),
            other_side: HashMap::new(),
            held: VecDeque::new(),
            tokens: 0,
        }
    }

    fn hold(&mut self, now: Now, from: ConnId, bytes: &[u8], is_end: bool) {
        if let Some(&to) = self.other_side.get(&from) {
            self.held.push_back(Held {
                due: now.mono.plus_ns(self.delay_ns),
                to,
                bytes: bytes.to_vec(),
                is_end,
            });
        }
    }
}

impl Handler for Delay {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Accepted { conn, .. } => {
                self.tokens += 1;
                let token = ConnectToken(self.tokens);
                self.waiting.insert(token, conn);
                fx.connect(Connect {
                    token,
                    to: self.server,
                    from: None,
                    deadline: now.mono.plus_ms(CONNECT_MS),
                });
                fx.receive(conn, false); // until there is somebody to give it to
            }
            Event::Connected { conn, token } => {
                if let Some(client) = self.waiting.remove(&token) {
                    self.other_side.insert(conn, client);
                    self.other_side.insert(client, conn);
                    fx.receive(client, true);
                } else {
                    fx.close(conn);
                }
            }
            Event::ConnectFailed { token, .. } => {
                if let Some(client) = self.waiting.remove(&token) {
                    fx.close(client);
                }
            }
            Event::Received { conn, mut input } => {
                let (bytes, ended) = (input.bytes(), input.ended());
                if self.other_side.contains_key(&conn) {
                    self.hold(now, conn, bytes, ended);
                    input.consume(bytes.len());
                }
            }
            Event::Closed { conn, .. } => {
                self.waiting.retain(|_, client| *client != conn);
                self.hold(now, conn, b"", true);
                self.other_side.remove(&conn);
            }
            Event::Drain => {
                let conns = self.other_side.keys().chain(self.waiting.values());
                conns.for_each(|conn| fx.close(*conn));
                fx.stop();
            }
            Event::Sent { .. } | Event::Mail(_) | Event::Tick => {}
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        while self.held.front().is_some_and(|held| held.due <= now.mono) {
            let Some(held) = self.held.pop_front() else {
                break;
            };
            if !held.bytes.is_empty() {
                fx.outbox(held.to).extend_from_slice(&held.bytes);
            }
            if held.is_end && self.other_side.contains_key(&held.to) {
                fx.finish(held.to);
            }
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.held.front().map(|held| held.due)
    }
}

/// Prints `{"port":…}` and forwards to `server` until standard input ends, `at_most` long.
pub fn run(server: SocketAddr, delay_us: u64, at_most: Duration) -> Result<(), String> {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = ListenSocket::bind(here).map_err(|error| error.to_string())?;
    let port = socket.local_addr().port();
    let delay = Delay::new(server, delay_us);
    let (drain, thread) = carry(Box::new(delay), Some(socket))?;
    println!("{{\"port\":{port}}}");
    std::io::stdout()
        .flush()
        .map_err(|error| error.to_string())?;
    let (over, ended) = channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = over.send(());
    });
    let _ = ended.recv_timeout(at_most);
    drain.throw();
    thread
        .join()
        .map_err(|_| "the thread has panicked: see above".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use weir_core::port::Input;
    use weir_core::time::WallMs;

    const CLIENT: ConnId = ConnId {
        slot: 0,
        generation: 1,
    };
    const SERVER: ConnId = ConnId {
        slot: 1,
        generation: 1,
    };

    fn at(us: u64) -> Now {
        Now {
            mono: Mono(us * 1_000),
            wall: WallMs(0),
        }
    }

    fn receive(delay: &mut Delay, now: Now, conn: ConnId, bytes: &[u8], fx: &mut Effects) {
        let consumed = Cell::new(0);
        let input = Input::new(bytes, false, &consumed);
        delay.on_event(now, Event::Received { conn, input }, fx);
        delay.on_flush(now, fx);
        assert_eq!(consumed.get(), bytes.len());
    }

    fn told(now: Now, delay: &mut Delay, conn: ConnId, fx: &mut Effects) -> Vec<u8> {
        delay.on_event(now, Event::Tick, fx);
        delay.on_flush(now, fx);
        let mut sent = Vec::new();
        fx.take_pending(conn, &mut sent);
        sent
    }

    #[test]
    fn each_chunk_waits_its_time_in_order() {
        let mut delay = Delay::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), 2_000);
        let mut fx = Effects::new(2);
        fx.open_conn(CLIENT);
        fx.open_conn(SERVER);
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 2));
        delay.on_event(at(0), Event::Accepted { conn: CLIENT, peer }, &mut fx);
        let token = ConnectToken(1);
        delay.on_event(
            at(0),
            Event::Connected {
                conn: SERVER,
                token,
            },
            &mut fx,
        );
        receive(&mut delay, at(100), CLIENT, b"one", &mut fx);
        receive(&mut delay, at(500), CLIENT, b"two", &mut fx);
        receive(&mut delay, at(600), SERVER, b"back", &mut fx);
        assert_eq!(delay.next_deadline(), Some(at(2_100).mono));
        assert_eq!(told(at(2_099), &mut delay, SERVER, &mut fx), b"");
        assert_eq!(told(at(2_100), &mut delay, SERVER, &mut fx), b"one");
        assert_eq!(told(at(2_599), &mut delay, CLIENT, &mut fx), b"");
        assert_eq!(told(at(2_600), &mut delay, SERVER, &mut fx), b"two");
        assert_eq!(told(at(2_600), &mut delay, CLIENT, &mut fx), b"back");
        assert_eq!(delay.next_deadline(), None);
    }
}
