//! Turns: deadlines, mail, the end.

use super::subject::Told;
use super::{End, Harness, Sock, nudge};
use weir_core::limit::lease::ShardId;
use weir_core::mail::Mail;
use weir_core::port::{CloseCause, ConnId, Event};
use weir_core::rng::Rng;

pub fn ten_thousand_deadlines_fire_in_order_and_never_early(h: &mut dyn Harness) {
    const DEADLINES: usize = 10_000;
    let seen = h.serve(
        Box::new(|ctx, event| {
            let Event::Mail(Mail::ViewsAsk(ShardId(number))) = event else {
                return;
            };
            if number == 0 {
                let mut rng = Rng::new(6);
                while ctx.due.len() < DEADLINES {
                    ctx.due.insert(ctx.now.mono.0 + rng.below(50_000_000)); // within 50 ms
                }
            } else {
                ctx.due.insert(ctx.now.mono.plus_ms(40).0);
            }
        }),
        1,
    );
    let ticks = |told: &Told| matches!(told, Told::Tick { .. });
    h.mail(1);
    for _ in 0..50 {
        nudge(h, &seen); // a turn for another reason brings no tick that is not due: `check` looks
    }
    h.until("the lonely one fires", &mut || seen.count(ticks) == 1);
    h.mail(0);
    h.until("all fire", &mut || seen.count(ticks) == DEADLINES + 1);
    let all = seen.all();
    let fired: Vec<_> = all
        .iter()
        .filter_map(|told| match told {
            Told::Tick { due, at } => Some((*due, *at)),
            _ => None,
        })
        .collect();
    assert!(fired.iter().map(|(due, _)| due).is_sorted());
    assert!(fired.iter().map(|(_, at)| at).is_sorted());
    nudge(h, &seen);
    assert_eq!(
        seen.count(ticks),
        DEADLINES + 1,
        "a tick without a deadline"
    );
}

pub fn mail_of_many_parts_keeps_each_ones_order(h: &mut dyn Harness) {
    const SENDERS: u16 = 4;
    const EACH: u16 = 10_000; // together more than one box holds
    let seen = h.serve(Box::new(|_, _| {}), 1);
    h.mail_from_many(SENDERS, EACH);
    let mails = usize::from(SENDERS) * usize::from(EACH);
    h.until("all mail is there", &mut || {
        seen.count(|told| matches!(told, Told::Mail(_))) == mails
    });
    let all = seen.all();
    for sender in 0..SENDERS {
        let of_sender = all.iter().filter_map(|told| match told {
            Told::Mail(number) if number / EACH == sender => Some(number),
            _ => None,
        });
        assert!(of_sender.is_sorted(), "sender {sender}");
    }
}

pub fn drain_while_busy_finishes_every_reply(h: &mut dyn Harness) {
    const CLIENTS: usize = 8;
    let mut asked: Vec<ConnId> = Vec::new();
    let mut draining = false;
    let seen = h.serve(
        Box::new(move |ctx, event| {
            match event {
                Event::Received { conn, mut input } => {
                    let all = input.bytes().len();
                    if all > 0 && !asked.contains(&conn) {
                        asked.push(conn);
                    }
                    input.consume(all);
                }
                Event::Drain => {
                    draining = true;
                    ctx.fx.accept(false);
                    ctx.fx.stop();
                }
                _ => {}
            }
            if draining {
                for conn in asked.drain(..) {
                    ctx.fx.outbox(conn).resize(100_000, b'r');
                    ctx.fx.finish(conn);
                }
            }
        }),
        16,
    );
    let socks: Vec<Sock> = (0..CLIENTS).map(|_| h.dial()).collect();
    for sock in &socks {
        h.send(*sock, b"?");
    }
    h.until("all asked", &mut || {
        seen.count(|told| matches!(told, Told::Received { .. })) == CLIENTS
    });
    h.drain();
    for sock in socks {
        let (reply, end) = h.read_to_end(sock);
        assert_eq!((reply.len(), end), (100_000, End::Fin));
        h.close(sock);
    }
    h.join(); // nobody asks it: the handler said stop, and the last conn is closed
    assert_eq!(seen.causes(), [CloseCause::Local; CLIENTS]);
    assert_eq!(seen.count(|told| *told == Told::Drain), 1);
}

pub fn stop_waits_for_the_last_conn(h: &mut dyn Harness) {
    let mut stopping = false;
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Mail(_) => {
                stopping = true;
                ctx.fx.stop();
            }
            Event::Received { conn, mut input } => {
                ctx.fx.outbox(conn).extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
                if stopping {
                    ctx.fx.finish(conn);
                }
            }
            _ => {}
        }),
        4,
    );
    let sock = h.dial();
    h.send(sock, b"one");
    assert_eq!(h.read(sock, 3), b"one");
    h.mail(0);
    nudge(h, &seen);
    h.send(sock, b"two");
    assert_eq!(h.read_to_end(sock), (b"two".to_vec(), End::Fin));
    h.close(sock);
    h.join();
    assert_eq!(seen.causes(), [CloseCause::Local]);
}

pub fn a_flood_of_mail_and_due_deadlines_starve_no_client(h: &mut dyn Harness) {
    const SENDERS: u16 = 3;
    const EACH: u16 = 12_000;
    let mut left = 2_000;
    let mut echo = super::subject::echo();
    let seen = h.serve(
        Box::new(move |ctx, event| {
            if let Event::Mail(_) | Event::Tick = event
                && ctx.due.is_empty()
                && left > 0
            {
                left -= 1;
                ctx.due.insert(ctx.now.mono.0); // due at once, again and again
            }
            echo(ctx, event);
        }),
        8,
    );
    let socks: Vec<Sock> = (0..8).map(|_| h.dial()).collect();
    h.mail_from_many(SENDERS, EACH);
    for round in 0..50 {
        for sock in &socks {
            h.send(*sock, format!("{round:02}").as_bytes());
        }
        for sock in &socks {
            assert_eq!(h.read(*sock, 2), format!("{round:02}").as_bytes());
        }
    }
    let mails = usize::from(SENDERS) * usize::from(EACH);
    h.until("all mail is there", &mut || {
        seen.count(|told| matches!(told, Told::Mail(_))) == mails
    });
    h.until("all ticks are there", &mut || {
        seen.count(|told| matches!(told, Told::Tick { .. })) == 2_000
    });
}

pub fn a_deadline_that_moves_is_kept_where_it_is(h: &mut dyn Harness) {
    const FAR_MS: u64 = 3_600_000;
    let seen = h.serve(
        Box::new(|ctx, event| {
            if let Event::Mail(Mail::ViewsAsk(ShardId(number))) = event {
                ctx.due.clear();
                match number {
                    0 => {}
                    1 => drop(ctx.due.insert(ctx.now.mono.plus_ms(FAR_MS).0)),
                    _ => drop(ctx.due.insert(ctx.now.mono.plus_ms(5).0)),
                }
            }
        }),
        1,
    );
    let ticks = |told: &Told| matches!(told, Told::Tick { .. });
    for round in 1..=10 {
        h.mail(1);
        nudge(h, &seen);
        h.mail(2); // nearer: the sleep that is under way must not outlast it
        h.until("the near one fires", &mut || seen.count(ticks) == round);
        h.mail(2);
        h.mail(1); // away again, mostly before it was due
        h.mail(0);
        nudge(h, &seen);
        let fired = seen.count(ticks);
        nudge(h, &seen);
        assert_eq!(
            seen.count(ticks),
            fired,
            "a tick of a deadline that was taken back"
        );
        if fired > round {
            return; // this machine is slow enough for the second to have been due: nothing is wrong
        }
    }
}

pub fn a_stop_while_clients_keep_sending_ends(h: &mut dyn Harness) {
    const CLIENTS: usize = 6;
    let mut open: Vec<ConnId> = Vec::new();
    let seen = h.serve(
        Box::new(move |ctx, event| match event {
            Event::Accepted { conn, .. } => open.push(conn),
            Event::Received { conn, mut input } => {
                ctx.fx.outbox(conn).extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
            }
            Event::Mail(_) => {
                ctx.fx.accept(false);
                ctx.fx.stop();
                open.iter().for_each(|&conn| ctx.fx.close(conn));
            }
            _ => {}
        }),
        CLIENTS as u32,
    );
    let socks: Vec<Sock> = (0..CLIENTS).map(|_| h.dial()).collect();
    h.until("all are in", &mut || seen.accepted() == CLIENTS);
    for sock in &socks {
        h.try_send(*sock, &[b'x'; 100_000]); // echoed, and nobody reads
    }
    h.mail(1);
    h.join();
    assert_eq!(seen.causes(), [CloseCause::Local; CLIENTS]);
}
