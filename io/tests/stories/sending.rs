//! What leaves, and when a handler learns of it.

use super::subject::Told;
use super::{End, Harness, Sock, nudge, text};
use std::sync::mpsc;
use weir_core::mail::Mail;
use weir_core::port::Event;

pub fn a_big_reply_to_a_slow_reader_arrives_whole(h: &mut dyn Harness) {
    let reply = text(2, 16 << 20); // more than socket buffers take: the send is partial many times
    let sent = reply.clone();
    let (unsent_in, unsent) = mpsc::channel();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Accepted { conn, .. } => ctx.fx.outbox(conn).extend_from_slice(&sent),
            Event::Sent { conn } => {
                let _ = unsent_in.send(ctx.fx.unsent_bytes(conn));
            }
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    let mut got = Vec::new();
    let mut piece_bytes = 1;
    while got.len() < reply.len() {
        let piece = h.read(sock, piece_bytes.min(reply.len() - got.len()));
        got.extend_from_slice(&piece);
        piece_bytes = (piece_bytes * 2).min(300_000);
        if got.len() < 1000 {
            let told_sent = seen.count(|told| matches!(told, Told::Sent(_)));
            assert_eq!(told_sent, 0, "sent after {} bytes", got.len());
        }
    }
    assert!(got == reply);
    h.until("told", &mut || {
        seen.count(|told| matches!(told, Told::Sent(_))) == 1
    });
    h.until("nothing is unsent then", &mut || unsent.try_recv() == Ok(0));
}

pub fn one_write_per_turn(h: &mut dyn Harness) {
    let seen = h.serve(
        Box::new(|ctx, event| {
            if let Event::Mail(_) = event {
                return;
            }
            if let Event::Received { conn, mut input } = event {
                input.consume(input.bytes().len());
                for number in 0..100 {
                    ctx.fx
                        .outbox(conn)
                        .extend_from_slice(format!("piece {number:02}.").as_bytes());
                }
            }
        }),
        4,
    );
    let sock = h.dial();
    h.send(sock, b"?");
    let got = h.read(sock, 900);
    assert!(got.ends_with(b"piece 99."));
    h.until("told", &mut || {
        seen.count(|told| matches!(told, Told::Sent(_))) > 0
    });
    nudge(h, &seen);
    let told_sent = seen.count(|told| matches!(told, Told::Sent(_)));
    assert_eq!(told_sent, 1, "100 pieces of one turn leave in one write");
}

pub fn a_finished_conn_sends_nothing_more(h: &mut dyn Harness) {
    let seen = h.serve(
        Box::new(|ctx, event| match event {
            Event::Accepted { conn, .. } => {
                ctx.fx.outbox(conn).extend_from_slice(b"all");
                ctx.fx.finish(conn);
            }
            Event::Received { conn, mut input } => {
                input.consume(input.bytes().len());
                ctx.fx.outbox(conn).extend_from_slice(b"too late");
            }
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    assert_eq!(h.read_to_end(sock), (b"all".to_vec(), End::Fin));
    h.send(sock, b"?");
    h.half_close(sock);
    h.until("closed", &mut || seen.closed() == 1);
}

pub fn each_slow_reader_of_many_gets_its_own_huge_reply(h: &mut dyn Harness) {
    const CONNS: usize = 12;
    const REPLY_BYTES: usize = 2 << 20;
    let mut next = 0;
    let seen = h.serve(
        Box::new(move |ctx, event| {
            if let Event::Accepted { conn, .. } = event {
                ctx.fx
                    .outbox(conn)
                    .extend_from_slice(&text(next, REPLY_BYTES));
                ctx.fx.finish(conn);
                next += 1;
            }
        }),
        CONNS as u32,
    );
    let socks: Vec<Sock> = (0..CONNS)
        .map(|at| {
            let sock = h.dial();
            h.until("accepted", &mut || seen.accepted() == at + 1);
            sock
        })
        .collect();
    let mut got = vec![Vec::new(); CONNS];
    for _ in 0..4 {
        for (sock, got) in socks.iter().zip(&mut got) {
            got.extend_from_slice(&h.read(*sock, REPLY_BYTES / 8)); // the other half later: all outboxes stay full
        }
    }
    for (at, (sock, mut got)) in socks.into_iter().zip(got).enumerate().rev() {
        let (rest, end) = h.read_to_end(sock);
        got.extend_from_slice(&rest);
        assert!(
            got == text(at as u64, REPLY_BYTES),
            "the reply of another conn"
        );
        assert_eq!(end, End::Fin);
        h.close(sock);
    }
    h.until("closed", &mut || seen.closed() == CONNS);
}

pub fn what_is_added_while_a_send_is_under_way_follows_it(h: &mut dyn Harness) {
    const PIECES: u16 = 40;
    const PIECE_BYTES: usize = 200_000;
    let mut client = None;
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Accepted { conn, .. } => client = Some(conn),
            Event::Mail(Mail::ViewsAsk(number)) => {
                let conn = client.expect("accepted before");
                let piece = text(number.0.into(), PIECE_BYTES);
                ctx.fx.outbox(conn).extend_from_slice(&piece);
            }
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    h.until("accepted", &mut || seen.accepted() == 1);
    for piece in 0..PIECES {
        h.mail(piece);
        if piece % 4 == 0 {
            nudge(h, &seen);
        }
    }
    for piece in 0..PIECES {
        let got = h.read(sock, PIECE_BYTES);
        assert!(
            got == text(piece.into(), PIECE_BYTES),
            "piece {piece} is not next"
        );
    }
    h.until("told", &mut || {
        seen.count(|told| matches!(told, Told::Sent(_))) > 0
    });
}

pub fn each_emptied_outbox_is_told_once(h: &mut dyn Harness) {
    const PIECES: usize = 500;
    let mut left = PIECES;
    let seen = h.serve(
        Box::new(move |ctx, event| {
            if let Event::Accepted { conn, .. } | Event::Sent { conn } = event
                && left > 0
            {
                left -= 1;
                ctx.fx
                    .outbox(conn)
                    .extend_from_slice(format!("{left:06}").as_bytes());
            }
        }),
        4,
    );
    let sock = h.dial();
    for left in (0..PIECES).rev() {
        assert_eq!(h.read(sock, 6), format!("{left:06}").as_bytes());
    }
    h.until("the last is told", &mut || {
        seen.count(|told| matches!(told, Told::Sent(_))) == PIECES
    });
    nudge(h, &seen);
    let told_sent = seen.count(|told| matches!(told, Told::Sent(_)));
    assert_eq!(told_sent, PIECES);
}
