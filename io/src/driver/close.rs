//! Ending: our side (Finish), both sides (Close), and the last event of a conn.

use super::Driver;
use super::backend::Backend;
use super::conns::{Fin, State};
use std::net::Shutdown;
use weir_core::port::{CloseCause, ConnId, Event};

impl<B: Backend> Driver<B> {
    /// Closes our sending side once everything given to the outbox is with the kernel.
    pub(super) fn finish(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_open(id)
            && conn.fin == Fin::No
        {
            conn.fin = Fin::Wanted;
            self.finish_if_sent(id);
        }
    }

    /// Sends the FIN that is wanted when nothing is left to send.
    pub(super) fn finish_if_sent(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_open(id)
            && conn.fin == Fin::Wanted
            && !conn.sending
            && self.fx.unsent_bytes(id) == 0
        {
            conn.fin = Fin::Sent;
            conn.operations += u8::from(self.backend.shutdown(id, Shutdown::Write));
            self.close_if_both_ended(id);
        }
    }

    /// After both ends nothing can follow.
    pub(super) fn close_if_both_ended(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_open(id)
            && conn.fin == Fin::Sent
            && conn.end_shown
        {
            self.close(id, CloseCause::Local);
        }
    }

    /// Starts closing: the shutdown makes every operation under way end by itself; the last one brings `Closed`.
    pub(super) fn close(&mut self, id: ConnId, cause: CloseCause) {
        if let Some(conn) = self.conns.get_open(id) {
            conn.state = State::Closing(cause);
            if conn.operations == 0 {
                self.lists.closed.push(id);
            } else {
                conn.operations += u8::from(self.backend.shutdown(id, Shutdown::Both));
            }
        }
    }

    /// Books the last completion of one operation of `id`.
    pub(super) fn operation_ended(&mut self, id: ConnId) {
        let conn = self.conns.at(id);
        conn.operations -= 1;
        if conn.operations == 0 && matches!(conn.state, State::Closing(_)) {
            self.lists.closed.push(id);
        }
    }

    /// Frees the slot and shows the conn's last event.
    pub(super) fn show_closed(&mut self, id: ConnId) {
        let State::Closing(cause) = self.conns.at(id).state else {
            unreachable!("only a conn that closes is in the list, once")
        };
        self.fx.forget_conn(id);
        self.backend.release(id);
        self.conns.release(id);
        self.handler
            .on_event(self.now, Event::Closed { conn: id, cause }, &mut self.fx);
    }
}
