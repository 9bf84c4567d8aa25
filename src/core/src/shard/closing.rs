//! The end of a connection: the last answer, our FIN, what the peer still sends, its close.
//!
//! Called by the shard and by its door. A refusal survives until the client has read it (field bug R16): we end our side,
//! then drop what still comes, within a bound, so that no reset overtakes the answer.

use super::Shard;
use super::conns::Phase;
use super::reply::Reply;
use crate::limits::LINGER_BYTES_MAX;
use crate::port::{ConnId, Effects, Input};
use crate::time::Now;
use weir_proto::answer::Reason;

impl Shard {
    /// What comes after our FIN is dropped, within a bound, so that no reset destroys the reply (field bug R16).
    pub(super) fn drained(&mut self, id: ConnId, input: &mut Input<'_>, fx: &mut Effects) {
        let bytes = input.bytes().len();
        input.consume(bytes);
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        conn.ended |= input.ended();
        conn.drained_bytes += bytes as u64;
        if conn.drained_bytes > LINGER_BYTES_MAX || (conn.ended && fx.unsent_bytes(id) == 0) {
            fx.close(id);
        }
    }

    /// The peer will send no more: a request in parts is refused, replies that are owed still go out.
    pub(super) fn peer_ended(&mut self, now: Now, id: ConnId, fx: &mut Effects) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        if conn.phase == Phase::Closing {
            return; // its closing reply is on its way
        }
        if conn.parser.is_open() || conn.phase == Phase::Proxy {
            self.refuse_bytes(now, id, Reason::HttpSyntax, fx);
        } else if conn.outstanding() == 0 {
            self.finish(now, id, fx);
        }
    }

    /// Answers bytes that will never be a request; without a word when no room for a word is left.
    pub(super) fn refuse_bytes(&mut self, now: Now, id: ConnId, reason: Reason, fx: &mut Effects) {
        self.refuse_reply(now, id, Reply::new(reason), fx);
    }

    /// True when one more request, or answer to none, may be staged.
    pub(super) fn has_room(&self) -> bool {
        self.staged.has_room() && self.replies.has_room()
    }

    /// The same with a reply that says more than its row.
    pub(super) fn refuse_reply(&mut self, now: Now, id: ConnId, reply: Reply, fx: &mut Effects) {
        if !self.has_room() {
            self.conns.give_up(id, fx);
            return;
        }
        self.intake().refuse_bytes(now, id, reply);
    }

    /// Nothing more to say: FIN, and close when the peer has ended too.
    pub(super) fn finish(&mut self, now: Now, id: ConnId, fx: &mut Effects) {
        fx.finish(id);
        fx.receive(id, true);
        self.conns.linger(now.mono, id);
        if self.conns.get(id).is_some_and(|conn| conn.ended) && fx.unsent_bytes(id) == 0 {
            fx.close(id);
        }
    }

    pub(super) fn sent(&mut self, now: Now, id: ConnId, fx: &mut Effects) {
        self.conns.after_sent(now.mono, id);
        self.paused.stir(&mut self.conns, id);
        if self
            .conns
            .get(id)
            .is_some_and(|conn| conn.phase == Phase::Lingering && conn.ended)
        {
            fx.close(id);
        }
    }
}
