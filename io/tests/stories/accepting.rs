//! How clients come in.

use super::subject::{Told, echo};
use super::{End, Harness, Sock, nudge};
use std::collections::HashSet;
use std::fs::File;
use weir_core::mail::Mail;
use weir_core::port::Event;

pub fn accept_pauses_and_resumes(h: &mut dyn Harness) {
    let mut echo = echo();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Mail(Mail::ViewsAsk(number)) => ctx.fx.accept(number.0 == 1),
            event => echo(ctx, event),
        }),
        16,
    );
    let first = h.dial();
    h.until("accepted", &mut || seen.accepted() == 1);
    h.mail(0);
    nudge(h, &seen);
    nudge(h, &seen); // the pause takes effect at the end of a turn
    let waiting: Vec<Sock> = (0..3).map(|_| h.dial()).collect();
    h.send(first, b"still served");
    assert_eq!(h.read(first, 12), b"still served");
    nudge(h, &seen);
    assert_eq!(seen.accepted(), 1);
    h.mail(1);
    for sock in waiting {
        h.send(sock, b"served now");
        assert_eq!(h.read(sock, 10), b"served now");
    }
    assert_eq!(seen.accepted(), 4);
}

pub fn at_the_cap_clients_wait_for_a_slot(h: &mut dyn Harness) {
    let seen = h.serve(echo(), 2);
    let mut socks: Vec<Sock> = (0..7).map(|_| h.dial()).collect();
    for sock in &socks {
        h.send(*sock, b"hello");
    }
    for served in 1..=7_usize {
        h.until("a slot is used", &mut || {
            seen.accepted() >= (served + 1).min(7)
        });
        nudge(h, &seen);
        assert!(
            seen.accepted() - seen.closed() <= 2,
            "more conns than slots"
        );
        // The kernel's backlog is first come, first served.
        let sock = socks.remove(0);
        assert_eq!(h.read(sock, 5), b"hello");
        h.half_close(sock);
        assert_eq!(h.read_to_end(sock), (vec![], End::Fin));
        h.close(sock);
        h.until("closed", &mut || seen.closed() >= served);
    }
    assert_eq!(seen.accepted(), 7);
}

pub fn many_conns_at_once(h: &mut dyn Harness) {
    const CONNS: usize = 200;
    let seen = h.serve(echo(), 256);
    let socks: Vec<Sock> = (0..CONNS).map(|_| h.dial()).collect();
    for round in 0..3 {
        for sock in &socks {
            h.send(*sock, format!("{round} {:03}", sock.0).as_bytes());
        }
        for sock in socks.iter().rev() {
            assert_eq!(
                h.read(*sock, 5),
                format!("{round} {:03}", sock.0).as_bytes()
            );
        }
    }
    assert_eq!(seen.accepted(), CONNS);
    let peers: HashSet<_> = seen
        .all()
        .into_iter()
        .filter_map(|told| match told {
            Told::Accepted(_, peer) => Some(peer),
            _ => None,
        })
        .collect();
    assert_eq!(peers.len(), CONNS, "each client has an address of its own");
    for sock in &socks {
        h.half_close(*sock);
    }
    h.until("all closed", &mut || seen.closed() == CONNS);
}

/// In a process that may open few descriptors (EMFILE).
pub fn without_descriptors_accepting_pauses_and_comes_back(h: &mut dyn Harness) {
    let mut echo = echo();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Mail(_) => ctx.fx.accept(true),
            Event::Accepted { .. } => ctx.fx.accept(false),
            event => echo(ctx, event),
        }),
        64,
    );
    let first = h.dial();
    h.send(first, b"before");
    assert_eq!(h.read(first, 6), b"before");
    nudge(h, &seen);
    let waiting = h.dial();
    h.send(waiting, b"patience");
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
        assert!(
            hoard.len() < 4096,
            "this process was to have few descriptors"
        );
    }
    h.mail(1);
    for _ in 0..3 {
        let (failed, mut tries) = (h.stats().accept_errors.get(), 0);
        while h.stats().accept_errors.get() == failed {
            h.send(first, b"during");
            assert_eq!(h.read(first, 6), b"during", "who is in is served");
            tries += 1;
            assert!(tries < 1_000_000, "accepting is not tried again");
        }
    }
    assert_eq!(seen.accepted(), 1);
    drop(hoard);
    assert_eq!(h.read(waiting, 8), b"patience");
    assert_eq!(seen.accepted(), 2);
}

/// In the same process: clients whose sockets are in the ring's own table come, are answered and are let go.
pub fn without_descriptors_direct_clients_are_served_to_their_end(h: &mut dyn Harness) {
    const CLIENTS: usize = 20;
    let mut echo = echo();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Mail(Mail::ViewsAsk(number)) => ctx.fx.accept(number.0 == 1),
            event => echo(ctx, event),
        }),
        64,
    );
    h.mail(0);
    nudge(h, &seen);
    nudge(h, &seen);
    let socks: Vec<Sock> = (0..CLIENTS).map(|_| h.dial()).collect();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
        assert!(
            hoard.len() < 4096,
            "this process was to have few descriptors"
        );
    }
    h.mail(1);
    for sock in &socks {
        h.send(*sock, b"hello");
        assert_eq!(h.read(*sock, 5), b"hello");
        h.half_close(*sock);
        assert_eq!(h.read_to_end(*sock), (vec![], End::Fin));
    }
    h.until("all closed", &mut || seen.closed() == CLIENTS);
    assert_eq!(h.stats().accept_errors.get(), 0);
    drop(hoard);
}

pub fn accepting_switched_often_in_a_turn_ends_as_last_said(h: &mut dyn Harness) {
    let mut echo = echo();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Mail(Mail::ViewsAsk(number)) => {
                for _ in 0..3 {
                    ctx.fx.accept(number.0 != 1);
                    ctx.fx.accept(number.0 == 1);
                }
            }
            event => echo(ctx, event),
        }),
        16,
    );
    for round in 1..=20 {
        h.mail(1);
        let sock = h.dial();
        h.send(sock, b"served");
        assert_eq!(h.read(sock, 6), b"served");
        assert_eq!(seen.accepted(), round);
        h.mail(0);
        h.mail(1); // off and on again, perhaps before the kernel has heard of the first
        h.half_close(sock);
        h.until("closed", &mut || seen.closed() == round);
        h.close(sock);
    }
}

pub fn clients_who_leave_before_the_accept_harm_nobody(h: &mut dyn Harness) {
    let mut echo = echo();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Mail(Mail::ViewsAsk(number)) => ctx.fx.accept(number.0 == 1),
            event => echo(ctx, event),
        }),
        4,
    );
    h.mail(0);
    nudge(h, &seen);
    nudge(h, &seen);
    let before = seen.accepted();
    for at in 0..30 {
        let sock = h.dial();
        h.try_send(sock, b"never mind");
        if at % 2 == 0 {
            h.reset(sock);
        } else {
            h.close(sock);
        }
    }
    let stays = h.dial();
    h.send(stays, b"I am still here");
    nudge(h, &seen);
    assert_eq!(seen.accepted(), before);
    h.mail(1);
    assert_eq!(h.read(stays, 15), b"I am still here");
    h.until("the others are closed", &mut || {
        seen.closed() + 1 == seen.accepted()
    });
}

pub fn connect_and_reset_churn_leaves_every_slot_usable(h: &mut dyn Harness) {
    const SLOTS: usize = 8;
    let seen = h.serve(echo(), SLOTS as u32);
    for round in 0..300 {
        let sock = h.dial();
        if round % 3 == 1 {
            h.try_send(sock, b"x");
        }
        h.reset(sock);
    }
    let socks: Vec<Sock> = (0..SLOTS).map(|_| h.dial()).collect();
    for sock in &socks {
        h.send(*sock, b"hello");
    }
    for sock in socks {
        assert_eq!(h.read(sock, 5), b"hello");
    }
    assert_eq!(seen.accepted() - seen.closed(), SLOTS, "a slot is lost");
}
