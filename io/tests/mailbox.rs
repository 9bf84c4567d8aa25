//! The driver of parts without sockets, and the post office, between real threads.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use weir_core::limit::lease::ShardId;
use weir_core::mail::{Addr, MAILBOX_MAX, Mail};
use weir_core::port::{Connect, ConnectError, ConnectToken, Effects, Event, Handler};
use weir_core::time::{Mono, Now};
use weir_io::drain::DrainSwitch;
use weir_io::mailbox::{MailboxConfig, run_mailbox};
use weir_io::post::{PostOffice, TakeError};
use weir_io::stats::DriverStats;

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers each `ViewsAsk(n)` to `to` with the same; counts flushes with news; ticks once.
struct Relay {
    to: Addr,
    tick_at: Option<Mono>,
    told: Sender<&'static str>,
}

impl Handler for Relay {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        self.tick_at = self.tick_at.map(|_| now.mono.plus_ms(20));
        fx.connect(Connect {
            token: ConnectToken(7),
            to: "127.0.0.1:1".parse().unwrap(),
            from: None,
            deadline: now.mono.plus_ms(1000),
        });
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(mail) => fx.post(self.to, mail),
            Event::Tick => {
                assert!(self.tick_at.take().is_some_and(|at| at <= now.mono));
                self.told.send("tick").unwrap();
            }
            Event::ConnectFailed { token, error } => {
                assert_eq!((token, error), (ConnectToken(7), ConnectError::LocalLimit));
                self.told.send("no sockets here").unwrap();
            }
            Event::Drain => fx.stop(),
            other => panic!("{other:?}"),
        }
    }

    fn on_flush(&mut self, _: Now, _: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        self.tick_at
    }
}

fn number(mail: &Mail) -> u16 {
    match mail {
        Mail::ViewsAsk(ShardId(n)) => *n,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mail_passes_three_parts_in_order_and_none_is_lost_while_they_sleep_and_wake() {
    let post = Arc::new(PostOffice::new([Addr::Owner, Addr::Store, Addr::Ops]).unwrap());
    let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
    let stats = Arc::new(DriverStats::default());
    let (told, tellings) = channel();
    let threads: Vec<_> = [(Addr::Owner, Addr::Store), (Addr::Store, Addr::Ops)]
        .map(|(addr, to)| {
            let relay = Box::new(Relay {
                to,
                tick_at: Some(Mono(0)),
                told: told.clone(),
            });
            let (post, drain, stats) = (Arc::clone(&post), Arc::clone(&drain), Arc::clone(&stats));
            let config = MailboxConfig { addr, cpu: None };
            std::thread::spawn(move || run_mailbox(config, relay, post, drain, stats))
        })
        .into();
    let ops = post.take_outside(Addr::Ops).unwrap();
    // One by one: everybody sleeps in between.
    for n in 0..500 {
        post.deliver(Addr::Owner, Mail::ViewsAsk(ShardId(n)))
            .unwrap();
        assert_eq!(number(&ops.recv_timeout(PATIENCE).unwrap()), n);
    }
    // All at once, more than a box holds.
    let sender = {
        let post = Arc::clone(&post);
        std::thread::spawn(move || {
            for n in 0..60_000 {
                let mut mail = Mail::ViewsAsk(ShardId(n));
                while let Err(back) = post.deliver(Addr::Owner, mail) {
                    mail = back;
                    std::thread::yield_now();
                }
            }
        })
    };
    for n in 0..60_000 {
        assert_eq!(number(&ops.recv_timeout(PATIENCE).unwrap()), n);
    }
    sender.join().unwrap();
    let mut told: Vec<_> = (0..4)
        .map(|_| tellings.recv_timeout(PATIENCE).unwrap())
        .collect();
    told.sort_unstable();
    assert_eq!(told, ["no sockets here", "no sockets here", "tick", "tick"]);
    drain.throw();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(stats.mail_in.get(), 2 * 60_500);
    assert!(ops.try_recv().is_none());
}

#[test]
fn a_full_box_gives_the_mail_back_and_mail_to_nobody_is_counted() {
    let post = PostOffice::new([Addr::Ops, Addr::Ops]).unwrap();
    for n in 0..MAILBOX_MAX {
        post.deliver(Addr::Ops, Mail::ViewsAsk(ShardId(n as u16)))
            .unwrap();
    }
    let back = post
        .deliver(Addr::Ops, Mail::ViewsAsk(ShardId(9)))
        .unwrap_err();
    assert_eq!(number(&back), 9);
    assert_eq!(post.waiting(Addr::Ops), MAILBOX_MAX);
    post.deliver(Addr::Log, Mail::StatsAsk).unwrap();
    assert_eq!(post.dropped.get(), 1);
    assert_eq!(
        post.take_outside(Addr::Log).unwrap_err(),
        TakeError::Unknown
    );
    let ops = post.take_outside(Addr::Ops).unwrap();
    assert_eq!(post.take_outside(Addr::Ops).unwrap_err(), TakeError::Taken);
    for n in 0..MAILBOX_MAX {
        assert_eq!(number(&ops.try_recv().unwrap()), n as u16);
    }
    assert!(ops.recv_timeout(Duration::from_millis(1)).is_none());
    drop(ops);
    assert!(
        post.take_outside(Addr::Ops).is_ok(),
        "a box given back can be taken again"
    );
}

#[test]
fn a_part_that_stops_gives_its_last_posts_a_bounded_time() {
    let post = Arc::new(PostOffice::new([Addr::Owner, Addr::Ops]).unwrap());
    let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
    while post.deliver(Addr::Ops, Mail::StatsAsk).is_ok() {}
    post.deliver(Addr::Owner, Mail::StatsAsk).unwrap();
    drain.throw();
    let (told, _tellings) = channel();
    let relay = Box::new(Relay {
        to: Addr::Ops,
        tick_at: None,
        told,
    });
    let config = MailboxConfig {
        addr: Addr::Owner,
        cpu: None,
    };
    let stats = Arc::new(DriverStats::default());
    // Returns although the box of Ops stays full for ever.
    run_mailbox(config, relay, Arc::clone(&post), drain, Arc::clone(&stats)).unwrap();
    assert!(stats.mail_refused.get() > 0);
    assert_eq!(post.waiting(Addr::Ops), MAILBOX_MAX);
}
