//! What leaves, and when a handler learns of it.

use super::subject::Told;
use super::{End, Harness, text};
use std::sync::mpsc;
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
    super::nudge(h, &seen);
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
