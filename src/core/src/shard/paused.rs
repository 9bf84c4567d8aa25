//! Connections whose reading is paused: their own replies or the shard's places are in the way.
//!
//! Used by the shard: one that pauses, and later whatever may have made way for it (a reply, what was written), puts it in
//! the list that the end of the turn looks at; so a turn costs nothing for connections to which nothing happened. Those
//! that only want a place for one more reply wait in a queue of their own, first come, first served.

use super::conns::{Conns, Phase};
use super::replies::{Replies, may_read};
use crate::port::{ConnId, Effects};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// See the module.
#[derive(Debug)]
pub struct Paused {
    /// To be looked at when the turn ends.
    stirred: Vec<ConnId>,
    /// Nothing but a place for a reply is missing.
    starved: VecDeque<ConnId>,
    conns_max: usize,
}

impl Paused {
    /// `conns_max`: the driver's slots.
    pub fn new(conns_max: usize) -> Self {
        Self {
            stirred: Vec::with_capacity(conns_max),
            starved: VecDeque::with_capacity(conns_max),
            conns_max,
        }
    }

    /// Pauses reading on `id`.
    pub fn pause(&mut self, conns: &mut Conns, id: ConnId, fx: &mut Effects) {
        if let Some(conn) = conns.get_mut(id)
            && !conn.paused
        {
            conn.paused = true;
            fx.receive(id, false);
            self.stir(conns, id);
        }
    }

    /// Something happened on `id` that may let it read again.
    pub fn stir(&mut self, conns: &mut Conns, id: ConnId) {
        if let Some(conn) = conns.get_mut(id)
            && conn.paused
            && !conn.stirred
        {
            conn.stirred = true;
            self.stirred.push(id);
        }
    }

    /// Lets those read again that can, after the replies of this turn, which made room.
    pub fn resume(&mut self, conns: &mut Conns, replies: &Replies, fx: &mut Effects) {
        let mut stirred = core::mem::take(&mut self.stirred);
        for id in stirred.drain(..) {
            if ready(conns, id, fx) {
                self.starve(conns, id);
            } else if let Some(conn) = conns.get_mut(id) {
                conn.stirred = false; // its next reply or write stirs it again
            }
        }
        self.stirred = stirred;
        while replies.has_room()
            && let Some(id) = self.starved.pop_front()
        {
            let is_ready = ready(conns, id, fx);
            if let Some(conn) = conns.get_mut(id) {
                conn.stirred = false;
                if is_ready {
                    conn.paused = false;
                    fx.receive(id, true);
                }
            }
        }
    }

    fn starve(&mut self, conns: &Conns, id: ConnId) {
        if self.starved.len() >= self.conns_max {
            // Of those that have gone meanwhile nobody told this queue.
            self.starved.retain(|&id| conns.get(id).is_some());
        }
        self.starved.push_back(id);
    }
}

/// True when nothing of its own keeps `id` from reading.
fn ready(conns: &Conns, id: ConnId, fx: &Effects) -> bool {
    let is_idle = |conn: &super::conns::Conn| {
        conn.paused && conn.phase != Phase::Lingering && conn.outstanding() == 0
    };
    conns.get(id).is_some_and(is_idle) && may_read(conns, id, fx)
}
