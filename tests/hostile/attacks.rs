//! What hostile clients do, with plain non-blocking sockets from many addresses of 127.9.0.0/16.

use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// One way to be a nuisance.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    pub name: &'static str,
    /// Connections that are held open at the same time.
    pub conns: usize,
    /// What each connection does.
    pub way: Way,
    /// The status that the server must have answered it with; `None`: none at all.
    pub told: Option<&'static str>,
    /// All from one address.
    pub from_one: bool,
}

/// What a connection of an attack does, turn after turn. A turn comes every few milliseconds.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// `at_once`, then a byte of `slowly` a turn, then nothing; answers are read and an ended connection is opened again.
    Trickle {
        at_once: &'static [u8],
        slowly: &'static [u8],
    },
    /// The same request again and again, one byte a turn; answers are read.
    Bytewise { request: &'static [u8] },
    /// The same request again and again as fast as the socket takes it; answers are never read.
    NeverRead { request: &'static [u8] },
    /// The same request again and again as fast as the socket takes it; answers are read.
    Pipeline { request: &'static [u8] },
    /// Nothing.
    Idle,
    /// Connects and resets at once.
    Reset,
    /// Half a request and the end of its side; waits for the other end.
    HalfClose { bytes: &'static [u8] },
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Tally {
    /// Connections made, over all.
    pub made: u64,
    /// Most at the same time.
    pub held_max: usize,
    /// Connects that failed.
    pub refused: u64,
    /// Connections that the server ended.
    pub ended: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Answers by status line's code, as far as they were read.
    pub statuses: BTreeMap<String, u64>,
}

struct Conn {
    socket: Socket,
    at: usize,
    is_half_closed: bool,
}

/// The addresses of the attackers: as many as there are connections, 60,000 at most.
fn source(number: u64) -> SocketAddr {
    let number = number % 60_000;
    let host = Ipv4Addr::new(127, 9, (number / 250) as u8, (number % 250) as u8 + 1);
    SocketAddr::from((host, 0))
}

fn connect(target: SocketAddr, number: u64, way: Way) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Way::NeverRead { .. } = way {
        socket.set_recv_buffer_size(4_096)?;
    }
    socket.bind(&source(number).into())?;
    socket.connect_timeout(&target.into(), Duration::from_secs(5))?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Attacks `target` until `stop` says so (its sender is dropped).
pub fn run(attack: Attack, target: SocketAddr, stop: &Receiver<()>) -> Tally {
    let mut tally = Tally::default();
    let mut conns: Vec<Conn> = Vec::with_capacity(attack.conns);
    let mut turn = 0_usize;
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(Duration::from_millis(5)) {
        turn += 1;
        // Not all at once: a listen queue has its length, and the good clients their turn.
        for _ in 0..200 {
            if conns.len() >= attack.conns {
                break;
            }
            let source = match attack.from_one {
                true => 0,
                false => tally.made + tally.refused,
            };
            match connect(target, source, attack.way) {
                Ok(socket) => {
                    tally.made += 1;
                    conns.push(Conn {
                        socket,
                        at: 0,
                        is_half_closed: false,
                    });
                }
                Err(_) => {
                    tally.refused += 1;
                    break;
                }
            }
        }
        tally.held_max = tally.held_max.max(conns.len());
        if let Way::Reset = attack.way {
            for conn in conns.drain(..) {
                let _ = conn.socket.set_linger(Some(Duration::ZERO));
            }
            continue;
        }
        // Idle connections say nothing: a look once a second tells which the server has ended.
        if matches!(attack.way, Way::Idle) && !turn.is_multiple_of(200) {
            continue;
        }
        conns.retain_mut(|conn| is_alive(conn, attack.way, &mut tally));
    }
    tally
}

/// One turn of one connection; false: it is over.
fn is_alive(conn: &mut Conn, way: Way, tally: &mut Tally) -> bool {
    let alive = match way {
        Way::Trickle { at_once, slowly } => {
            let due = match conn.at.checked_sub(at_once.len()) {
                None => &at_once[conn.at..],
                Some(at) => &slowly[at.min(slowly.len())..(at + 1).min(slowly.len())],
            };
            let sent = send(conn, due, tally);
            conn.at += sent.unwrap_or(0);
            sent.is_some()
        }
        Way::Bytewise { request } => {
            let sent = send(conn, &request[conn.at..=conn.at], tally);
            conn.at = (conn.at + sent.unwrap_or(0)) % request.len();
            sent.is_some()
        }
        Way::NeverRead { request } | Way::Pipeline { request } => flood(conn, request, tally),
        Way::HalfClose { bytes } if !conn.is_half_closed => {
            conn.is_half_closed = true;
            send(conn, bytes, tally).is_some()
                && conn.socket.shutdown(std::net::Shutdown::Write).is_ok()
        }
        Way::HalfClose { .. } | Way::Idle | Way::Reset => true,
    };
    let reads = !matches!(way, Way::NeverRead { .. });
    let alive = alive && (!reads || read(conn, tally));
    tally.ended += u64::from(!alive);
    alive
}

/// How many bytes the socket took; `None`: the connection is over.
fn send(conn: &Conn, bytes: &[u8], tally: &mut Tally) -> Option<usize> {
    if bytes.is_empty() {
        return Some(0);
    }
    match (&conn.socket).write(bytes) {
        Ok(sent) => {
            tally.sent += sent as u64;
            Some(sent)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

/// Sends as much as the socket takes, up to a bound that leaves the other connections their turn.
fn flood(conn: &mut Conn, request: &[u8], tally: &mut Tally) -> bool {
    for _ in 0..64 {
        match send(conn, &request[conn.at..], tally) {
            Some(0) => return true,
            Some(sent) => conn.at = (conn.at + sent) % request.len(),
            None => return false,
        }
    }
    true
}

/// Reads what is there and counts the status lines in it; false: the server has ended the connection.
fn read(conn: &Conn, tally: &mut Tally) -> bool {
    let mut buffer = [0; 16 * 1024];
    for _ in 0..16 {
        match (&conn.socket).read(&mut buffer) {
            Ok(0) => return false,
            Ok(bytes) => count_statuses(&buffer[..bytes], tally),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
    }
    true
}

fn count_statuses(bytes: &[u8], tally: &mut Tally) {
    const LINE: &[u8] = b"HTTP/1.1 ";
    for at in 0..bytes.len().saturating_sub(LINE.len() + 3) {
        if bytes[at..].starts_with(LINE) {
            let code = String::from_utf8_lossy(&bytes[at + LINE.len()..at + LINE.len() + 3]);
            *tally.statuses.entry(code.into_owned()).or_default() += 1;
        }
    }
}
