//! Handlers that connect.

use super::subject::{Act, Told};
use super::{End, Harness, Target, text};
use std::net::SocketAddr;
use weir_core::limit::lease::ShardId;
use weir_core::mail::Mail;
use weir_core::port::{CloseCause, Connect, ConnectError, ConnectToken, Event};
use weir_io::limits::REPLY_BACKLOG_BYTES_MAX;

/// Connects to `to` at each mail, with the mail's number as token; echoes.
fn connector(to: SocketAddr, deadline_ms: u64) -> Act {
    Box::new(move |ctx, event| match event {
        Event::Mail(Mail::ViewsAsk(number)) => ctx.fx.connect(Connect {
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

/// A Redis reply is consumed whole or not at all, and may be longer than a client's request.
pub fn a_long_reply_is_shown_whole_to_the_one_who_connected(h: &mut dyn Harness) {
    let to = h.target(Target::Listens);
    h.serve(
        Box::new(move |ctx, event| match event {
            Event::Mail(_) => ctx.fx.connect(Connect {
                token: ConnectToken(1),
                to,
                from: None,
                deadline: ctx.now.mono.plus_ms(60_000),
            }),
            Event::Received { conn, mut input }
                if input.bytes().len() >= REPLY_BACKLOG_BYTES_MAX =>
            {
                let is_right = input.bytes() == text(6, REPLY_BACKLOG_BYTES_MAX);
                ctx.fx.outbox(conn).push(u8::from(is_right));
                input.consume(REPLY_BACKLOG_BYTES_MAX);
            }
            _ => {}
        }),
        2,
    );
    h.mail(1);
    let sock = h.accept();
    let reply = text(6, REPLY_BACKLOG_BYTES_MAX);
    for _ in 0..2 {
        h.send(sock, &reply);
        assert_eq!(h.read(sock, 1), [1]);
    }
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

pub fn many_connects_of_one_turn_are_each_answered_once(h: &mut dyn Harness) {
    const EACH: u64 = 10;
    let targets = [
        (h.target(Target::Listens), 60_000),
        (h.target(Target::Refuses), 60_000),
        (h.target(Target::Silent), 30),
    ];
    let mut conns = Vec::new();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Mail(Mail::ViewsAsk(ShardId(0))) => {
                for token in 0..3 * EACH {
                    let (to, deadline_ms) = targets[(token % 3) as usize];
                    ctx.fx.connect(Connect {
                        token: ConnectToken(token),
                        to,
                        from: None,
                        deadline: ctx.now.mono.plus_ms(deadline_ms),
                    });
                }
            }
            Event::Mail(_) => conns.drain(..).for_each(|conn| ctx.fx.close(conn)),
            Event::Connected { conn, .. } => conns.push(conn),
            _ => {}
        }),
        3 * EACH as u32,
    );
    h.mail(0);
    let answered = |told: &Told| matches!(told, Told::Connected(..) | Told::ConnectFailed(..));
    h.until("all are answered", &mut || {
        seen.count(answered) == 3 * EACH as usize
    });
    let mut tokens = [0; 3 * EACH as usize];
    for told in seen.all() {
        let (token, right) = match told {
            Told::Connected(_, token) => (token.0, token.0 % 3 == 0),
            Told::ConnectFailed(token, ConnectError::Refused) => (token.0, token.0 % 3 == 1),
            Told::ConnectFailed(token, ConnectError::TimedOut) => (token.0, token.0 % 3 == 2),
            Told::ConnectFailed(token, error) => panic!("{token:?}: {error:?}"),
            _ => continue,
        };
        assert!(right, "token {token} has the answer of another");
        tokens[token as usize] += 1;
    }
    assert_eq!(tokens, [1; 3 * EACH as usize]);
    h.mail(1);
    h.until("closed", &mut || seen.closed() == EACH as usize);
}

pub fn a_peer_that_resets_in_mid_write_closes_the_connected_side(h: &mut dyn Harness) {
    let to = h.target(Target::Listens);
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Mail(_) => ctx.fx.connect(Connect {
                token: ConnectToken(1),
                to,
                from: None,
                deadline: ctx.now.mono.plus_ms(60_000),
            }),
            Event::Connected { conn, .. } => ctx.fx.outbox(conn).resize(16 << 20, b'x'),
            _ => {}
        }),
        2,
    );
    for round in 1..=3 {
        h.mail(1);
        let sock = h.accept();
        assert_eq!(h.read(sock, 70_000), [b'x'; 70_000]);
        h.reset(sock);
        h.until("closed", &mut || seen.closed() == round);
    }
    assert_eq!(seen.causes(), [CloseCause::Reset; 3]);
    assert_eq!(seen.count(|told| matches!(told, Told::Sent(_))), 0);
}

pub fn a_stop_waits_for_the_connect_under_way(h: &mut dyn Harness) {
    let to = h.target(Target::Silent);
    let seen = h.serve(
        Box::new(move |ctx, event| {
            if let Event::Mail(_) = event {
                ctx.fx.connect(Connect {
                    token: ConnectToken(7),
                    to,
                    from: None,
                    deadline: ctx.now.mono.plus_ms(50),
                });
                ctx.fx.stop();
            }
        }),
        2,
    );
    h.mail(1);
    h.join();
    let failed = Told::ConnectFailed(ConnectToken(7), ConnectError::TimedOut);
    assert_eq!(seen.count(|told| *told == failed), 1);
}
