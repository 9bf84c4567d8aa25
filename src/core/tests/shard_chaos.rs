//! Connections that do anything: bytes cut anywhere, ends and resets at any time, answers late, doubled, out of order or
//! never. Every request that was read whole gets one reply, in order; nothing stalls, spins or panics.

#![allow(clippy::unwrap_used, clippy::result_large_err)] // the seam gives mail back whole

mod shard_kit;

use shard_kit::{SKU, config, held, submit, ticket};
use std::cell::Cell;
use std::sync::Arc;
use weir_core::ask::{Answer, Ask, AskId, Failure, LedgerAnswer, LedgerOp, Mode, Outcome};
use weir_core::limit::lease::LeaseGrant;
use weir_core::mail::Mail;
use weir_core::port::{CloseCause, ConnId, Effects, Event, Handler, Input, Op};
use weir_core::rng::Rng;
use weir_core::shard::Shard;
use weir_core::time::{Mono, Now, WallMs};
use weir_core::view::{SkuView, WinnersFilter};
use weir_proto::addr::{Cidr, Source};

const SLOTS: u32 = 6;

/// One connection as its client and the driver see it.
#[derive(Default)]
struct Peer {
    id: Option<ConnId>,
    /// What the client will still send.
    plan: Vec<u8>,
    /// Codes that the whole plan is owed, when nothing goes wrong.
    owed: usize,
    kept: Vec<u8>,
    receive_on: bool,
    show: bool,
    client_ended: bool,
    end_shown: bool,
    wants_end: bool,
    finish: bool,
    out: Vec<u8>,
    /// The kernel takes nothing for now.
    stuck: bool,
    in_flight: usize,
    clean: bool,
}

struct World {
    shard: Shard,
    fx: Effects,
    now: Now,
    rng: Rng,
    peers: Vec<Peer>,
    generation: u32,
    asks: Vec<Ask>,
    mail: Vec<Mail>,
    version: u64,
    proxied: bool,
    replies: usize,
    stops: usize,
}

fn request(rng: &mut Rng, user: u64) -> Vec<u8> {
    let number = rng.below(4);
    let name = format!("request-{number:04}");
    let ticket_of = ticket(user, number as u8, rng.chance(1, 2));
    let text = std::str::from_utf8(&ticket_of).unwrap();
    let body = format!(
        "{{\"request_id\":\"{name}\",\"activity_id\":10001,\"sku_id\":90001,\"user_id\":{user},\"quantity\":1}}"
    );
    let head = format!(
        "POST /v1/seckill/p_7vKh2P HTTP/1.1\r\nHost: weir.test\r\nAuthorization: Bearer {text}\r\nContent-Type: application/json\r\n"
    );
    match rng.below(8) {
        0 => b"GET /nowhere HTTP/1.1\r\nHost: weir.test\r\n\r\n".to_vec(),
        1 => b"OPTIONS * HTTP/1.1\r\nHost: weir.test\r\n\r\n".to_vec(),
        2 => b"\r\nHEAD /v1/seckill/p_7vKh2P HTTP/1.1\r\nHost: weir.test\r\n\r\n".to_vec(),
        3 => {
            let (first, last) = body.split_at(10);
            format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{:x};a=\"b\"\r\n{first}\r\n{:x}\r\n{last}\r\n0\r\nX-T: 1\r\n\r\n",
                first.len(),
                last.len()
            )
            .into_bytes()
        }
        4 => format!(
            "{head}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes(),
        5 => shard_kit::status(&name, &ticket_of),
        _ => submit(user, &name, &ticket_of),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let now = Now {
            mono: Mono(1_000_000_000),
            wall: WallMs(shard_kit::OPENS_AT + 1_000),
        };
        let mut limits = config();
        limits.conns_max = SLOTS as usize;
        limits.inflight_max = 8;
        limits.status_inflight_max = 4;
        let proxied = rng.chance(1, 4);
        if proxied {
            limits.source = Source::ProxyProtocol;
            limits.trusted = Arc::new([Cidr::parse("198.51.100.0/24").unwrap()]);
        }
        let mut peers = Vec::new();
        peers.resize_with(SLOTS as usize, Peer::default);
        let mut world = Self {
            shard: Shard::new(now, limits),
            fx: Effects::new(SLOTS as usize),
            now,
            rng,
            peers,
            generation: 0,
            asks: Vec::new(),
            mail: Vec::new(),
            version: 0,
            proxied,
            replies: 0,
            stops: 0,
        };
        world.shard.on_start(now, &mut world.fx);
        world.view();
        world.end_turn();
        world
    }

    fn event(&mut self, event: Event<'_>) {
        self.shard.on_event(self.now, event, &mut self.fx);
    }

    fn view(&mut self) {
        self.version += 1;
        let sold_out = self.rng.chance(1, 4);
        let mode = match self.rng.below(4) {
            0 => Mode::Closed,
            1 => Mode::Degraded,
            _ => Mode::Normal,
        };
        let view = SkuView {
            sku: SKU,
            boot: 1 + self.version / 20,
            version: self.version,
            stock_epoch: self.version,
            sold_out,
            open: self.rng.chance(9, 10),
            mode,
            poisoned: self.rng.chance(1, 10),
            winners: Arc::new(WinnersFilter::default()),
        };
        self.event(Event::Mail(Mail::View(view)));
    }

    fn open(&mut self, slot: usize) {
        self.generation += 1;
        let id = ConnId {
            slot: slot as u32,
            generation: self.generation,
        };
        let user = self.rng.below(5) + 1;
        let count = self.rng.below(160) as usize;
        let mut plan = Vec::new();
        if self.proxied {
            plan.extend_from_slice(b"PROXY TCP4 203.0.113.9 198.51.100.1 4000 443\r\n");
        }
        for _ in 0..count {
            plan.extend(request(&mut self.rng, user));
        }
        let mut clean = true;
        if self.rng.chance(1, 4) {
            clean = false;
            let at = self.rng.below(plan.len() as u64 + 1) as usize;
            plan.insert(at, self.rng.below(256) as u8);
        }
        self.peers[slot] = Peer {
            id: Some(id),
            plan,
            owed: count,
            receive_on: true,
            wants_end: self.rng.chance(3, 4),
            clean,
            ..Peer::default()
        };
        self.fx.open_conn(id);
        self.event(Event::Accepted {
            conn: id,
            peer: "198.51.100.7:4000".parse().unwrap(),
        });
    }

    fn receive(&mut self, slot: usize) {
        let peer = &mut self.peers[slot];
        let Some(conn) = peer.id else { return };
        let most = match self.rng.below(4) {
            0 => 2,
            1 => 60_000,
            _ => 5_000,
        };
        let count = (self.rng.below(most) as usize).min(peer.plan.len());
        peer.kept.extend(peer.plan.drain(..count));
        if peer.plan.is_empty() && peer.wants_end {
            peer.client_ended = true;
        }
        let fresh = count > 0 || peer.show || (peer.client_ended && !peer.end_shown);
        if !peer.receive_on || !fresh {
            return;
        }
        peer.show = false;
        peer.end_shown |= peer.client_ended;
        let (kept, ended) = (std::mem::take(&mut peer.kept), peer.client_ended);
        let consumed = Cell::new(0);
        let input = Input::new(&kept, ended, &consumed);
        self.event(Event::Received { conn, input });
        self.peers[slot].kept = kept[consumed.get()..].to_vec();
        self.close_if_both_ended(slot);
    }

    fn close_if_both_ended(&mut self, slot: usize) {
        let peer = &self.peers[slot];
        if peer.id.is_some_and(|id| self.fx.unsent_bytes(id) == 0) && peer.finish && peer.end_shown
        {
            self.close(slot, CloseCause::Local);
        }
    }

    fn close(&mut self, slot: usize, cause: CloseCause) {
        let Some(conn) = self.peers[slot].id.take() else {
            return;
        };
        self.fx.forget_conn(conn);
        self.event(Event::Closed { conn, cause });
        self.count_replies(slot, cause);
    }

    /// What the client got: whole replies, one per request when nothing went wrong.
    fn count_replies(&mut self, slot: usize, cause: CloseCause) {
        let peer = &self.peers[slot];
        let text = String::from_utf8(peer.out.clone()).unwrap();
        let interim = text.matches("HTTP/1.1 100 Continue\r\n").count();
        let finals = text.matches("HTTP/1.1 ").count() - interim;
        self.replies += finals;
        let is_whole = peer.clean && cause == CloseCause::Local && peer.plan.is_empty();
        if is_whole && peer.wants_end && peer.kept.is_empty() && !text.contains("Connection: close")
        {
            assert_eq!(finals, peer.owed, "slot {slot}: {text}");
        }
    }

    fn send(&mut self, slot: usize, all: bool) {
        let peer = &mut self.peers[slot];
        let Some(conn) = peer.id else { return };
        if peer.in_flight == 0 {
            let mut buffer = Vec::new();
            self.fx.take_pending(conn, &mut buffer);
            peer.in_flight = buffer.len();
            peer.out.extend_from_slice(&buffer);
        }
        if peer.in_flight == 0 || (peer.stuck && !all) {
            return;
        }
        self.fx.sent(conn, peer.in_flight);
        peer.in_flight = 0;
        if self.fx.unsent_bytes(conn) == 0 {
            self.event(Event::Sent { conn });
            self.close_if_both_ended(slot);
        }
    }

    fn end_turn(&mut self) {
        self.shard.on_flush(self.now, &mut self.fx);
        let (mail, asks) = (&mut self.mail, &mut self.asks);
        let mut draws = Vec::new();
        self.fx.deliver_posts(|_, post| {
            match post {
                Mail::Ask(ask) => asks.push(ask),
                Mail::LeaseDraw(draw) => draws.push(draw),
                other => mail.push(other),
            }
            Ok(())
        });
        for draw in draws {
            let grant = LeaseGrant {
                sku: SKU,
                owner_boot: 1,
                shard_boot: draw.shard_boot,
                seq: draw.seq,
                tokens: draw.want,
                ttl_ms: 2_000,
                retry_ms: 10,
            };
            self.event(Event::Mail(Mail::LeaseGrant(grant)));
        }
        while self.fx.next_dirty().is_some() {}
        for slot in 0..self.peers.len() {
            self.send(slot, false);
        }
        let mut ops = Vec::new();
        self.fx.take_ops(&mut ops);
        for op in ops {
            let find = |conn: ConnId, peers: &[Peer]| {
                (peers[conn.slot as usize].id == Some(conn)).then_some(conn.slot as usize)
            };
            match op {
                Op::Close(conn) => {
                    if let Some(slot) = find(conn, &self.peers) {
                        self.close(slot, CloseCause::Shutdown);
                    }
                }
                Op::Finish(conn) => {
                    if let Some(slot) = find(conn, &self.peers) {
                        self.peers[slot].finish = true;
                        self.close_if_both_ended(slot);
                    }
                }
                Op::Receive(conn, on) => {
                    if let Some(slot) = find(conn, &self.peers) {
                        let peer = &mut self.peers[slot];
                        peer.receive_on = on;
                        peer.show |= on && !peer.kept.is_empty();
                    }
                }
                Op::Stop => self.stops += 1,
                _ => {}
            }
        }
        self.shard.audit();
    }

    fn answer(&mut self, at: usize) {
        let ask = self.asks.swap_remove(at);
        let outcome = self.outcome(&ask.op);
        for _ in 0..1 + self.rng.below(2) {
            let id = ask.id;
            self.event(Event::Mail(Mail::Answer(Answer { id, outcome })));
        }
        let id = AskId(self.rng.next_u64());
        self.event(Event::Mail(Mail::Answer(Answer { id, outcome })));
    }

    fn outcome(&mut self, op: &LedgerOp) -> Outcome {
        let held = held(self.rng.below(9) + 1);
        let done = match (op, self.rng.below(7)) {
            (_, 0) => return Outcome::Failed(Failure::Busy),
            (_, 1) => return Outcome::Unknown,
            (LedgerOp::Lookup(_), 2 | 3) => LedgerAnswer::Found(held),
            (LedgerOp::Lookup(_), 4) => LedgerAnswer::TableFull,
            (LedgerOp::Lookup(_), _) => LedgerAnswer::NotFound,
            (_, 2) => LedgerAnswer::SoldOut {
                epoch: self.version,
            },
            (_, 3) => LedgerAnswer::Repeated(held),
            (_, 4) => LedgerAnswer::AlreadyHolds(held),
            _ => LedgerAnswer::Granted(held),
        };
        Outcome::Done(done)
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono = self.now.mono.plus_ms(ms).plus_ns(self.rng.below(1_000_000));
        let back = self.rng.chance(1, 20);
        self.now.wall = if back {
            WallMs(self.now.wall.0 - 500)
        } else {
            self.now.wall.plus_ms(ms)
        };
        if self
            .shard
            .next_deadline()
            .is_some_and(|due| due <= self.now.mono)
        {
            self.event(Event::Tick);
        }
    }

    fn step(&mut self) {
        for _ in 0..=self.rng.below(4) {
            let slot = self.rng.below(u64::from(SLOTS)) as usize;
            match self.rng.below(20) {
                0..=9 if self.peers[slot].id.is_some() => self.receive(slot),
                0..=9 => self.open(slot),
                10 => self.peers[slot].stuck ^= true,
                11 if self.rng.chance(1, 20) => self.close(slot, CloseCause::Reset),
                12 if self.rng.chance(1, 8) => self.view(),
                13..=17 if !self.asks.is_empty() => {
                    let at = self.rng.below(self.asks.len() as u64) as usize;
                    self.answer(at);
                }
                18 if self.rng.chance(1, 4) => {
                    self.asks.clear(); // lost
                }
                _ => {
                    let ms = self.rng.below(400);
                    self.pass(ms);
                }
            }
        }
        self.end_turn();
        let mut ticks = 0;
        while self
            .shard
            .next_deadline()
            .is_some_and(|due| due <= self.now.mono)
        {
            ticks += 1;
            assert!(ticks < 8, "woken in vain");
            self.event(Event::Tick);
            self.end_turn();
        }
    }

    /// Everybody behaves from now on: all is answered and closed within bounded turns, and then nothing wakes us in vain.
    fn settle(&mut self) {
        for peer in &mut self.peers {
            peer.stuck = false;
            peer.wants_end = true;
        }
        let mut turns = 0;
        while self.peers.iter().any(|peer| peer.id.is_some()) {
            turns += 1;
            assert!(turns < 20_000, "a connection stalls");
            for slot in 0..self.peers.len() {
                self.receive(slot);
            }
            while !self.asks.is_empty() {
                self.answer(0);
            }
            self.end_turn();
            if turns % 20 == 0 {
                self.pass(50);
            }
        }
    }
}

#[test]
fn connections_that_do_anything_are_answered_in_order_and_end() {
    let mut replies = 0;
    for seed in 0..150 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
        }
        let drains = seed % 3 == 0;
        if drains {
            // What was not read yet may go unanswered now.
            world.peers.iter_mut().for_each(|peer| peer.clean = false);
            world.event(Event::Drain);
            world.end_turn();
        }
        world.settle();
        world.end_turn();
        assert_eq!(world.stops, usize::from(drains));
        replies += world.replies;
    }
    assert!(
        replies > 10_000,
        "{replies} replies: the clients did too little"
    );
}
