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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Op;
    use crate::shard::conns::Timeouts;
    use crate::time::{Mono, Now, WallMs};
    use core::net::{IpAddr, Ipv4Addr};

    const CONNS_MAX: usize = 4;

    struct Bench {
        conns: Conns,
        paused: Paused,
        fx: Effects,
        generation: u32,
    }

    impl Bench {
        fn new() -> Self {
            let timeouts = Timeouts {
                head_ms: 5_000,
                body_ms: 5_000,
                idle_ms: 5_000,
                write_ms: 5_000,
                linger_ms: 5_000,
            };
            Self {
                conns: Conns::new(Mono(0), CONNS_MAX, timeouts),
                paused: Paused::new(CONNS_MAX),
                fx: Effects::new(CONNS_MAX),
                generation: 0,
            }
        }

        /// A connection that has read what it could and is paused.
        fn paused(&mut self, slot: u32) -> ConnId {
            self.generation += 1;
            let id = ConnId {
                slot,
                generation: self.generation,
            };
            let now = Now {
                mono: Mono(0),
                wall: WallMs(0),
            };
            let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
            self.conns.open(now, id, client, Phase::Open);
            self.fx.open_conn(id);
            self.paused.pause(&mut self.conns, id, &mut self.fx);
            id
        }

        /// Who reads again after a turn's end.
        fn resumed(&mut self, replies: &Replies) -> Vec<ConnId> {
            self.paused.resume(&mut self.conns, replies, &mut self.fx);
            let mut ops = Vec::new();
            self.fx.take_ops(&mut ops);
            let reads = |op| match op {
                Op::Receive(id, true) => Some(id),
                _ => None,
            };
            ops.into_iter().filter_map(reads).collect()
        }
    }

    #[test]
    fn who_wants_a_place_gets_it_in_turn_and_who_waits_for_itself_is_not_looked_at() {
        let (full, roomy) = (Replies::new(0), Replies::new(1));
        let mut bench = Bench::new();
        let ids = [2, 0, 1].map(|slot| bench.paused(slot));
        if let Some(conn) = bench.conns.get_mut(ids[1]) {
            conn.next_in = 1; // it waits for a reply of its own
        }
        assert_eq!(bench.resumed(&full), []);
        assert_eq!(bench.paused.starved.len(), 2);
        assert_eq!(bench.resumed(&roomy), [ids[0], ids[2]]);
        assert_eq!(bench.resumed(&roomy), []);
        if let Some(conn) = bench.conns.get_mut(ids[1]) {
            conn.next_out = 1;
        }
        assert_eq!(bench.resumed(&roomy), [], "nobody said that it happened");
        bench.paused.stir(&mut bench.conns, ids[1]);
        bench.paused.stir(&mut bench.conns, ids[1]);
        assert_eq!(bench.resumed(&roomy), [ids[1]]);
    }

    #[test]
    fn the_queue_for_places_is_bounded_though_clients_come_and_go() {
        let full = Replies::new(0);
        let mut bench = Bench::new();
        let mut last = bench.paused(0);
        for _ in 0..100 {
            assert_eq!(bench.resumed(&full), []);
            bench.conns.close(last);
            last = bench.paused(0);
        }
        assert_eq!(bench.resumed(&full), []);
        assert!(bench.paused.starved.len() <= CONNS_MAX);
        assert_eq!(bench.resumed(&Replies::new(1)), [last]);
    }
}
