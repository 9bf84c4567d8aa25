//! Sending: at most one send per conn with the kernel; what the handler adds meanwhile leaves in the next one.

use super::Driver;
use super::backend::{Backend, SendProgress};
use super::conns::Fin;
use crate::error::DriverError;
use weir_core::port::{CloseCause, ConnId, Event};

impl<B: Backend> Driver<B> {
    /// One write per conn that has something to say.
    pub(super) fn write_dirty(&mut self) -> Result<(), DriverError> {
        while let Some(id) = self.fx.next_dirty() {
            self.write(id)?;
        }
        while let Some(id) = self.lists.resumed.pop() {
            self.write(id)?;
        }
        Ok(())
    }

    fn write(&mut self, id: ConnId) -> Result<(), DriverError> {
        let Some(conn) = self.conns.get_open(id) else {
            return Ok(());
        };
        if conn.sending {
            conn.behind = true;
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut conn.spare);
        self.fx.take_pending(id, &mut bytes);
        if conn.fin == Fin::Sent {
            self.fx.sent(id, bytes.len()); // said after the end: nobody can hear it
            bytes.clear();
        }
        if bytes.is_empty() {
            conn.spare = bytes;
            return Ok(());
        }
        conn.sending = true;
        conn.operations += 1;
        self.backend.send(id, bytes)?;
        Ok(())
    }

    pub(super) fn send_completed(
        &mut self,
        id: ConnId,
        bytes: Result<usize, i32>,
    ) -> Result<(), DriverError> {
        let conn = self.conns.at(id);
        let open = conn.is_open();
        let taken = match bytes {
            Ok(bytes) => bytes,
            Err(libc::EINTR | libc::EAGAIN) => 0,
            Err(_) => {
                conn.sending = false;
                conn.spare = self.backend.send_over(id);
                self.operation_ended(id);
                self.close(id, CloseCause::Reset);
                return Ok(());
            }
        };
        self.fx.sent(id, taken);
        match self.backend.sent(id, taken) {
            SendProgress::Short if open => {
                self.shared.stats.sends_short.add(1);
                self.backend.send_rest(id)?; // the same operation goes on: it stays counted
            }
            SendProgress::Short => {
                conn.sending = false;
                conn.spare = self.backend.send_over(id);
                self.operation_ended(id);
            }
            SendProgress::Done(buffer) => {
                conn.sending = false;
                conn.spare = buffer;
                let behind = std::mem::take(&mut conn.behind);
                self.operation_ended(id);
                // `behind` may be stale: one write may have taken what two asked for.
                if open && self.fx.unsent_bytes(id) == 0 {
                    self.handler
                        .on_event(self.now, Event::Sent { conn: id }, &mut self.fx);
                    self.finish_if_sent(id);
                } else if open && behind {
                    self.lists.resumed.push(id);
                }
            }
        }
        Ok(())
    }
}
