//! Accepting: paused at the cap, backing off when descriptors run out.
//!
//! An accept may bring more sockets than there are slots before it is stopped; those are parked, and opened first when
//! slots free up. To their clients that looks like waiting in the backlog.

use super::Driver;
use super::backend::Backend;
use super::conns::State;
use super::turn::Phase;
use crate::error::DriverError;
use crate::limits::{ACCEPT_RETRY_MS, PARKED_MAX};
use std::collections::VecDeque;
use weir_core::port::Event;
use weir_core::time::Mono;

/// Where the accept stands, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    Idle,
    Armed,
    Stopping,
}

/// Whether clients are let in, and who was accepted too early.
#[derive(Debug)]
pub struct Listener<S> {
    state: Accepting,
    /// The handler wants connections.
    wanted: bool,
    parked: VecDeque<S>,
    retry_due: Option<Mono>,
    /// The last accept failed for want of something: the next is one alone.
    failing: bool,
}

impl<S> Listener<S> {
    /// Wanted from the start; armed at the end of the first turn.
    pub fn new() -> Self {
        Self {
            state: Accepting::Idle,
            wanted: true,
            parked: VecDeque::new(),
            retry_due: None,
            failing: false,
        }
    }
}

/// Errors that belong to one connection, which went away while it waited; accept(2) says to treat them like "again".
fn is_of_one_client(errno: i32) -> bool {
    matches!(
        errno,
        libc::ECONNABORTED | libc::EPROTO | libc::EINTR | libc::EAGAIN
    )
}

impl<B: Backend> Driver<B> {
    pub(super) fn accept_completed(
        &mut self,
        socket: Result<B::Socket, i32>,
        more: bool,
    ) -> Result<(), DriverError> {
        let Some(listener) = &mut self.listener else {
            return Ok(());
        };
        if !more {
            listener.state = Accepting::Idle;
        }
        match socket {
            Ok(socket) => {
                listener.failing = false;
                if listener.wanted && listener.parked.is_empty() && self.conns.has_free() {
                    self.open(socket)?;
                } else if listener.parked.len() < PARKED_MAX {
                    listener.parked.push_back(socket);
                } else {
                    self.shared.stats.accept_errors.add(1);
                    self.backend.discard(socket);
                }
            }
            Err(libc::ECANCELED) => {} // we stopped it
            Err(errno) => {
                self.shared.stats.accept_errors.add(1);
                if !is_of_one_client(errno) {
                    listener.failing = true;
                    listener.retry_due = Some(self.now.mono.plus_ms(ACCEPT_RETRY_MS));
                    // Others under way would sleep on: the kernel woke one for this client.
                    return self.stop_accept();
                }
            }
        }
        if self.conns.has_free() {
            Ok(())
        } else {
            self.stop_accept()
        }
    }

    /// Shows a new client; the caller knows that a slot is free.
    fn open(&mut self, socket: B::Socket) -> Result<(), DriverError> {
        let Some(peer) = self.backend.peer(&socket) else {
            self.shared.stats.accept_errors.add(1); // reset before we looked
            self.backend.discard(socket);
            return Ok(());
        };
        let conn = self
            .conns
            .open(State::Open)
            .expect("the caller saw a free slot");
        if self.backend.open(conn, socket).is_err() {
            self.conns.release(conn);
            self.shared.stats.accept_errors.add(1); // the system has no room for one more: closed
            return Ok(());
        }
        self.fx.open_conn(conn);
        self.shared.stats.accepts.add(1);
        let event = Event::Accepted { conn, peer };
        self.handler.on_event(self.now, event, &mut self.fx);
        self.arm_receive(conn)
    }

    /// True when a parked socket can be opened now.
    pub(super) fn can_open_parked(&self) -> bool {
        self.conns.has_free()
            && self
                .listener
                .as_ref()
                .is_some_and(|listener| listener.wanted && !listener.parked.is_empty())
    }

    /// Opens parked sockets while slots are free.
    pub(super) fn open_parked(&mut self) -> Result<(), DriverError> {
        while self.can_open_parked() {
            if let Some(socket) = self
                .listener
                .as_mut()
                .and_then(|listener| listener.parked.pop_front())
            {
                self.open(socket)?;
            }
        }
        Ok(())
    }

    /// Closes the sockets that will not get a slot any more.
    pub(super) fn drop_parked(&mut self) {
        if let Some(listener) = &mut self.listener {
            for socket in listener.parked.drain(..) {
                self.backend.discard(socket);
            }
        }
    }

    /// The handler's switch; after its stop it stays off.
    pub(super) fn switch_accept(&mut self, on: bool) -> Result<(), DriverError> {
        let on = on && self.phase == Phase::Running;
        if let Some(listener) = &mut self.listener {
            listener.wanted = on;
        }
        if on { Ok(()) } else { self.stop_accept() }
    }

    /// When accepting is to be tried again after an error.
    pub(super) fn accept_retry_due(&self) -> Option<Mono> {
        self.listener
            .as_ref()
            .filter(|listener| listener.wanted)?
            .retry_due
    }

    /// Arms the accept when it is wanted, has room, and its back-off is over.
    pub(super) fn arm_accept(&mut self) -> Result<(), DriverError> {
        let Some(listener) = &mut self.listener else {
            return Ok(());
        };
        if listener.retry_due.is_some_and(|due| due <= self.now.mono) {
            listener.retry_due = None;
        }
        if listener.wanted
            && listener.retry_due.is_none()
            && listener.parked.is_empty()
            && self.conns.has_free()
        {
            let room = match listener.failing {
                true => 1,
                false => self.conns.free_count(),
            };
            match listener.state {
                Accepting::Idle => {
                    self.backend.accept(room)?;
                    listener.state = Accepting::Armed;
                }
                Accepting::Armed => self.backend.accept_goes_on(room)?,
                Accepting::Stopping => {}
            }
        }
        Ok(())
    }

    fn stop_accept(&mut self) -> Result<(), DriverError> {
        if let Some(listener) = &mut self.listener
            && listener.state == Accepting::Armed
        {
            self.backend.accept_stop()?;
            listener.state = Accepting::Stopping;
        }
        Ok(())
    }
}
