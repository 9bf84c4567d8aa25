//! Receiving: a multishot receive per conn into shared buffers, and a backlog for what the handler leaves.
//!
//! A buffer goes back to the kernel at once: what is not consumed is copied to the conn's own backlog. While the
//! handler has receiving off, or the backlog is at its bound, no receive is armed; one that is armed already runs on
//! until the backlog is at its bound (a small one while receiving is off) and is then stopped
//! (IORING_ASYNC_CANCEL). That loses nothing: a receive either has completed, with its bytes in a completion, or still
//! waits for data and has taken none. Then the socket's buffer fills, its window closes, and the peer stops. The bound
//! is soft by what the kernel had already brought (`RECV_BURST_BYTES_MAX`), and larger on a conn that we connected. While no receive is armed, a reset of the
//! peer is not noticed.

use super::Driver;
use super::backend::Backend;
use super::conns::{Conn, Recv, empty};
use crate::error::DriverError;
use crate::limits::BACKLOG_KEEP_BYTES_MAX;
use std::cell::Cell;
use weir_core::port::{CloseCause, ConnId, Event, Input};

/// Removes the first `consumed` bytes.
fn drop_front(backlog: &mut Vec<u8>, consumed: usize) {
    if consumed == backlog.len() {
        *backlog = empty(std::mem::take(backlog), BACKLOG_KEEP_BYTES_MAX);
    } else {
        backlog.drain(..consumed);
    }
}

/// True when a receive should be with the kernel and is not.
fn wants_receive(conn: &Conn) -> bool {
    conn.is_open()
        && conn.recv == Recv::Idle
        && conn.receive_on
        && !conn.peer_ended
        && conn.backlog.len() < conn.backlog_bytes_max()
}

impl<B: Backend> Driver<B> {
    pub(super) fn recv_completed(
        &mut self,
        id: ConnId,
        bytes: Result<usize, i32>,
        buffer: Option<u32>,
        more: bool,
    ) -> Result<(), DriverError> {
        let open = self.conns.at(id).is_open();
        if !more {
            // First: a conn that is closed below has one operation less to end, mostly none.
            self.conns.at(id).recv = Recv::Idle;
            self.operation_ended(id);
        }
        match (bytes, buffer) {
            (Ok(bytes), Some(buffer)) if bytes > 0 => {
                if open {
                    self.show_received(id, buffer, bytes);
                }
                self.backend.buffer_back(buffer);
            }
            (result, buffer) => {
                if let Some(buffer) = buffer {
                    self.backend.buffer_back(buffer); // also when nothing was received (field bug R62)
                }
                match result {
                    Ok(_) if open => {
                        self.conns.at(id).peer_ended = true;
                        self.show_kept(id)?;
                    }
                    Ok(_) => {}
                    Err(libc::ENOBUFS) => self.shared.stats.recv_enobufs.add(1), // armed again below, when buffers are back
                    Err(libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {}
                    Err(_) => self.close(id, CloseCause::Reset),
                }
            }
        }
        self.stop_receive_if_full(id)?;
        if !more {
            self.list_for_arming(id);
        }
        Ok(())
    }

    /// Shows fresh bytes; what the handler leaves goes to the backlog.
    fn show_received(&mut self, id: ConnId, buffer: u32, bytes: usize) {
        let conn = self.conns.at(id);
        let fresh = self.backend.received(buffer, bytes);
        if !conn.receive_on {
            conn.keep(fresh);
        } else if conn.backlog.is_empty() {
            let consumed = Cell::new(0);
            let input = Input::new(fresh, false, &consumed);
            self.handler
                .on_event(self.now, Event::Received { conn: id, input }, &mut self.fx);
            conn.keep(&fresh[consumed.get()..]);
        } else {
            conn.keep(fresh);
            self.show_backlog(id);
        }
    }

    fn show_backlog(&mut self, id: ConnId) {
        let conn = self.conns.at(id);
        let consumed = Cell::new(0);
        let input = Input::new(&conn.backlog, conn.peer_ended, &consumed);
        self.handler
            .on_event(self.now, Event::Received { conn: id, input }, &mut self.fx);
        drop_front(&mut conn.backlog, consumed.get());
        conn.end_shown |= conn.peer_ended;
    }

    /// Shows kept bytes, and the peer's end if it was not shown yet.
    pub(super) fn show_kept(&mut self, id: ConnId) -> Result<(), DriverError> {
        let Some(conn) = self.conns.get_open(id) else {
            return Ok(());
        };
        conn.showing = false;
        if conn.receive_on && (!conn.backlog.is_empty() || (conn.peer_ended && !conn.end_shown)) {
            self.show_backlog(id);
            self.close_if_both_ended(id);
            self.list_for_arming(id);
        }
        Ok(())
    }

    /// The handler's switch.
    pub(super) fn switch_receive(&mut self, id: ConnId, on: bool) {
        let Some(conn) = self.conns.get_open(id) else {
            return;
        };
        conn.receive_on = on;
        let kept = !conn.backlog.is_empty() || (conn.peer_ended && !conn.end_shown);
        if on && kept && !conn.showing {
            conn.showing = true;
            self.lists.shows.push(id);
        }
        self.list_for_arming(id);
    }

    fn stop_receive_if_full(&mut self, id: ConnId) -> Result<(), DriverError> {
        let conn = self.conns.at(id);
        // A handler that wants more may wait for the rest of a request; one that does not needs none of it soon.
        let most = if conn.receive_on {
            conn.backlog_bytes_max()
        } else {
            BACKLOG_KEEP_BYTES_MAX
        };
        if conn.is_open() && conn.recv == Recv::Armed && conn.backlog.len() >= most {
            conn.recv = Recv::Stopping;
            conn.operations += 1;
            self.backend.recv_stop(id)?;
            self.shared.stats.recv_stops.add(1);
        }
        Ok(())
    }

    /// Remembers that `id` may need a receive; decided at the end of the turn, when buffers are back and the handler's
    /// commands are known.
    fn list_for_arming(&mut self, id: ConnId) {
        let conn = self.conns.at(id);
        if !conn.arming && wants_receive(conn) {
            conn.arming = true;
            self.lists.arms.push(id);
        }
    }

    pub(super) fn arm_receives(&mut self) -> Result<(), DriverError> {
        while let Some(id) = self.lists.arms.pop() {
            if let Some(conn) = self.conns.get(id) {
                conn.arming = false;
                self.arm_receive(id)?;
            }
        }
        Ok(())
    }

    /// Arms the receive of `id` if it is wanted.
    pub(super) fn arm_receive(&mut self, id: ConnId) -> Result<(), DriverError> {
        let conn = self.conns.at(id);
        if wants_receive(conn) {
            conn.recv = Recv::Armed;
            conn.operations += 1;
            self.backend.recv(id)?;
        }
        Ok(())
    }
}
