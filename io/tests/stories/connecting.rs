//! Handlers that connect.

use super::subject::{Act, Told};
use super::{End, Harness, Target};
use std::net::SocketAddr;
use weir_core::port::{CloseCause, Connect, ConnectError, ConnectToken, Event};

/// Connects to `to` at each mail, with the mail's number as token; echoes.
fn connector(to: SocketAddr, deadline_ms: u64) -> Act {
    Box::new(move |ctx, event| match event {
        Event::Mail(weir_core::mail::Mail::ViewsAsk(number)) => ctx.fx.connect(Connect {
            token: ConnectToken(number.0.into()),
            to,
            from: None,
            deadline: ctx.now.mono.plus_ms(deadline_ms),
        }),
        Event::Connected { conn, .. } => ctx.fx.outbox(conn).extend_from_slice(b"hello"),
        Event::Received { conn, mut input } => {
            ctx.fx.outbox(conn).extend_from_slice(input.bytes());
            input.consume(input.bytes().len());
            if input.ended() {
                ctx.fx.close(conn);
            }
        }
        _ => {}
    })
}

fn fails(h: &mut dyn Harness, target: Target, deadline_ms: u64, error: ConnectError) {
    let to = h.target(target);
    let seen = h.serve(connector(to, deadline_ms), 2);
    for token in 1..=5 {
        h.mail(token);
        h.until("the connect fails", &mut || {
            let failed = Told::ConnectFailed(ConnectToken(token.into()), error);
            seen.count(|told| *told == failed) == 1
        });
    }
    assert_eq!(seen.count(|told| matches!(told, Told::Connected(..))), 0);
    assert_eq!(seen.closed(), 0, "a conn that never was is not closed");
}

pub fn a_connect_succeeds_and_talks(h: &mut dyn Harness) {
    let to = h.target(Target::Listens);
    let seen = h.serve(connector(to, 5_000), 2);
    for token in 1..=3 {
        h.mail(token);
        let sock = h.accept();
        assert_eq!(h.read(sock, 5), b"hello");
        h.send(sock, b"echo me");
        assert_eq!(h.read(sock, 7), b"echo me");
        h.half_close(sock);
        assert_eq!(h.read_to_end(sock), (vec![], End::Fin));
        h.until("closed", &mut || seen.closed() == usize::from(token));
    }
    let tokens: Vec<u64> = seen
        .all()
        .into_iter()
        .filter_map(|told| match told {
            Told::Connected(_, token) => Some(token.0),
            _ => None,
        })
        .collect();
    assert_eq!(tokens, [1, 2, 3]);
    assert_eq!(seen.causes(), [CloseCause::Local; 3]);
}

pub fn a_connect_is_refused(h: &mut dyn Harness) {
    fails(h, Target::Refuses, 5_000, ConnectError::Refused);
}

pub fn a_connect_times_out(h: &mut dyn Harness) {
    fails(h, Target::Silent, 20, ConnectError::TimedOut);
}

pub fn a_connect_without_a_slot_names_the_local_limit(h: &mut dyn Harness) {
    let to = h.target(Target::Listens);
    let seen = h.serve(connector(to, 5_000), 1);
    h.mail(1);
    let sock = h.accept();
    h.mail(2);
    h.until("the second fails", &mut || {
        let failed = Told::ConnectFailed(ConnectToken(2), ConnectError::LocalLimit);
        seen.count(|told| *told == failed) == 1
    });
    h.send(sock, b"first is unharmed");
    assert_eq!(h.read(sock, 22), b"hellofirst is unharmed");
}
