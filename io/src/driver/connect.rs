//! Connecting: a slot, a socket, one operation with a deadline.

use super::Driver;
use super::backend::Backend;
use super::conns::State;
use crate::error::DriverError;
use crate::sys::socket;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use weir_core::port::{ConnId, Connect, ConnectError, Event};

/// What a peer has not acknowledged for so long is given up, and with it the connection: well below the life of a
/// tombstone (30 s), behind which nothing of ours may still arrive.
const UNACKNOWLEDGED_MS_MAX: i32 = 10_000;

/// A socket for `connect`, bound where it asks.
fn prepare(connect: &Connect) -> io::Result<OwnedFd> {
    let fd = socket::tcp_socket(connect.to)?;
    socket::no_delay(&fd)?;
    socket::user_timeout_ms(&fd, UNACKNOWLEDGED_MS_MAX)?;
    if let Some(from) = connect.from {
        if from.port() == 0 {
            socket::port_at_connect(&fd)?;
        }
        socket::bind(&fd, from)?;
    }
    Ok(fd)
}

fn name(errno: i32) -> ConnectError {
    match errno {
        libc::ECONNREFUSED | libc::ECONNRESET => ConnectError::Refused,
        libc::ECANCELED | libc::ETIMEDOUT => ConnectError::TimedOut, // cancelled: by its deadline
        libc::EMFILE
        | libc::ENFILE
        | libc::ENOBUFS
        | libc::ENOMEM
        | libc::EADDRINUSE
        | libc::EADDRNOTAVAIL
        | libc::EAGAIN => ConnectError::LocalLimit,
        other => ConnectError::Other(other),
    }
}

impl<B: Backend> Driver<B> {
    pub(super) fn connect(&mut self, connect: &Connect) -> Result<(), DriverError> {
        let mut fail = |error| self.lists.failed.push((connect.token, error));
        if connect.deadline <= self.now.mono {
            fail(ConnectError::TimedOut);
            return Ok(());
        }
        let socket = match prepare(connect) {
            Ok(fd) => TcpStream::from(fd),
            Err(error) => {
                fail(name(error.raw_os_error().unwrap_or(libc::EINVAL)));
                return Ok(());
            }
        };
        let Some(conn) = self.conns.open(State::Connecting(connect.token)) else {
            fail(ConnectError::LocalLimit);
            return Ok(());
        };
        self.conns.at(conn).operations = 1;
        self.backend
            .connect(conn, socket, connect.to, connect.deadline)?;
        Ok(())
    }

    pub(super) fn connect_completed(
        &mut self,
        id: ConnId,
        result: Result<(), i32>,
    ) -> Result<(), DriverError> {
        let conn = self.conns.at(id);
        conn.operations -= 1;
        let State::Connecting(token) = conn.state else {
            unreachable!("a conn that connects is not known to anybody who could change it")
        };
        match result {
            Ok(()) => {
                conn.state = State::Open;
                self.fx.open_conn(id);
                let event = Event::Connected { conn: id, token };
                self.handler.on_event(self.now, event, &mut self.fx);
                self.arm_receive(id)
            }
            Err(errno) => {
                self.backend.release(id);
                self.conns.release(id);
                let event = Event::ConnectFailed {
                    token,
                    error: name(errno),
                };
                self.handler.on_event(self.now, event, &mut self.fx);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::DrainSwitch;
    use crate::driver::DriverConfig;
    use crate::post::PostOffice;
    use crate::stats::DriverStats;
    use crate::uring::run;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use weir_core::mail::Addr;
    use weir_core::port::{ConnectToken, Effects, Handler};
    use weir_core::time::{Mono, Now};

    struct Caller(Connect, Sender<ConnectError>);

    impl Handler for Caller {
        fn on_start(&mut self, now: Now, fx: &mut Effects) {
            self.0.deadline = now.mono.plus_ms(50);
            fx.connect(self.0);
        }

        fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
            let Event::ConnectFailed { error, .. } = event else {
                panic!("{event:?}")
            };
            assert!(now.mono >= self.0.deadline, "given up too early");
            self.1.send(error).unwrap();
            fx.stop();
        }

        fn on_flush(&mut self, _: Now, _: &mut Effects) {}

        fn next_deadline(&self) -> Option<Mono> {
            None
        }
    }

    #[test]
    fn a_connect_that_nobody_answers_fails_at_its_deadline() {
        // With the backlog full the kernel drops further SYNs, so a connect hangs.
        let any = "127.0.0.1:0".parse().unwrap();
        let fd = socket::tcp_socket(any).unwrap();
        socket::bind(&fd, any).unwrap();
        socket::listen(&fd, 0).unwrap();
        let listener = TcpListener::from(fd);
        let to = listener.local_addr().unwrap();
        let _in_backlog = TcpStream::connect(to).unwrap();
        let connect = Connect {
            token: ConnectToken(1),
            to,
            from: None,
            deadline: Mono(0),
        };
        let post = Arc::new(PostOffice::new([Addr::Ops]).unwrap());
        let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
        let stats = Arc::new(DriverStats::default());
        let (sender, errors) = channel();
        let caller = Box::new(Caller(connect, sender));
        run(DriverConfig::new(Addr::Ops), caller, post, drain, stats).unwrap();
        assert_eq!(errors.recv(), Ok(ConnectError::TimedOut));
    }
}
