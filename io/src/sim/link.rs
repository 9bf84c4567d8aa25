//! A simulated TCP connection: two ends, a pipe each way. Plain state; the rules are in `net`.
//!
//! A byte moves unsent → wire → kept: taken from a handler's outbox, on the way, arrived and not consumed.

use super::queue::EndRef;
use std::net::SocketAddr;
use weir_core::port::{CloseCause, ConnId, ConnectToken};

/// Bytes in order: appended at the end, taken from the front, the buffer kept.
#[derive(Debug, Default)]
pub(super) struct ByteQueue {
    buffer: Vec<u8>,
    head: usize,
}

/// A queue moves its bytes to the front once so many before them are used up: moving costs less than it saves.
const COMPACT_BYTES: usize = 4096;

impl ByteQueue {
    pub fn len(&self) -> usize {
        self.buffer.len() - self.head
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.head..]
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Forgets the first `bytes` bytes.
    pub fn consume(&mut self, bytes: usize) {
        self.head += bytes;
        if self.head == self.buffer.len() {
            self.clear();
        } else if self.head > COMPACT_BYTES && self.head * 2 > self.buffer.len() {
            self.buffer.drain(..self.head);
            self.head = 0;
        }
    }

    /// Moves the first `bytes` bytes to the end of `to`.
    pub fn move_to(&mut self, to: &mut Self, bytes: usize) {
        to.push(&self.bytes()[..bytes]);
        self.consume(bytes);
    }

    pub fn clear(&mut self) {
        self.buffer.clear();
        self.head = 0;
    }
}

/// Where an end stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndState {
    /// Nobody holds it: not there yet, or its part was told `Closed`, or its part crashed.
    Gone,
    /// The connecting end waits for the answer.
    Dialing,
    /// The listening end waits to be accepted; it has no conn.
    Backlog,
    /// A conn of its part.
    Open,
    /// Closed for a cause that its part has not been told yet.
    Closed(CloseCause),
}

/// How a part is told of its new conn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Announce {
    Accepted(SocketAddr),
    Connected(ConnectToken),
}

/// One end of a link, as its part's driver sees it.
#[derive(Debug)]
pub(super) struct End {
    pub part: u32,
    pub conn: ConnId,
    pub state: EndState,
    pub announce: Option<Announce>,
    pub receive_on: bool,
    /// The part has an entry for this end among its news.
    pub in_news: bool,
    /// There is something to show in a `Received`.
    pub fresh: bool,
    /// There is a `Sent` to tell.
    pub sent: bool,
    /// Bytes put on the wire that `Effects` still counts as in flight.
    pub taken_bytes: usize,
}

/// One direction, from the end of the same index to its peer.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    pub unsent: ByteQueue,
    pub wire: ByteQueue,
    pub kept: ByteQueue,
    /// Nothing that leaves later arrives before this.
    pub last_arrival_ns: u64,
    /// The sender will send no more than what is unsent.
    pub finish: bool,
    pub fin_left: bool,
    pub fin_arrived: bool,
    pub fin_shown: bool,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub generation: u32,
    pub to: SocketAddr,
    pub from: SocketAddr,
    pub token: ConnectToken,
    pub ends: [End; 2],
    pub pipes: [Pipe; 2],
    /// The network reset it: nothing that is sent from then on arrives, or a reader would see a gap.
    pub broken: bool,
}

impl End {
    fn new() -> Self {
        Self {
            part: 0,
            conn: ConnId {
                slot: 0,
                generation: 0,
            },
            state: EndState::Gone,
            announce: None,
            receive_on: true,
            in_news: false,
            fresh: false,
            sent: false,
            taken_bytes: 0,
        }
    }
}

impl Pipe {
    /// Ready for another link; buffers are kept.
    fn reset(&mut self) {
        self.unsent.clear();
        self.wire.clear();
        self.kept.clear();
        self.last_arrival_ns = 0;
        self.finish = false;
        self.fin_left = false;
        self.fin_arrived = false;
        self.fin_shown = false;
    }
}

/// All links; a freed one is used again under the next generation.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: Vec<Link>,
    free: Vec<u32>,
}

/// Who connects where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialer {
    pub part: u32,
    pub conn: ConnId,
    pub token: ConnectToken,
    pub to: SocketAddr,
    pub from: SocketAddr,
}

impl Links {
    /// A new link whose first end dials. Returns that end.
    pub fn open(&mut self, dialer: Dialer) -> EndRef {
        let index = self.free.pop().unwrap_or_else(|| {
            self.links.push(Link {
                generation: 0,
                to: dialer.to,
                from: dialer.from,
                token: dialer.token,
                ends: [End::new(), End::new()],
                pipes: [Pipe::default(), Pipe::default()],
                broken: false,
            });
            (self.links.len() - 1) as u32
        });
        let link = &mut self.links[index as usize];
        link.generation = link.generation.wrapping_add(1);
        link.to = dialer.to;
        link.from = dialer.from;
        link.token = dialer.token;
        link.broken = false;
        link.ends = [End::new(), End::new()];
        link.ends[0].part = dialer.part;
        link.ends[0].conn = dialer.conn;
        link.ends[0].state = EndState::Dialing;
        for pipe in &mut link.pipes {
            pipe.reset();
        }
        EndRef {
            link: index,
            generation: link.generation,
            side: 0,
        }
    }

    /// The link of this end, unless it is over.
    pub fn get_mut(&mut self, end: EndRef) -> Option<&mut Link> {
        let link = &mut self.links[end.link as usize];
        (link.generation == end.generation).then_some(link)
    }

    /// The link of this end, unless it is over.
    pub fn get(&self, end: EndRef) -> Option<&Link> {
        let link = &self.links[end.link as usize];
        (link.generation == end.generation).then_some(link)
    }

    /// True while the connecting end waits for its answer.
    pub fn is_dialing(&self, end: EndRef) -> bool {
        self.get(end)
            .is_some_and(|link| link.ends[0].state == EndState::Dialing)
    }

    /// Frees the link when neither end is held any more.
    pub fn free_if_over(&mut self, end: EndRef) {
        let Some(link) = self.get_mut(end) else {
            return;
        };
        if link.ends.iter().all(|end| end.state == EndState::Gone) {
            link.generation = link.generation.wrapping_add(1);
            self.free.push(end.link);
        }
    }
}
