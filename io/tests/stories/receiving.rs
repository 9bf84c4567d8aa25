//! What arrives, in which order, and how it is held back.

use super::subject::{Told, echo};
use super::{Harness, Sock, nudge, text};
use std::sync::{Arc, Mutex};
use weir_core::mail::Mail;
use weir_core::port::{ConnId, Event};
use weir_core::rng::Rng;

pub fn bytes_keep_their_order_at_random_sizes(h: &mut dyn Harness) {
    h.serve(echo(), 4);
    let all = text(4, 200_000);
    let mut rng = Rng::new(5);
    let sock = h.dial();
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < all.len() {
        let piece = (1 + rng.below(3000) as usize).min(all.len() - sent);
        h.send(sock, &all[sent..sent + piece]);
        sent += piece;
        let want = rng.below((sent - got.len()) as u64 + 1) as usize;
        let want = if sent == all.len() {
            sent - got.len()
        } else {
            want
        };
        got.extend_from_slice(&h.read(sock, want));
    }
    assert!(got == all);
}

/// What each `Received` showed.
type Shown = Arc<Mutex<Vec<Vec<u8>>>>;

fn last_of(shown: &Shown) -> Vec<u8> {
    let shown = shown.lock().expect("no story panics with it");
    shown.last().cloned().unwrap_or_default()
}

pub fn what_is_left_is_shown_again_contiguous(h: &mut dyn Harness) {
    let shown = Shown::default();
    let shown_in = Arc::clone(&shown);
    let seen = h.serve(
        Box::new(move |_, event| {
            if let Event::Received { mut input, .. } = event {
                let mut shown = shown_in.lock().expect("no story panics with it");
                shown.push(input.bytes().to_vec());
                let lines = input.bytes().iter().rposition(|&byte| byte == b'\n');
                input.consume(lines.map_or(0, |at| at + 1));
            }
        }),
        4,
    );
    let sock = h.dial();
    let mut so_far = Vec::new();
    for piece in [&b"GET"[..], b" /", b" HTTP\nHo", b"st", b": x"] {
        h.send(sock, piece);
        so_far.extend_from_slice(piece);
        let left = so_far
            .rsplit(|&byte| byte == b'\n')
            .next()
            .unwrap_or(&[])
            .to_vec();
        h.until("it is shown whole", &mut || {
            last_of(&shown).ends_with(&left)
        });
    }
    assert_eq!(last_of(&shown), b"Host: x");
    h.send(sock, b"\n");
    h.half_close(sock);
    h.until("the end is shown", &mut || {
        seen.count(|told| matches!(told, Told::Received { ended: true, .. })) == 1
    });
    let shown = shown.lock().expect("no story panics with it");
    assert!(shown.iter().any(|bytes| bytes.starts_with(b"GET / HTTP\n")));
    assert!(shown.iter().any(|bytes| bytes == b"Host: x\n"));
}

pub fn receive_off_shows_nothing_and_on_shows_what_was_kept(h: &mut dyn Harness) {
    let shown = Shown::default();
    let shown_in = Arc::clone(&shown);
    let mut client: Option<ConnId> = None;
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Accepted { conn, .. } => client = Some(conn),
            Event::Received { conn, mut input } => {
                let mut shown = shown_in.lock().expect("no story panics with it");
                shown.push(input.bytes().to_vec());
                if input.bytes().starts_with(b"ab") {
                    input.consume(1);
                    ctx.fx.receive(conn, false);
                }
            }
            Event::Mail(_) => ctx.fx.receive(client.expect("accepted before"), true),
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    h.send(sock, b"ab");
    h.until("shown", &mut || last_of(&shown).starts_with(b"ab"));
    let before = shown.lock().expect("no story panics with it").len();
    h.send(sock, b"cd");
    h.half_close(sock);
    for _ in 0..20 {
        nudge(h, &seen);
    }
    assert_eq!(shown.lock().expect("no story panics with it").len(), before);
    h.mail(1);
    h.until("kept and fresh bytes and the end are shown", &mut || {
        last_of(&shown) == b"bcd"
            && seen.count(|told| matches!(told, Told::Received { ended: true, .. })) > 0
    });
    h.mail(2);
    h.until("switching on shows kept bytes again", &mut || {
        let shown = shown.lock().expect("no story panics with it");
        shown.iter().filter(|bytes| *bytes == b"bcd").count() >= 2
    });
}

pub fn those_switched_on_first_are_shown_first(h: &mut dyn Harness) {
    const CLIENTS: u32 = 5;
    let order = Arc::new(Mutex::new((Vec::new(), Vec::new()))); // shown at first, and when switched on
    let order_in = Arc::clone(&order);
    let mut kept: Vec<ConnId> = Vec::new();
    let mut on = false;
    h.serve(
        Box::new(move |ctx, event| match event {
            Event::Received { conn, .. } => {
                let mut order = order_in.lock().expect("no story panics with it");
                if on {
                    order.1.push(conn);
                } else {
                    ctx.fx.receive(conn, false);
                    order.0.push(conn);
                    kept.push(conn);
                }
            }
            Event::Mail(_) => {
                on = true;
                kept.iter().for_each(|&conn| ctx.fx.receive(conn, true));
            }
            _ => {}
        }),
        CLIENTS,
    );
    for count in 1..=CLIENTS {
        let sock = h.dial();
        h.send(sock, b"x");
        let shown = || order.lock().expect("no story panics with it").0.len() as u32;
        h.until("kept", &mut || shown() == count);
    }
    h.mail(1);
    let done = || order.lock().expect("no story panics with it").1.len() as u32 == CLIENTS;
    h.until("shown again", &mut || done());
    let order = order.lock().expect("no story panics with it");
    assert_eq!(order.0, order.1);
}

pub fn backpressure_bounds_what_the_driver_keeps(h: &mut dyn Harness) {
    // uring: a backlog of 40 KiB is soft by what its pool of receive buffers (2 MiB) had already taken.
    const KEPT_BYTES_MAX: usize = (2 << 20) + 64 * 1024;
    const WANTED_BYTES: usize = 64 << 20;
    let got = Arc::new(Mutex::new((0_usize, 0_usize, true))); // all, largest input, right
    let got_in = Arc::clone(&got);
    let mut client: Option<ConnId> = None;
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Accepted { conn, .. } => {
                client = Some(conn);
                ctx.fx.receive(conn, false);
            }
            Event::Received { mut input, .. } => {
                let mut got = got_in.lock().expect("no story panics with it");
                let bytes = input.bytes();
                let right = bytes
                    .iter()
                    .zip(got.0..)
                    .all(|(&byte, at)| byte == (at % 251) as u8);
                *got = (got.0 + bytes.len(), got.1.max(bytes.len()), got.2 && right);
                input.consume(bytes.len());
            }
            Event::Mail(_) => ctx.fx.receive(client.expect("accepted before"), true),
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    h.until("accepted", &mut || seen.accepted() == 1);
    let pattern: Vec<u8> = (0..251 * 256_u32).map(|at| (at % 251) as u8).collect();
    let (mut sent, mut still) = (0, 0);
    while still < 50 && sent < WANTED_BYTES {
        let taken = h.try_send(sock, &pattern[sent % 251..]);
        sent += taken;
        still = if taken == 0 { still + 1 } else { 0 };
        if taken == 0 {
            nudge(h, &seen);
        }
    }
    assert!(
        sent < WANTED_BYTES,
        "nobody received, and all of it was taken"
    );
    assert_eq!(seen.count(|told| matches!(told, Told::Received { .. })), 0);
    h.mail(1);
    h.until("all arrives", &mut || {
        got.lock().expect("no story panics with it").0 == sent
    });
    let (_, largest, right) = *got.lock().expect("no story panics with it");
    assert!(right, "bytes out of order");
    assert!(largest <= KEPT_BYTES_MAX, "{largest} bytes were kept");
}

pub fn bytes_sent_before_the_accept_are_shown_after_it(h: &mut dyn Harness) {
    let seen = h.serve(
        Box::new(|ctx, event| match event {
            Event::Mail(_) => ctx.fx.accept(true),
            Event::Accepted { .. } => {}
            Event::Received { conn, mut input } => {
                ctx.fx.outbox(conn).extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
                if input.ended() {
                    ctx.fx.finish(conn);
                } else {
                    ctx.fx.accept(false);
                }
            }
            _ => {}
        }),
        4,
    );
    let first = h.dial();
    h.send(first, b"pause");
    assert_eq!(h.read(first, 5), b"pause");
    let early = h.dial();
    h.send(early, b"early bird");
    h.half_close(early);
    nudge(h, &seen);
    assert_eq!(seen.accepted(), 1);
    h.mail(1);
    assert_eq!(h.read_to_end(early).0, b"early bird");
}

pub fn receiving_switched_at_random_keeps_every_byte(h: &mut dyn Harness) {
    let got = Arc::new(Mutex::new(Vec::new()));
    let got_in = Arc::clone(&got);
    let mut client: Option<ConnId> = None;
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Accepted { conn, .. } => client = Some(conn),
            Event::Received { mut input, .. } => {
                // Takes a part, so that something is kept more often than not.
                let taken = (input.bytes().len() / 2).max(1);
                let mut got = got_in.lock().expect("no story panics with it");
                got.extend_from_slice(&input.bytes()[..taken]);
                input.consume(taken);
            }
            Event::Mail(Mail::ViewsAsk(number)) => {
                let conn = client.expect("accepted before");
                for bit in 0..4 {
                    ctx.fx.receive(conn, number.0 >> bit & 1 == 1); // the last one counts
                }
            }
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    h.until("accepted", &mut || seen.accepted() == 1);
    let (all, mut rng, mut sent) = (text(8, 120_000), Rng::new(9), 0);
    while sent < all.len() {
        h.mail(rng.below(16) as u16);
        let piece = (1 + rng.below(2500) as usize).min(all.len() - sent);
        // More may be kept and in windows than fits while it is off: then it is switched on.
        let mut taken = h.try_send(sock, &all[sent..sent + piece]);
        if taken == 0 {
            h.mail(8);
            nudge(h, &seen);
            taken = h.try_send(sock, &all[sent..sent + piece]);
        }
        sent += taken;
    }
    let mut rounds = 0;
    while got.lock().expect("no story panics with it").len() < all.len() {
        h.mail(8); // shows what is kept, of which half is taken
        nudge(h, &seen);
        rounds += 1;
        assert!(rounds < 100_000, "the rest never comes");
    }
    assert!(*got.lock().expect("no story panics with it") == all);
}

pub fn one_byte_at_a_time_is_one_stream(h: &mut dyn Harness) {
    let seen = h.serve(
        Box::new(|ctx, event| {
            if let Event::Received { conn, mut input } = event
                && input.bytes().ends_with(b"\n")
            {
                ctx.fx.outbox(conn).extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
            }
        }),
        4,
    );
    let sock = h.dial();
    for line in [&b"POST /v1/seckill/1 HTTP/1.1\n"[..], b"Host: a\n", b"\n"] {
        for byte in line.chunks(1) {
            h.send(sock, byte);
        }
        assert_eq!(h.read(sock, line.len()), line);
    }
    assert!(seen.count(|told| matches!(told, Told::Received { .. })) >= 3);
}

pub fn streams_of_many_conns_never_mix(h: &mut dyn Harness) {
    const CONNS: usize = 16;
    const EACH_BYTES: usize = 20_000;
    h.serve(echo(), CONNS as u32);
    let socks: Vec<Sock> = (0..CONNS).map(|_| h.dial()).collect();
    let texts: Vec<_> = (0..CONNS)
        .map(|at| text(100 + at as u64, EACH_BYTES))
        .collect();
    let (mut sent, mut got) = ([0; CONNS], [0; CONNS]);
    let mut rng = Rng::new(10);
    while got.iter().any(|&bytes| bytes < EACH_BYTES) {
        let at = rng.below(CONNS as u64) as usize;
        let piece = (rng.below(1500) as usize).min(EACH_BYTES - sent[at]);
        h.send(socks[at], &texts[at][sent[at]..sent[at] + piece]);
        sent[at] += piece;
        let at = rng.below(CONNS as u64) as usize;
        let answer = h.read(socks[at], sent[at] - got[at]);
        assert!(
            answer == texts[at][got[at]..sent[at]],
            "the bytes of another conn"
        );
        got[at] = sent[at];
    }
}
