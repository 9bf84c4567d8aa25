//! The network between the nodes of a private cluster, and between weir and them: a proxy in front of each port, which
//! can cut one pair of nodes while clients still come through.
//!
//! Each node's own connections have a source address of their own in 127/8 (`bind-source-addr`), so that a proxy knows
//! who calls. A cut path is silent, as a broken network is: bytes are taken and kept, nobody is told. When it is mended,
//! what was kept arrives, or the connection ends, as TCP does after a short and after a long cut.

use super::super::{Result, TortureError};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes that a connection carries at a time.
const PIECE_BYTES: usize = 16 * 1024;
/// First of the source addresses, 127.0.7.1: one for each node.
const SOURCE_NET: [u8; 3] = [127, 0, 7];

/// The source address of a node's own connections.
pub fn source_of(node: usize) -> Ipv4Addr {
    let [a, b, c] = SOURCE_NET;
    Ipv4Addr::new(a, b, c, node as u8 + 1)
}

/// The node that calls from `from`; `None`: a client.
fn caller(from: SocketAddr) -> Option<usize> {
    match from.ip() {
        IpAddr::V4(ip) if ip.octets()[..3] == SOURCE_NET => {
            usize::from(ip.octets()[3]).checked_sub(1)
        }
        _ => None,
    }
}

/// A pair of nodes, the smaller first.
type Pair = (usize, usize);

fn pair(a: usize, b: usize) -> Pair {
    (a.min(b), a.max(b))
}

#[derive(Debug, Default)]
struct Cuts {
    cut: BTreeSet<Pair>,
    /// Grows when a cut is mended so that its connections end.
    ended: u64,
    is_over: bool,
}

/// Which pairs hear each other.
#[derive(Debug, Default)]
struct Gate {
    cuts: Mutex<Cuts>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Cuts> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `path` is cut; false when the connection has ended meanwhile.
    fn pass(&self, path: Option<Pair>) -> bool {
        let mut cuts = self.lock();
        let Some(path) = path else {
            return !cuts.is_over;
        };
        let before = cuts.ended;
        let mut has_waited = false;
        while cuts.cut.contains(&path) && !cuts.is_over {
            has_waited = true;
            cuts = self
                .changed
                .wait(cuts)
                .unwrap_or_else(PoisonError::into_inner);
        }
        !(cuts.is_over || has_waited && cuts.ended != before)
    }
}

/// All proxies of one cluster.
#[derive(Debug, Default)]
pub struct Wire {
    gate: Arc<Gate>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    doors: Mutex<Vec<Door>>,
}

/// One listening port.
#[derive(Debug)]
struct Door {
    at: SocketAddr,
    is_closed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Wire {
    /// Listens for `port` of the node `to`; where.
    ///
    /// # Errors
    /// No port, no thread.
    pub fn front(&self, to: usize, port: u16) -> Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(TortureError::of)?;
        let at = listener.local_addr().map_err(TortureError::of)?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let (gate, open) = (Arc::clone(&self.gate), Arc::clone(&self.open));
        let closed = Arc::clone(&is_closed);
        let accept = move || {
            for stream in listener.incoming() {
                if closed.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(stream) = stream {
                    carry(stream, to, port, &gate, &open);
                }
            }
        };
        let thread = spawn(accept)?;
        lock(&self.doors).push(Door {
            at,
            is_closed,
            thread,
        });
        Ok(at.port())
    }

    /// From here on `a` and `b` hear nothing of each other.
    pub fn cut(&self, a: usize, b: usize) {
        self.gate.lock().cut.insert(pair(a, b));
    }

    /// Mends every cut. `keeps`: what was on its way arrives; otherwise connections that carried something end.
    pub fn mend(&self, keeps: bool) {
        let mut cuts = self.gate.lock();
        cuts.cut.clear();
        cuts.ended += u64::from(!keeps);
        drop(cuts);
        self.gate.changed.notify_all();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.gate.lock().is_over = true;
        self.gate.changed.notify_all();
        for door in lock(&self.doors).drain(..) {
            door.is_closed.store(true, Ordering::Release);
            let _ = TcpStream::connect(door.at); // it waits for one
            let _ = door.thread.join();
        }
        for stream in lock(&self.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new()
        .name("weir-wire".to_owned())
        .stack_size(128 * 1024);
    thread.spawn(run).map_err(TortureError::of)
}

/// Carries one connection in both directions until one side ends it.
fn carry(
    from: TcpStream,
    to: usize,
    port: u16,
    gate: &Arc<Gate>,
    open: &Arc<Mutex<Vec<TcpStream>>>,
) {
    let Ok(peer) = from.peer_addr() else {
        return;
    };
    let path = caller(peer).map(|node| pair(node, to));
    let (gate, open) = (Arc::clone(gate), Arc::clone(open));
    let whole = move || -> Option<()> {
        if !gate.pass(path) {
            return None;
        }
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        let streams = [from, server];
        for stream in &streams {
            stream.set_nodelay(true).ok()?;
            let mut open = lock(&open);
            open.retain(|stream| stream.peer_addr().is_ok());
            open.push(stream.try_clone().ok()?);
        }
        let [from, server] = streams;
        let (mut there, mut back) = (
            (from.try_clone().ok()?, server.try_clone().ok()?),
            (server, from),
        );
        let gate_back = Arc::clone(&gate);
        spawn(move || pump(&mut back.0, &mut back.1, path, &gate_back)).ok()?;
        pump(&mut there.0, &mut there.1, path, &gate);
        Some(())
    };
    // A connection that cannot be carried ends, as one to a node that has no room for it.
    let _ = spawn(move || {
        whole();
    });
}

fn pump(from: &mut TcpStream, to: &mut TcpStream, path: Option<Pair>, gate: &Gate) {
    let mut piece = [0; PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if !gate.pass(path) || to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    // Both ways: half a connection is of no use to Redis, and its other half's thread must end, too.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it hears.
    fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                    let _ = std::io::copy(&mut from, &mut to);
                });
            }
        });
        port
    }

    fn heard(stream: &mut TcpStream) -> Option<u8> {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => Some(byte[0]),
            _ => None,
        }
    }

    #[test]
    fn callers_are_told_apart_by_their_source() {
        let from = |ip: Ipv4Addr| caller((ip, 1).into());
        assert_eq!(from(source_of(0)), Some(0));
        assert_eq!(from(source_of(5)), Some(5));
        assert_eq!(from(Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn a_cut_path_is_silent_to_its_nodes_and_open_to_clients() {
        let wire = Wire::default();
        let port = wire.front(0, echo()).unwrap();
        let socket = |node: usize| {
            // socket2: the standard library's connect has no source address.
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket
                .bind(&SocketAddr::from((source_of(node), 0)).into())
                .unwrap();
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            socket.connect(&to.into()).unwrap();
            TcpStream::from(socket)
        };
        let (mut node, mut other) = (socket(3), socket(4));
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let say = |stream: &mut TcpStream, byte: u8| stream.write_all(&[byte]).unwrap();
        say(&mut node, 1);
        assert_eq!(heard(&mut node), Some(1));
        wire.cut(3, 0);
        say(&mut node, 2);
        say(&mut client, 3);
        say(&mut other, 4);
        assert_eq!((heard(&mut client), heard(&mut other)), (Some(3), Some(4)));
        node.set_nonblocking(true).unwrap();
        assert_eq!(heard(&mut node), None);
        node.set_nonblocking(false).unwrap();
        wire.mend(true);
        assert_eq!(heard(&mut node), Some(2), "what was on its way arrives");
        wire.cut(0, 3);
        say(&mut node, 5);
        // The byte has reached the gate once nobody is left who could carry it further.
        say(&mut client, 6);
        assert_eq!(heard(&mut client), Some(6));
        wire.mend(false);
        drop(wire);
        assert_eq!(heard(&mut node), None, "it is lost, or the wire is gone");
        drop(other);
    }
}
