//! Replies leave in request order per connection (design §4): one that is ready early waits for the earlier ones.
//!
//! Used by every stage through [`Replies::give`]. A slab of fixed size holds what waits; [`Replies::has_room`] is asked
//! before a request is staged, so it never overflows. Invariant: a place is free for every request that has no reply yet,
//! for any of them may be answered before an earlier one of its connection.

use super::conns::{Conns, NO_HELD, Phase};
use super::reply::{Manner, Reply, Stationery};
use crate::port::{ConnId, Effects};
use crate::time::Mono;
use alloc::vec::Vec;
use weir_proto::http::Connection;
use weir_proto::http::response::CONTINUE;

#[derive(Clone, Copy, Debug)]
struct Held {
    seq: u32,
    next: u32,
    manner: Manner,
    reply: Reply,
}

/// See the module.
#[derive(Debug)]
pub struct Replies {
    held: Vec<Option<Held>>,
    free: Vec<u32>,
    /// Requests read and not answered yet, staged or asked about: each may need a place.
    reserved: usize,
}

impl Replies {
    /// `held_max`: replies that may wait at one time.
    pub fn new(held_max: usize) -> Self {
        Self {
            held: alloc::vec![None; held_max],
            free: (0..held_max as u32).rev().collect(),
            reserved: 0,
        }
    }

    /// True when one more request may be staged: its reply has a place to wait whatever happens.
    pub fn has_room(&self) -> bool {
        self.free.len() > self.reserved
    }

    /// Counts a request that was staged; [`Self::give`] takes it off the count.
    pub fn reserve(&mut self) {
        self.reserved += 1;
    }

    /// Requests whose reply was not given yet.
    pub fn reserved_count(&self) -> usize {
        self.reserved
    }

    /// Gives the reply of request `seq` on `conn`: writes it, and what waited for it, or lets it wait.
    pub fn give(
        &mut self,
        now: Mono,
        conns: &mut Conns,
        place: (ConnId, u32),
        answer: (&Manner, &Reply),
        stationery: &Stationery<'_>,
        fx: &mut Effects,
    ) {
        let ((id, seq), (manner, reply)) = (place, answer);
        self.reserved -= 1;
        let Some(conn) = conns.get_mut(id) else {
            return;
        }; // the client is gone; status knows the result
        if seq != conn.next_out {
            let index = self
                .free
                .pop()
                .expect("a place was kept since the request was staged");
            self.held[index as usize] = Some(Held {
                seq,
                next: conn.held,
                manner: *manner,
                reply: *reply,
            });
            conn.held = index;
            return;
        }
        let mut connection = self.emit(conns, id, (manner, reply), stationery, fx);
        while connection != Connection::Close
            && let Some(held) = self.take_next(conns, id)
        {
            connection = self.emit(conns, id, (&held.manner, &held.reply), stationery, fx);
        }
        conns.after_reply(now, id);
        if connection == Connection::Close {
            // Nothing follows a closing reply; FIN after it, then the peer's rest is drained so that no reset eats it.
            self.drop_held(conns, id);
            fx.finish(id);
            conns.linger(now, id);
            fx.receive(id, true);
        } else if let Some(conn) = conns.get_mut(id)
            && conn.outstanding() == 0
            && core::mem::take(&mut conn.continue_owed)
        {
            fx.outbox(id).extend_from_slice(CONTINUE);
        }
    }

    fn emit(
        &mut self,
        conns: &mut Conns,
        id: ConnId,
        (manner, reply): (&Manner, &Reply),
        stationery: &Stationery<'_>,
        fx: &mut Effects,
    ) -> Connection {
        if let Some(conn) = conns.get_mut(id) {
            conn.next_out = conn.next_out.wrapping_add(1);
        }
        reply.write(manner, stationery, fx.outbox(id));
        manner.connection
    }

    fn take_next(&mut self, conns: &mut Conns, id: ConnId) -> Option<Held> {
        let conn = conns.get_mut(id)?;
        let mut previous = NO_HELD;
        let mut index = conn.held;
        while index != NO_HELD {
            let held = self.held[index as usize].expect("a listed place is taken");
            if held.seq == conn.next_out {
                match previous {
                    NO_HELD => conn.held = held.next,
                    _ => {
                        self.held[previous as usize]
                            .as_mut()
                            .expect("a listed place is taken")
                            .next = held.next
                    }
                }
                self.release(index);
                return Some(held);
            }
            (previous, index) = (index, held.next);
        }
        None
    }

    fn drop_held(&mut self, conns: &mut Conns, id: ConnId) {
        let Some(conn) = conns.get_mut(id) else {
            return;
        };
        let first = core::mem::replace(&mut conn.held, NO_HELD);
        self.free_list(first);
    }

    /// Frees what a closed connection left; `first`: from [`Conns::close`].
    pub fn free_list(&mut self, first: u32) {
        let mut index = first;
        while index != NO_HELD {
            let next = self.held[index as usize]
                .expect("a listed place is taken")
                .next;
            self.release(index);
            index = next;
        }
    }

    fn release(&mut self, index: u32) {
        self.held[index as usize] = None;
        self.free.push(index);
    }

    /// Replies waiting now.
    pub fn held_count(&self) -> usize {
        self.held.len() - self.free.len()
    }
}

/// True when `conn` may read further requests.
pub fn may_read(conns: &Conns, id: ConnId, fx: &Effects) -> bool {
    conns.get(id).is_some_and(|conn| {
        matches!(conn.phase, Phase::Open | Phase::Proxy)
            && conn.outstanding() < crate::limits::PIPELINE_MAX
            && fx.unsent_bytes(id) < crate::limits::UNSENT_BYTES_MAX
    })
}
