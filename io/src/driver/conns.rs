//! The table of connections: fixed slots, a free list, and what each conn is doing.

use crate::limits::{BACKLOG_KEEP_BYTES_MAX, RECV_BACKLOG_BYTES_MAX, REPLY_BACKLOG_BYTES_MAX};
use weir_core::port::{CloseCause, ConnId, ConnectToken};

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not in use.
    Free,
    /// A connect is under way; the handler does not know the conn yet.
    Connecting(ConnectToken),
    /// Shown to the handler.
    Open,
    /// Shut down; waits for its operations, then `Closed`.
    Closing(CloseCause),
}

/// Where receiving stands, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recv {
    /// No receive is with the kernel.
    Idle,
    /// A multishot receive is.
    Armed,
    /// It is, and was asked to stop.
    Stopping,
}

/// Our sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fin {
    /// Open.
    No,
    /// To be closed once everything is sent.
    Wanted,
    /// Closed.
    Sent,
}

/// One connection.
#[derive(Debug)]
pub struct Conn {
    /// Grows at each use of the slot.
    pub generation: u32,
    /// See [`State`].
    pub state: State,
    /// See [`Recv`].
    pub recv: Recv,
    /// See [`Fin`].
    pub fin: Fin,
    /// We connected it: what comes are answers of a server that the operator chose.
    pub is_ours: bool,
    /// The handler wants to see what comes.
    pub receive_on: bool,
    /// The peer will send no more.
    pub peer_ended: bool,
    /// The handler was shown that.
    pub end_shown: bool,
    /// A send is with the kernel.
    pub sending: bool,
    /// The handler added bytes while one was.
    pub behind: bool,
    /// In the list of receives to arm.
    pub arming: bool,
    /// In the list of conns whose kept bytes are to be shown.
    pub showing: bool,
    /// Operations whose last completion has not come.
    pub operations: u8,
    /// Received, shown or not, and not consumed.
    pub backlog: Vec<u8>,
    /// The send buffer while no send uses it.
    pub spare: Vec<u8>,
}

impl Conn {
    fn new() -> Self {
        Self {
            generation: 0,
            state: State::Free,
            recv: Recv::Idle,
            fin: Fin::No,
            is_ours: false,
            receive_on: true,
            peer_ended: false,
            end_shown: false,
            sending: false,
            behind: false,
            arming: false,
            showing: false,
            operations: 0,
            backlog: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// True between `Accepted` or `Connected` and the start of closing.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Bytes that its handler may leave unconsumed before receiving stops.
    pub fn backlog_bytes_max(&self) -> usize {
        if self.is_ours {
            REPLY_BACKLOG_BYTES_MAX
        } else {
            RECV_BACKLOG_BYTES_MAX
        }
    }

    /// Keeps `fresh` behind what is kept. Doubling would take twice what a hostile client makes us keep: its backlog
    /// grows by what is needed.
    pub fn keep(&mut self, fresh: &[u8]) {
        let backlog = &mut self.backlog;
        if self.is_ours {
            backlog.extend_from_slice(fresh);
            return;
        }
        if backlog.capacity() - backlog.len() < fresh.len() {
            backlog.reserve_exact(fresh.len().max(BACKLOG_KEEP_BYTES_MAX));
        }
        backlog.extend_from_slice(fresh);
    }
}

/// Empties `buffer` for its next use; a large one is given back, so that no slot stays dear after one large answer.
pub fn empty(mut buffer: Vec<u8>, keep_bytes_max: usize) -> Vec<u8> {
    if buffer.capacity() > keep_bytes_max {
        return Vec::new();
    }
    buffer.clear();
    buffer
}

/// All slots.
#[derive(Debug)]
pub struct Conns {
    slots: Box<[Conn]>,
    /// Last in, first out: a warm slot is used again first.
    free: Vec<u32>,
}

impl Conns {
    /// `conns_max` free slots; 0 is allowed.
    pub fn new(conns_max: u32) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(conns_max as usize, Conn::new);
        Self {
            slots: slots.into_boxed_slice(),
            free: (0..conns_max).rev().collect(),
        }
    }

    /// Bytes of the table.
    pub fn memory_needed(conns_max: u32) -> usize {
        conns_max as usize * (size_of::<Conn>() + size_of::<u32>())
    }

    /// True when a slot is free.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Free slots.
    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// True when no slot is in use.
    pub fn all_free(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Gives a free slot to a new conn.
    pub fn open(&mut self, state: State) -> Option<ConnId> {
        let slot = self.free.pop()?;
        let conn = &mut self.slots[slot as usize];
        debug_assert_eq!(conn.operations, 0, "a free slot has nothing under way");
        let backlog = std::mem::take(&mut conn.backlog);
        let spare = std::mem::take(&mut conn.spare);
        *conn = Conn {
            generation: conn.generation.wrapping_add(1),
            is_ours: matches!(state, State::Connecting(_)),
            state,
            backlog,
            spare,
            ..Conn::new()
        };
        Some(ConnId {
            slot,
            generation: conn.generation,
        })
    }

    /// Frees the slot of `id`; both warm buffers stay.
    pub fn release(&mut self, id: ConnId) {
        let conn = &mut self.slots[id.slot as usize];
        debug_assert_eq!(
            conn.operations, 0,
            "a slot is freed once its operations have ended"
        );
        conn.state = State::Free;
        conn.backlog = empty(std::mem::take(&mut conn.backlog), BACKLOG_KEEP_BYTES_MAX);
        self.free.push(id.slot);
    }

    /// The conn named by `id`; `None` when it is gone.
    pub fn get(&mut self, id: ConnId) -> Option<&mut Conn> {
        let conn = self.slots.get_mut(id.slot as usize)?;
        (conn.generation == id.generation && conn.state != State::Free).then_some(conn)
    }

    /// The conn named by `id` while the handler may use it.
    pub fn get_open(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.get(id).filter(|conn| conn.is_open())
    }

    /// The conn of an operation that was under way: its slot cannot have been freed.
    pub fn at(&mut self, id: ConnId) -> &mut Conn {
        let conn = &mut self.slots[id.slot as usize];
        assert_eq!(
            conn.generation, id.generation,
            "a slot outlives its operations"
        );
        conn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conn_id_is_never_used_twice_and_a_full_table_says_so() {
        let mut conns = Conns::new(1);
        let first = conns.open(State::Open).unwrap();
        assert!(conns.open(State::Open).is_none());
        conns.release(first);
        assert!(conns.all_free() && conns.get(first).is_none());
        let second = conns.open(State::Open).unwrap();
        assert_eq!(second.slot, first.slot);
        assert_ne!(second.generation, first.generation);
        assert!(conns.get(first).is_none() && conns.get_open(second).is_some());
    }
}
