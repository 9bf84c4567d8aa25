//! The simulator as a world: repeatable by seed, honest about crashes, faults and clocks.
//! What it shows a handler is held against the real driver in `conformance.rs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use weir_core::limit::lease::ShardId;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{CloseCause, ConnId, Connect, ConnectToken, Effects, Event, Handler};
use weir_core::rng::Rng;
use weir_core::time::{Mono, NS_PER_MS, NS_PER_S, Now, WallMs};
use weir_io::sim::{Config, Faults, Listen, MailFate, Route, SegmentFate, Span, Status, World};

const PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
const SHARD: Addr = Addr::Shard(ShardId(0));

/// Sends back what it gets, and counts.
#[derive(Default)]
struct Echo {
    accepted: u32,
    mails: Vec<u16>,
    walls: Vec<WallMs>,
    monos: Vec<Mono>,
}

impl Handler for Echo {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}
    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        self.walls.push(now.wall);
        self.monos.push(now.mono);
        match event {
            Event::Accepted { .. } => self.accepted += 1,
            Event::Received { conn, mut input } => {
                fx.outbox(conn).extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
                if input.ended() {
                    fx.finish(conn);
                }
            }
            Event::Mail(Mail::ViewsAsk(ShardId(number))) => self.mails.push(number),
            _ => {}
        }
    }
    fn on_flush(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// Connects, sends `text` in pieces on ticks, half-closes, keeps the echo until the end.
struct Caller {
    text: Vec<u8>,
    sent_bytes: usize,
    conn: Option<ConnId>,
    echoed: Vec<u8>,
    next: Option<Mono>,
    rng: Rng,
    ends: Vec<CloseCause>,
    failed: u32,
}

impl Caller {
    fn new(seed: u64, bytes: usize) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            text: (0..bytes).map(|_| rng.next_u64() as u8).collect(),
            sent_bytes: 0,
            conn: None,
            echoed: Vec::new(),
            next: None,
            rng,
            ends: Vec::new(),
            failed: 0,
        }
    }
}

impl Handler for Caller {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        fx.connect(Connect {
            token: ConnectToken(1),
            to: PORT,
            from: None,
            deadline: now.mono.plus_ms(1000),
        });
    }
    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Connected { conn, .. } => {
                self.conn = Some(conn);
                self.next = Some(now.mono);
            }
            Event::ConnectFailed { .. } => self.failed += 1,
            Event::Tick => {
                let Some(conn) = self.conn else { return };
                let left = self.text.len() - self.sent_bytes;
                let piece = (1 + self.rng.below(700) as usize).min(left);
                fx.outbox(conn)
                    .extend_from_slice(&self.text[self.sent_bytes..][..piece]);
                self.sent_bytes += piece;
                self.next = Some(now.mono.plus_ns(self.rng.below(2_000_000)));
                if self.sent_bytes == self.text.len() {
                    fx.finish(conn);
                    self.next = None;
                }
            }
            Event::Received { conn, mut input } => {
                self.echoed.extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
                if input.ended() {
                    fx.close(conn);
                }
            }
            Event::Closed { cause, .. } => {
                self.ends.push(cause);
                self.next = None;
            }
            _ => {}
        }
    }
    fn on_flush(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        self.next
    }
}

/// Posts numbered mails below `count` to the shard, one per turn.
struct Poster {
    next: u16,
    count: u16,
}

impl Handler for Poster {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}
    fn on_event(&mut self, _: Now, _: Event<'_>, _: &mut Effects) {}
    fn on_flush(&mut self, _: Now, fx: &mut Effects) {
        if self.next < self.count {
            fx.post(SHARD, Mail::ViewsAsk(ShardId(self.next)));
            self.next += 1;
        }
    }
    fn next_deadline(&self) -> Option<Mono> {
        (self.next < self.count).then_some(Mono(0))
    }
}

fn add_caller(world: &mut World, caller: u16, seed: u64, bytes: usize) {
    let part = Box::new(Caller::new(seed, bytes));
    world.add_part(Addr::Client(caller), part, Listen::No, 1);
}

fn caller(world: &World, caller: u16) -> &Caller {
    world
        .part(Addr::Client(caller))
        .expect("callers never crash")
}

fn world_of_callers(seed: u64, callers: u16) -> World {
    let mut world = World::new(seed, Config::default());
    world.add_part(SHARD, Box::<Echo>::default(), Listen::On(PORT), 64);
    for number in 0..callers {
        add_caller(&mut world, number, seed ^ u64::from(number), 3000);
    }
    world
}

#[test]
fn every_byte_comes_back_in_order_and_the_world_falls_idle() {
    for seed in 0..20 {
        let mut world = world_of_callers(seed, 30);
        assert!(world.run_until_idle(60 * NS_PER_S), "seed {seed}");
        for number in 0..30 {
            let part = caller(&world, number);
            assert_eq!(part.echoed, part.text, "seed {seed} caller {number}");
            assert_eq!(part.ends, [CloseCause::Local]);
        }
        let echo: &Echo = world.part(SHARD).expect("runs");
        assert_eq!(echo.accepted, 30);
        assert!(echo.monos.is_sorted(), "mono stepped back");
        assert_eq!(world.conns_count(SHARD), 0);
    }
}

#[test]
fn one_seed_has_one_hash_and_seeds_differ() {
    let mut hashes = BTreeMap::new();
    for seed in 0..50 {
        let runs = [(); 2].map(|()| {
            let mut world = world_of_callers(seed, 10);
            world.run_for(NS_PER_S);
            world.hash()
        });
        assert_eq!(runs[0], runs[1], "seed {seed} ran two ways");
        if let Some(other) = hashes.insert(runs[0], seed) {
            panic!("seeds {other} and {seed} have one hash");
        }
    }
}

#[test]
fn a_trace_changes_nothing() {
    let mut plain = world_of_callers(3, 5);
    plain.run_for(NS_PER_S);
    let mut traced = world_of_callers(3, 5);
    let (lines_in, lines) = std::sync::mpsc::channel();
    traced.set_trace(Box::new(move |line| {
        lines_in.send(line.to_owned()).expect("the test listens");
    }));
    traced.run_for(NS_PER_S);
    assert_eq!(traced.hash(), plain.hash());
    assert!(lines.try_iter().any(|line| line.contains("Accepted")));
}

#[test]
fn a_crash_resets_peers_refuses_the_next_and_a_restart_serves_again() {
    let mut world = world_of_callers(5, 10);
    world.run_for(3 * NS_PER_MS);
    assert!(world.conns_count(SHARD) > 0, "the crash must meet conns");
    assert!(world.crash(SHARD).is_some());
    assert!(world.crash(SHARD).is_none());
    add_caller(&mut world, 100, 9, 10);
    world.run_for(NS_PER_S);
    assert_eq!(world.status(SHARD), Status::Crashed);
    for number in 0..10 {
        let part = caller(&world, number);
        assert!(
            part.ends == [CloseCause::Reset] || part.failed == 1,
            "caller {number} hangs: {:?}",
            part.ends
        );
    }
    assert_eq!(caller(&world, 100).failed, 1);

    world.restart(SHARD, Box::<Echo>::default());
    add_caller(&mut world, 101, 9, 500);
    assert!(world.run_until_idle(10 * NS_PER_S));
    assert_eq!(caller(&world, 101).echoed, caller(&world, 101).text);
    assert_eq!(world.part::<Echo>(SHARD).expect("runs").accepted, 1);
}

#[test]
fn mail_keeps_its_order_past_a_full_box_and_the_dead_get_none() {
    let config = Config {
        mailbox_max: 2,
        mail_ns: Span {
            min: 1,
            max: 400_000,
        },
        ..Config::default()
    };
    let mut world = World::new(8, config);
    world.add_part(SHARD, Box::<Echo>::default(), Listen::No, 1);
    world.pause(SHARD, NS_PER_MS);
    let poster = Poster {
        next: 0,
        count: 500,
    };
    world.add_part(Addr::Owner, Box::new(poster), Listen::No, 1);
    assert!(world.run_until_idle(10 * NS_PER_S));
    let echo: &Echo = world.part(SHARD).expect("runs");
    assert_eq!(echo.mails, (0..500).collect::<Vec<u16>>());
    assert!(echo.monos[0] >= Mono(NS_PER_MS), "a paused part ran");

    world.crash(SHARD);
    world.part_mut::<Poster>(Addr::Owner).expect("runs").next = 490;
    world.poke(Addr::Owner);
    assert!(world.run_until_idle(NS_PER_S));
    assert_eq!(world.lost_mail_count(), 10);
    world.restart(SHARD, Box::<Echo>::default());
    assert!(world.run_until_idle(NS_PER_S));
    assert!(world.part::<Echo>(SHARD).expect("runs").mails.is_empty());
}

/// Loses every third mail, doubles every fifth; resets some segments.
#[derive(Default)]
struct Mean {
    mails: u32,
}

impl Faults for Mean {
    fn mail(&mut self, _: Now, route: Route, _: &Mail, _: &mut Rng) -> MailFate {
        assert_eq!((route.from.addr, route.to.addr), (Addr::Owner, SHARD));
        self.mails += 1;
        match self.mails {
            number if number % 3 == 0 => MailFate::Lose,
            number if number % 5 == 0 => MailFate::Duplicate { again_ns: 70_000 },
            _ => MailFate::Deliver { delay_ns: 9 },
        }
    }
    fn segment(&mut self, _: Now, _: Route, bytes: usize, rng: &mut Rng) -> SegmentFate {
        assert!(bytes > 0);
        if rng.chance(1, 40) {
            SegmentFate::Reset
        } else {
            SegmentFate::Pass { delay_ns: 100 }
        }
    }
}

#[test]
fn faults_lose_double_and_reset_as_they_say() {
    let mut world = world_of_callers(1, 40);
    world.set_faults(Box::<Mean>::default());
    let poster = Poster { next: 0, count: 30 };
    world.add_part(Addr::Owner, Box::new(poster), Listen::No, 1);
    assert!(world.run_until_idle(60 * NS_PER_S));
    let echo: &Echo = world.part(SHARD).expect("runs");
    assert_eq!(echo.mails.len(), 30 - 10 + 4);
    assert_eq!(world.lost_mail_count(), 10);
    let (mut whole, mut reset) = (0, 0);
    for number in 0..40 {
        let part = caller(&world, number);
        match part.ends[..] {
            [CloseCause::Local] if part.echoed == part.text => whole += 1,
            [CloseCause::Reset] => reset += 1,
            [CloseCause::Local] => assert!(part.text.starts_with(&part.echoed)),
            _ => panic!("caller {number}: {:?}", part.ends),
        }
    }
    assert!(whole > 0 && reset > 0, "{whole} whole, {reset} reset");
    assert_eq!(world.conns_count(SHARD), 0);
}

#[test]
fn a_reader_never_sees_a_gap_where_the_network_reset() {
    let mut resets = 0;
    for seed in 0..60 {
        let mut world = world_of_callers(seed, 40);
        world.set_faults(Box::<Mean>::default());
        assert!(world.run_until_idle(60 * NS_PER_S));
        for number in 0..40 {
            let part = caller(&world, number);
            assert!(part.text.starts_with(&part.echoed), "seed {seed}, {number}");
            resets += usize::from(part.ends[..] == [CloseCause::Reset]);
        }
    }
    assert!(resets > 100, "{resets} resets");
}

#[test]
fn the_wall_clock_steps_and_the_monotonic_one_does_not() {
    let mut world = world_of_callers(2, 1);
    world.run_for(2 * NS_PER_MS);
    let before = world.now();
    world.step_wall(-5_000);
    assert_eq!(world.now().wall.plus_ms(5_000), before.wall);
    assert!(world.run_until_idle(60 * NS_PER_S));
    let echo: &Echo = world.part(SHARD).expect("runs");
    assert!(echo.monos.is_sorted() && !echo.walls.is_sorted());
}

#[test]
fn parts_that_share_an_address_share_its_connects() {
    let other = Addr::Shard(ShardId(1));
    let mut world = world_of_callers(4, 60);
    world.add_part(other, Box::<Echo>::default(), Listen::On(PORT), 64);
    assert!(world.run_until_idle(60 * NS_PER_S));
    let accepted = [SHARD, other].map(|part| world.part::<Echo>(part).expect("runs").accepted);
    assert_eq!(accepted[0] + accepted[1], 60);
    assert!(accepted[0] >= 15 && accepted[1] >= 15, "{accepted:?}");
}
