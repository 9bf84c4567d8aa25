//! How connections end.

use super::subject::{Told, echo};
use super::{End, Harness, Sock, nudge, text};
use std::sync::mpsc;
use weir_core::port::{CloseCause, ConnId, Event};

pub fn half_close_still_gets_its_reply(h: &mut dyn Harness) {
    let act = |ctx: &mut super::subject::Ctx<'_>, event: Event<'_>| {
        if let Event::Received { conn, mut input } = event
            && input.ended()
        {
            let request = input.bytes().len();
            input.consume(request);
            ctx.fx
                .outbox(conn)
                .extend_from_slice(format!("got {request}").as_bytes());
            ctx.fx.finish(conn);
        }
    };
    let seen = h.serve(Box::new(act), 4);
    let sock = h.dial();
    h.send(sock, b"a whole request");
    h.half_close(sock);
    assert_eq!(h.read_to_end(sock), (b"got 15".to_vec(), End::Fin));
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Local]);
}

pub fn reset_before_any_byte(h: &mut dyn Harness) {
    let seen = h.serve(echo(), 4);
    let sock = h.dial();
    h.until("accepted", &mut || seen.accepted() == 1);
    h.reset(sock);
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Reset]);
    assert_eq!(seen.count(|told| matches!(told, Told::Received { .. })), 0);
}

pub fn reset_in_mid_head(h: &mut dyn Harness) {
    let seen = h.serve(Box::new(|_, _| {}), 4);
    let sock = h.dial();
    h.send(sock, b"GET / HTT");
    h.until("the head begins", &mut || {
        seen.count(|told| matches!(told, Told::Received { bytes: 9, .. })) == 1
    });
    h.reset(sock);
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Reset]);
}

pub fn reset_in_mid_reply(h: &mut dyn Harness) {
    let (unsent_in, unsent) = mpsc::channel();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Received { conn, mut input } => {
                input.consume(input.bytes().len());
                ctx.fx.outbox(conn).resize(16 << 20, b'x');
            }
            Event::Closed { conn, .. } => {
                let _ = unsent_in.send(ctx.fx.unsent_bytes(conn));
            }
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    h.send(sock, b"?");
    assert_eq!(h.read(sock, 5000), [b'x'; 5000]);
    h.reset(sock);
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Reset]);
    h.until("a conn that is gone has nothing unsent", &mut || {
        unsent.try_recv() == Ok(0)
    });
    assert_eq!(seen.count(|told| matches!(told, Told::Sent(_))), 0);
}

pub fn finish_flushes_before_the_fin(h: &mut dyn Harness) {
    let reply = text(1, 1 << 20);
    let sent = reply.clone();
    let seen = h.serve(
        Box::new(move |ctx, event| {
            if let Event::Accepted { conn, .. } = event {
                ctx.fx.outbox(conn).extend_from_slice(&sent);
                ctx.fx.finish(conn);
            }
        }),
        4,
    );
    let sock = h.dial();
    let (got, end) = h.read_to_end(sock);
    assert!(got == reply, "{} of {} bytes", got.len(), reply.len());
    assert_eq!(end, End::Fin);
    h.close(sock);
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Local]);
}

pub fn finish_then_the_peers_end_closes(h: &mut dyn Harness) {
    let seen = h.serve(
        Box::new(|ctx, event| match event {
            Event::Accepted { conn, .. } => {
                ctx.fx.outbox(conn).extend_from_slice(b"bye");
                ctx.fx.finish(conn);
            }
            Event::Received { mut input, .. } => input.consume(input.bytes().len()),
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    assert_eq!(h.read_to_end(sock), (b"bye".to_vec(), End::Fin));
    nudge(h, &seen);
    assert_eq!(seen.closed(), 0, "the peer may still send");
    h.send(sock, b"one more");
    h.half_close(sock);
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Local]);
    let received = seen.all().into_iter().filter_map(|told| match told {
        Told::Received { bytes, .. } => Some(bytes),
        _ => None,
    });
    assert_eq!(
        received.sum::<usize>(),
        8,
        "receiving goes on after a finish"
    );
}

pub fn close_drops_what_is_unsent(h: &mut dyn Harness) {
    const REPLY_BYTES: usize = 32 << 20;
    let seen = h.serve(
        Box::new(|ctx, event| match event {
            Event::Accepted { conn, .. } => ctx.fx.outbox(conn).resize(REPLY_BYTES, b'x'),
            Event::Received { conn, mut input } => {
                input.consume(input.bytes().len());
                ctx.fx.close(conn);
            }
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    assert_eq!(h.read(sock, 100).len(), 100);
    h.send(sock, b"stop");
    h.until("closed, though nobody reads", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Local]);
    assert_eq!(seen.count(|told| matches!(told, Told::Sent(_))), 0);
    let (rest, _) = h.read_to_end(sock);
    assert!(rest.len() < REPLY_BYTES - 100, "nothing was dropped");
}

pub fn a_refusal_survives_a_peer_that_keeps_sending(h: &mut dyn Harness) {
    let seen = h.serve(
        Box::new(|ctx, event| {
            if let Event::Received { conn, mut input } = event {
                input.consume(input.bytes().len());
                if ctx.fx.unsent_bytes(conn) == 0 && !input.ended() {
                    ctx.fx.outbox(conn).extend_from_slice(b"413");
                    ctx.fx.finish(conn);
                }
            }
        }),
        4,
    );
    let sock = h.dial();
    let body = text(3, 300_000);
    for piece in body.chunks(10_000) {
        h.send(sock, piece);
    }
    h.half_close(sock);
    assert_eq!(h.read_to_end(sock), (b"413".to_vec(), End::Fin));
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Local]);
}

pub fn closed_once_and_last_when_both_sides_close(h: &mut dyn Harness) {
    // Every order of the handler's close, the client's close or reset, and bytes under way; `check` sees the rest.
    let seen = h.serve(
        Box::new(|ctx, event| match event {
            Event::Received { conn, mut input } => {
                ctx.fx.outbox(conn).extend_from_slice(b"reply");
                let all = input.bytes().len();
                if input.bytes().contains(&b'f') {
                    ctx.fx.finish(conn);
                }
                if input.bytes().contains(&b'c') {
                    ctx.fx.close(conn);
                    ctx.fx.close(conn);
                }
                input.consume(all);
                if input.ended() {
                    ctx.fx.finish(conn);
                }
            }
            Event::Closed { conn, .. } => ctx.fx.close(conn),
            _ => {}
        }),
        64,
    );
    for round in 0..60 {
        let sock = h.dial();
        h.send(sock, [&b"c"[..], b"f", b"fc", b"-"][round % 4]);
        match round / 4 % 3 {
            0 => h.reset(sock),
            1 => h.close(sock),
            _ => {
                h.half_close(sock);
                if round % 4 == 3 {
                    h.read(sock, 5);
                }
                h.close(sock);
            }
        }
    }
    // A client that resets before the accept may never be shown.
    h.until("every conn is closed", &mut || {
        seen.accepted() >= 40 && seen.closed() == seen.accepted()
    });
}

pub fn conn_ids_are_never_used_twice(h: &mut dyn Harness) {
    let seen = h.serve(echo(), 2);
    for round in 1..=100 {
        let sock = h.dial();
        h.send(sock, b"hi");
        assert_eq!(h.read(sock, 2), b"hi");
        h.half_close(sock);
        assert_eq!(h.read_to_end(sock), (vec![], End::Fin));
        h.close(sock);
        h.until("closed", &mut || seen.closed() == round);
    }
    assert_eq!(seen.accepted(), 100);
}

pub fn outbox_after_closed_goes_nowhere(h: &mut dyn Harness) {
    let mut gone: Option<ConnId> = None;
    let seen = h.serve(
        Box::new(move |ctx, event| {
            if let Some(old) = gone {
                ctx.fx
                    .outbox(old)
                    .extend_from_slice(b"SECRET OF THE LAST CLIENT");
                ctx.fx.finish(old);
                ctx.fx.close(old);
                ctx.fx.receive(old, false);
            }
            match event {
                Event::Received { conn, mut input } => {
                    ctx.fx.outbox(conn).extend_from_slice(input.bytes());
                    input.consume(input.bytes().len());
                }
                Event::Closed { conn, .. } => {
                    ctx.fx.outbox(conn).extend_from_slice(b"SECRET");
                    gone = Some(conn);
                }
                _ => {}
            }
        }),
        1,
    );
    let first = h.dial();
    h.send(first, b"first");
    assert_eq!(h.read(first, 5), b"first");
    h.reset(first);
    h.until("closed", &mut || seen.closed() == 1);
    let second = h.dial(); // gets the only slot again
    for _ in 0..3 {
        h.send(second, b"second");
        assert_eq!(h.read(second, 6), b"second");
    }
    assert_eq!(
        seen.closed(),
        1,
        "commands to a conn that is gone hit the next one"
    );
}

pub fn reset_while_the_reply_is_owed(h: &mut dyn Harness) {
    let mut asked: Option<ConnId> = None;
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Received { conn, mut input } => {
                input.consume(input.bytes().len());
                asked = Some(conn); // the answer comes from elsewhere
            }
            Event::Mail(_) => {
                let conn = asked.expect("asked before");
                ctx.fx.outbox(conn).extend_from_slice(b"your answer");
                ctx.fx.finish(conn);
            }
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    h.send(sock, b"a whole request");
    h.until("asked", &mut || {
        seen.count(|told| matches!(told, Told::Received { .. })) > 0
    });
    h.reset(sock);
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Reset]);
    h.mail(1); // the answer is late: it goes nowhere, and nothing is told of it
    nudge(h, &seen);
    assert_eq!(seen.count(|told| matches!(told, Told::Sent(_))), 0);
}

pub fn reset_after_our_fin(h: &mut dyn Harness) {
    let seen = h.serve(
        Box::new(|ctx, event| {
            if let Event::Accepted { conn, .. } = event {
                ctx.fx.outbox(conn).extend_from_slice(b"bye");
                ctx.fx.finish(conn);
            }
        }),
        4,
    );
    let sock = h.dial();
    assert_eq!(h.read_to_end(sock), (b"bye".to_vec(), End::Fin));
    h.reset(sock);
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Reset]);
}

pub fn reset_with_receiving_off_is_told_at_the_latest_when_it_is_on(h: &mut dyn Harness) {
    let mut client: Option<ConnId> = None;
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Accepted { conn, .. } => {
                client = Some(conn);
                ctx.fx.receive(conn, false);
            }
            Event::Received { mut input, .. } => input.consume(input.bytes().len()),
            Event::Mail(_) => ctx.fx.receive(client.expect("accepted before"), true),
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    h.until("accepted", &mut || seen.accepted() == 1);
    h.try_send(sock, b"never asked for");
    nudge(h, &seen);
    h.reset(sock);
    nudge(h, &seen);
    h.mail(1);
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Reset]);
}

pub fn many_conns_closed_in_one_turn(h: &mut dyn Harness) {
    const CONNS: usize = 100;
    let mut open: Vec<ConnId> = Vec::new();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Accepted { conn, .. } => open.push(conn),
            Event::Received { conn, mut input } => {
                ctx.fx.outbox(conn).extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
            }
            Event::Mail(_) => {
                for conn in open.drain(..) {
                    ctx.fx.outbox(conn).extend_from_slice(b"never sent");
                    ctx.fx.close(conn);
                }
            }
            _ => {}
        }),
        CONNS as u32,
    );
    for round in 1..=3 {
        let socks: Vec<Sock> = (0..CONNS).map(|_| h.dial()).collect();
        for sock in &socks {
            h.send(*sock, b"hello");
            assert_eq!(h.read(*sock, 5), b"hello");
        }
        for sock in socks.iter().step_by(3) {
            h.try_send(*sock, b"on its way"); // of some, bytes arrive while they are closed
        }
        h.mail(round);
        h.until("all closed", &mut || {
            seen.closed() == CONNS * usize::from(round)
        });
        for sock in socks {
            h.close(sock);
        }
    }
    assert_eq!(seen.causes(), [CloseCause::Local; 3 * CONNS]);
}

pub fn a_close_at_the_accept_shows_nothing_more(h: &mut dyn Harness) {
    let seen = h.serve(
        Box::new(|ctx, event| {
            if let Event::Accepted { conn, .. } = event {
                ctx.fx.close(conn);
            }
        }),
        2,
    );
    for round in 1..=20 {
        let sock = h.dial();
        h.try_send(sock, b"bytes that nobody looks at");
        h.until("closed", &mut || seen.closed() == round);
        h.close(sock);
    }
    assert_eq!(seen.causes(), [CloseCause::Local; 20]);
}

pub fn an_end_without_bytes_is_shown_once_and_answered(h: &mut dyn Harness) {
    let seen = h.serve(
        Box::new(|ctx, event| {
            if let Event::Received { conn, input } = event
                && input.ended()
            {
                ctx.fx.outbox(conn).resize(1 << 20, b'r');
                ctx.fx.finish(conn);
            }
        }),
        4,
    );
    let sock = h.dial();
    h.half_close(sock);
    for _ in 0..5 {
        nudge(h, &seen);
    }
    let (reply, end) = h.read_to_end(sock);
    assert_eq!((reply.len(), end), (1 << 20, End::Fin));
    h.until("closed", &mut || seen.closed() == 1);
    let received = |told: &Told| matches!(told, Told::Received { .. });
    assert_eq!(seen.count(received), 1);
}
