//! io_uring's own parts, each on a ring on which the part is scarce; `mod.rs` names the size.
//!
//! After each turn the driver itself asserts that the kernel has every receive buffer back (field bug R62).

use super::subject::{Told, echo};
use super::{End, Harness, Sock, nudge, text};
use std::sync::{Arc, Mutex};
use weir_core::limit::lease::ShardId;
use weir_core::mail::Mail;
use weir_core::port::{CloseCause, Event};

/// Field bug R63: a receive that finds no buffer ends (ENOBUFS), and has to be armed again.
pub fn more_conns_with_data_than_buffers_are_all_served(h: &mut dyn Harness) {
    const CONNS: usize = 64;
    let seen = h.serve(echo(), 64);
    let socks: Vec<Sock> = (0..CONNS).map(|_| h.dial()).collect();
    let texts: Vec<_> = (0..CONNS).map(|at| text(at as u64, 1500)).collect();
    let stats = h.stats();
    let mut rounds = 0;
    while rounds < 1 || stats.recv_enobufs.get() == 0 {
        for (sock, text) in socks.iter().zip(&texts) {
            h.send(*sock, text);
        }
        for (sock, text) in socks.iter().zip(&texts) {
            assert!(h.read(*sock, text.len()) == *text, "bytes lost or mixed up");
        }
        rounds += 1;
        assert!(rounds < 1000, "two buffers never run out");
    }
    for sock in socks {
        h.half_close(sock);
        assert_eq!(h.read_to_end(sock), (vec![], End::Fin));
    }
    h.until("all closed", &mut || seen.closed() == CONNS);
}

/// Field bug R62: a receive that ends while data arrive, by a close or a reset, still gives its buffer back.
pub fn conns_that_end_in_mid_receive_give_their_buffers_back(h: &mut dyn Harness) {
    const ENDS: usize = 600;
    let seen = h.serve(
        Box::new(|ctx, event| {
            if let Event::Received { conn, mut input } = event {
                let first = input.bytes().first().copied();
                ctx.fx.outbox(conn).extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
                if first == Some(b'c') {
                    ctx.fx.close(conn); // with more of its bytes in the socket, in buffers, in completions
                }
            }
        }),
        8,
    );
    for round in 0..ENDS {
        let sock = h.dial();
        let ends_here = round % 2 == 0;
        h.try_send(sock, &[if ends_here { b'c' } else { b'r' }; 1000]);
        if ends_here {
            h.close(sock);
        } else {
            h.reset(sock);
        }
    }
    let sock = h.dial();
    for round in 0..20 {
        let piece = vec![b'e'; 500 + round];
        h.send(sock, &piece);
        let got = h.read(sock, piece.len());
        assert!(
            got == piece,
            "two buffers do not serve one conn after {ENDS} others"
        );
    }
    h.reset(sock);
    h.until("all closed", &mut || seen.closed() == seen.accepted());
}

/// Field bug R65: what does not fit in the completion queue waits in the kernel, and every operation completes once.
pub fn thousands_of_conns_on_a_short_completion_queue_are_all_served(h: &mut dyn Harness) {
    const CONNS: usize = 4096;
    weir_io::rlimit::raise_open_files().expect("the hard limit is known");
    let seen = h.serve(echo(), CONNS as u32);
    let stats = h.stats();
    let socks: Vec<Sock> = (0..CONNS).map(|_| h.dial()).collect();
    h.until("all are accepted", &mut || {
        stats.accepts.get() == CONNS as u64
    });
    for round in 0..2 {
        for sock in &socks {
            h.send(*sock, format!("{round} {:05}", sock.0).as_bytes());
        }
        for sock in socks.iter().rev() {
            let answer = h.read(*sock, 7);
            assert_eq!(answer, format!("{round} {:05}", sock.0).as_bytes());
        }
    }
    for sock in socks {
        h.reset(sock);
    }
    h.until("all closed", &mut || seen.closed() == CONNS);
    assert!(
        stats.cq_overflow.get() > 0,
        "64 entries held everything that 4096 conns did"
    );
    let received = seen.all().into_iter().filter_map(|told| match told {
        Told::Received { bytes, .. } => Some(bytes),
        _ => None,
    });
    assert_eq!(received.sum::<usize>(), 2 * CONNS * 7);
}

/// Field bug R64: a send may take only a part; the rest goes first, whatever was added meanwhile.
pub fn short_sends_leave_no_gap_and_change_no_order(h: &mut dyn Harness) {
    const PIECE_BYTES: usize = 3 << 20;
    const PIECES: u64 = 8;
    let seen = h.serve(
        Box::new({
            let mut client = None;
            move |ctx, event| match event {
                Event::Accepted { conn, .. } => client = Some(conn),
                Event::Mail(Mail::ViewsAsk(number)) => {
                    let conn = client.expect("accepted before");
                    let piece = text(number.0.into(), PIECE_BYTES);
                    ctx.fx.outbox(conn).extend_from_slice(&piece);
                }
                Event::Received { mut input, .. } => input.consume(input.bytes().len()),
                _ => {}
            }
        }),
        4,
    );
    let sock = h.dial();
    h.until("accepted", &mut || seen.accepted() == 1);
    let mut got = Vec::new();
    for piece in 1..=PIECES {
        h.mail(piece as u16);
        nudge(h, &seen);
        got.extend_from_slice(&h.read(sock, 10_000)); // opens the window a little: the send under way takes a little
    }
    let all: Vec<u8> = (1..=PIECES)
        .flat_map(|piece| text(piece, PIECE_BYTES))
        .collect();
    got.extend_from_slice(&h.read(sock, all.len() - got.len()));
    assert!(got == all, "a gap, or another order");
    assert!(
        h.stats().sends_short.get() > 0,
        "the kernel took everything at once"
    );
    h.reset(sock);
    h.until("closed", &mut || seen.closed() == 1);
    assert_eq!(seen.causes(), [CloseCause::Reset]);
}

/// A multishot receive that is stopped at the backlog's bound ends without F_MORE, and is armed again once there is room.
pub fn a_receive_stopped_at_the_bound_loses_nothing_and_goes_on(h: &mut dyn Harness) {
    const HOLD: u16 = 0;
    let got = Arc::new(Mutex::new(Vec::new()));
    let got_in = Arc::clone(&got);
    let (mut client, mut holds) = (None, true);
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Accepted { conn, .. } => client = Some(conn),
            Event::Received { mut input, .. } if !holds => {
                let mut got = got_in.lock().expect("no story panics with it");
                got.extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
            }
            Event::Mail(Mail::ViewsAsk(ShardId(number))) => {
                holds = number == HOLD;
                ctx.fx.receive(client.expect("accepted before"), true); // shows what was kept
            }
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    h.until("accepted", &mut || seen.accepted() == 1);
    let stats = h.stats();
    let all = text(7, 64 << 20);
    let mut sent = 0;
    for round in 1..=5 {
        h.mail(HOLD);
        nudge(h, &seen);
        while stats.recv_stops.get() < round {
            sent += h.try_send(sock, &all[sent..sent + 10_000]);
            assert!(sent < 60 << 20, "nobody consumes, and it is never stopped");
        }
        h.mail(HOLD + 1);
        h.until("what was sent arrives", &mut || {
            got.lock().expect("no story panics with it").len() == sent
        });
    }
    let got = got.lock().expect("no story panics with it");
    assert!(*got == all[..sent], "bytes lost or out of order");
}
