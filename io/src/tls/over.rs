//! A handler whose connections are encrypted, made of one that knows nothing of it: [`OverTls`] stands between any driver
//! and the handler.
//!
//! A connect that was asked for by `Effects::connect_tls` is made and shakes hands within the connect's deadline; only
//! then the inner handler hears `Connected`, or `ConnectFailed` with the reason. What it writes is encrypted at the end of
//! the turn, what comes is decrypted, as one contiguous [`Input`] of what it has not consumed. A record that was changed,
//! cut off or left out closes the connection: the inner handler hears `Closed`, never wrong bytes. Connections that were
//! asked for by `connect` pass as they are. Not here: listening; pausing the receipt of an encrypted connection.

use super::TlsClient;
use super::session::Session;
use std::cell::Cell;
use weir_core::port::{
    CloseCause, ConnId, Connect, ConnectError, ConnectToken, Effects, Event, Handler, Input, Op,
};
use weir_core::time::{Mono, Now};
use weir_core::tls::{TlsFault, TlsId, TlsPeer};

/// One connection of the driver.
struct Line {
    conn: ConnId,
    state: State,
    /// Of what the inner handler wrote: with us or with the driver, and not known to be with the kernel.
    in_flight_bytes: usize,
}

enum State {
    Plain,
    /// The inner handler does not know of it yet.
    Shaking {
        token: ConnectToken,
        until: Mono,
        session: Box<Session>,
    },
    Open(Box<Session>),
    /// Closed by us. `is_known`: the inner handler waits for its `Closed`.
    Over {
        is_known: bool,
    },
}

/// See the module.
pub struct OverTls<H> {
    inner: H,
    clients: Vec<(TlsId, TlsClient)>,
    /// What the inner handler wants.
    wants: Effects,
    ops: Vec<Op>,
    dials: Vec<(Connect, TlsPeer)>,
    /// Few: one per server.
    lines: Vec<Line>,
    plain: Vec<u8>,
    is_stopping: bool,
}

impl<H: Handler> OverTls<H> {
    /// `clients`: the settings that `inner` names; `conns_max`: of the driver's configuration.
    pub fn new(inner: H, clients: Vec<(TlsId, TlsClient)>, conns_max: usize) -> Self {
        Self {
            inner,
            clients,
            wants: Effects::new(conns_max),
            ops: Vec::new(),
            dials: Vec::new(),
            lines: Vec::new(),
            plain: Vec::new(),
            is_stopping: false,
        }
    }

    fn line(&mut self, conn: ConnId) -> Option<&mut Line> {
        self.lines.iter_mut().find(|line| line.conn == conn)
    }

    fn begin_line(&mut self, conn: ConnId, state: State) {
        self.lines.push(Line {
            conn,
            state,
            in_flight_bytes: 0,
        });
    }

    /// The inner handler gets a conn.
    fn connected(&mut self, now: Now, conn: ConnId, token: ConnectToken) {
        self.wants.open_conn(conn);
        let event = Event::Connected { conn, token };
        self.inner.on_event(now, event, &mut self.wants);
    }

    /// Below the handshake there is a connection now.
    fn dialed(&mut self, now: Now, conn: ConnId, token: ConnectToken, fx: &mut Effects) {
        let mut dials = self.dials.iter();
        let Some(place) = dials.position(|(connect, _)| connect.token == token) else {
            self.begin_line(conn, State::Plain);
            return self.connected(now, conn, token);
        };
        let (connect, peer) = self.dials.swap_remove(place);
        let mut clients = self.clients.iter();
        let client = clients.find(|(id, _)| *id == peer.settings);
        let (_, client) = client.expect("whoever configures a desk gives its settings here");
        let begun = match client.begin(&peer.host) {
            Ok(_) if self.is_stopping => Err(TlsFault::Ended),
            begun => begun,
        };
        match begun {
            Ok(tls) => {
                let mut session = Box::new(Session::new(tls));
                session.write_due(fx.outbox(conn));
                let until = connect.deadline;
                self.begin_line(
                    conn,
                    State::Shaking {
                        token,
                        until,
                        session,
                    },
                );
            }
            Err(fault) => {
                self.begin_line(conn, State::Over { is_known: false });
                fx.close(conn);
                self.tell_failed(now, token, fault);
            }
        }
    }

    fn tell_failed(&mut self, now: Now, token: ConnectToken, fault: TlsFault) {
        let error = ConnectError::Tls(fault);
        let event = Event::ConnectFailed { token, error };
        self.inner.on_event(now, event, &mut self.wants);
    }

    /// The connection must go. While hands are shaken that is a connect that failed; later the driver's `Closed` says it.
    fn fail(&mut self, now: Now, conn: ConnId, fault: TlsFault, fx: &mut Effects) {
        let Some(line) = self.line(conn) else {
            return;
        };
        let is_known = matches!(line.state, State::Open(_));
        match std::mem::replace(&mut line.state, State::Over { is_known }) {
            State::Shaking {
                token, mut session, ..
            } => {
                session.write_due(fx.outbox(conn)); // the alert that says why
                self.tell_failed(now, token, fault);
            }
            State::Open(mut session) => session.write_due(fx.outbox(conn)),
            State::Plain | State::Over { .. } => {}
        }
        fx.close(conn);
    }

    /// Bytes came, or the peer's end; one that has been closed by us says nothing any more.
    fn received(&mut self, now: Now, conn: ConnId, mut input: Input<'_>, fx: &mut Effects) {
        if let Some(State::Plain) = self.line(conn).map(|line| &line.state) {
            let event = Event::Received { conn, input };
            return self.inner.on_event(now, event, &mut self.wants);
        }
        while let Some(session) = self.session(conn) {
            let kept_bytes = session.plain().len();
            let taken = session.take(input.bytes());
            if session.is_due() {
                session.write_due(fx.outbox(conn));
            }
            let count = match taken {
                Ok(count) => count,
                Err(fault) => {
                    self.fail(now, conn, fault, fx);
                    break;
                }
            };
            input.consume(count);
            self.open_if_shaken(now, conn);
            let shown = self.show(now, conn, kept_bytes);
            if input.bytes().is_empty() {
                break;
            } else if count == 0 && shown == 0 {
                return; // it waits for more than may be kept
            }
        }
        input.consume(input.bytes().len());
        // An end that its sender has not signed may be another's doing: a cut (RFC 8446 §6.1).
        if input.ended()
            && let Some(session) = self.session(conn)
            && !session.has_ended()
        {
            self.fail(now, conn, TlsFault::Ended, fx);
        }
    }

    fn session(&mut self, conn: ConnId) -> Option<&mut Session> {
        match &mut self.line(conn)?.state {
            State::Shaking { session, .. } | State::Open(session) => Some(session),
            State::Plain | State::Over { .. } => None,
        }
    }

    fn open_if_shaken(&mut self, now: Now, conn: ConnId) {
        let Some(line) = self.line(conn) else {
            return;
        };
        let state = std::mem::replace(&mut line.state, State::Over { is_known: false });
        match state {
            State::Shaking { token, session, .. } if !session.is_shaking() => {
                line.state = State::Open(session);
                self.connected(now, conn, token);
            }
            state => line.state = state,
        }
    }

    /// Shows what is new beyond the first `kept_bytes`; gives how much was consumed.
    fn show(&mut self, now: Now, conn: ConnId, kept_bytes: usize) -> usize {
        let line = self.lines.iter_mut().find(|line| line.conn == conn);
        let Some(State::Open(session)) = line.map(|line| &mut line.state) else {
            return 0;
        };
        let has_fresh_end = session.has_fresh_end();
        if session.plain().len() == kept_bytes && !has_fresh_end {
            return 0;
        }
        let consumed = Cell::new(0);
        let input = Input::new(session.plain(), session.has_ended(), &consumed);
        let event = Event::Received { conn, input };
        self.inner.on_event(now, event, &mut self.wants);
        session.consume(consumed.get());
        consumed.get()
    }

    fn closed(&mut self, now: Now, conn: ConnId, cause: CloseCause) {
        self.wants.forget_conn(conn);
        let place = self.lines.iter().position(|line| line.conn == conn);
        match place.map(|place| self.lines.swap_remove(place).state) {
            Some(State::Shaking { token, .. }) => self.tell_failed(now, token, TlsFault::Ended),
            Some(State::Over { is_known: false }) | None => {}
            Some(State::Plain | State::Open(_) | State::Over { is_known: true }) => {
                let event = Event::Closed { conn, cause };
                self.inner.on_event(now, event, &mut self.wants);
            }
        }
    }

    /// What the driver has given to the kernel is with the kernel for the inner handler, too. Records are longer than
    /// what is in them, so that it hears of no byte too early.
    fn settle(&mut self, fx: &Effects) {
        for line in &mut self.lines {
            let still = line.in_flight_bytes.min(fx.unsent_bytes(line.conn));
            self.wants.sent(line.conn, line.in_flight_bytes - still);
            line.in_flight_bytes = still;
        }
    }

    fn end_late_handshakes(&mut self, now: Now, fx: &mut Effects) {
        for place in 0..self.lines.len() {
            let Line { conn, state, .. } = &self.lines[place];
            if matches!(state, State::Shaking { until, .. } if *until <= now.mono) {
                self.fail(now, *conn, TlsFault::Silent, fx);
            }
        }
    }

    /// Hands on what the inner handler wants: bytes first, so that they are with their conn before it is closed.
    fn pass_on(&mut self, fx: &mut Effects) {
        while let Some(conn) = self.wants.next_dirty() {
            self.plain.clear();
            self.wants.take_pending(conn, &mut self.plain);
            let Some(line) = self.lines.iter_mut().find(|line| line.conn == conn) else {
                continue;
            };
            line.in_flight_bytes += self.plain.len();
            match &mut line.state {
                State::Plain => fx.outbox(conn).extend_from_slice(&self.plain),
                State::Open(session) => session.write(&self.plain, fx.outbox(conn)),
                State::Shaking { .. } | State::Over { .. } => {}
            }
        }
        let mut ops = std::mem::take(&mut self.ops);
        self.wants.take_ops(&mut ops);
        for op in ops.drain(..) {
            self.pass_on_op(op, fx);
        }
        self.ops = ops;
        while let Some((connect, peer)) = self.wants.next_tls_connect() {
            self.dials.push((connect, peer));
            fx.connect(connect);
        }
        self.wants.deliver_posts(|to, mail| {
            fx.post(to, mail);
            Ok(())
        });
    }

    fn pass_on_op(&mut self, op: Op, fx: &mut Effects) {
        match op {
            Op::Connect(connect) => fx.connect(connect),
            Op::Finish(conn) => {
                self.say_end(conn, fx);
                fx.finish(conn);
            }
            Op::Close(conn) => {
                self.say_end(conn, fx);
                fx.close(conn);
            }
            Op::Receive(conn, on) => {
                debug_assert!(self.session(conn).is_none(), "not here: see the module");
                fx.receive(conn, on);
            }
            Op::Accept(on) => fx.accept(on),
            Op::Stop => {
                self.is_stopping = true;
                let shaking = self
                    .lines
                    .iter()
                    .filter(|line| matches!(line.state, State::Shaking { .. }));
                shaking.for_each(|line| fx.close(line.conn)); // the inner handler cannot close what it does not know
                fx.stop();
            }
        }
    }

    fn say_end(&mut self, conn: ConnId, fx: &mut Effects) {
        if let Some(session) = self.session(conn) {
            session.write_end(fx.outbox(conn));
        }
    }
}

impl<H: Handler> Handler for OverTls<H> {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        self.inner.on_start(now, &mut self.wants);
        self.pass_on(fx);
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Connected { conn, token } => self.dialed(now, conn, token, fx),
            Event::Received { conn, input } => self.received(now, conn, input, fx),
            Event::Closed { conn, cause } => self.closed(now, conn, cause),
            Event::Accepted { conn, .. } => {
                self.wants.open_conn(conn);
                self.begin_line(conn, State::Plain);
                self.inner.on_event(now, event, &mut self.wants);
            }
            Event::ConnectFailed { token, .. } => {
                self.dials.retain(|(connect, _)| connect.token != token);
                self.inner.on_event(now, event, &mut self.wants);
            }
            Event::Sent { conn } => {
                self.settle(fx);
                let state = self.line(conn).map(|line| &line.state);
                if matches!(state, Some(State::Plain | State::Open(_))) {
                    self.inner.on_event(now, event, &mut self.wants);
                }
            }
            Event::Tick => {
                let due = self.inner.next_deadline();
                if due.is_some_and(|due| due <= now.mono) {
                    self.inner.on_event(now, event, &mut self.wants);
                }
            }
            Event::Mail(_) | Event::Drain => self.inner.on_event(now, event, &mut self.wants),
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        self.settle(fx);
        self.end_late_handshakes(now, fx);
        self.inner.on_flush(now, &mut self.wants);
        self.pass_on(fx);
    }

    fn next_deadline(&self) -> Option<Mono> {
        let shaking = self.lines.iter().filter_map(|line| match &line.state {
            State::Shaking { until, .. } => Some(*until),
            _ => None,
        });
        shaking.chain(self.inner.next_deadline()).min()
    }
}
