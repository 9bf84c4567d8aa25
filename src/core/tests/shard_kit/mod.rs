//! A shard on a bench: a driver of two dozen lines whose clock, bytes and mail the test holds in its hands.

#![allow(dead_code, clippy::unwrap_used, clippy::result_large_err)] // each test binary uses its own part of the kit

use std::cell::Cell;
use std::sync::Arc;
use weir_core::ask::{Answer, Ask, Held, LedgerAnswer, Mode, Outcome, ReservationState};
use weir_core::limit::bans::BanPolicy;
use weir_core::limit::gcra::{Policy, Rate};
use weir_core::limit::lease::{LeaseDraw, LeaseGrant, ShardId};
use weir_core::limit::rule::Rule;
use weir_core::mail::{Addr, Mail};
use weir_core::order::contract::Money;
use weir_core::port::{CloseCause, ConnId, Effects, Event, Handler, Input, Op};
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::shard::Shard;
use weir_core::shard::config::{BanLimits, KeyedLimit, RequestSignatures, Role, ShardConfig};
use weir_core::shard::conns::Timeouts;
use weir_core::time::{Mono, Now, WallMs};
use weir_core::view::{SkuView, WinnersFilter};
use weir_proto::addr::Source;
use weir_proto::ids::{ActivityId, PathId, ReservationId, SkuId, SkuKey, UserId};
use weir_proto::signature::{SignatureKey, SignatureKeys, Signed, sign_request};
use weir_proto::ticket::{
    Claims, DeviceClaim, KeyRing, NonceClaim, TicketKey, mint_compact, mint_jws,
};

pub const OPENS_AT: u64 = 1_800_000_000_000;
pub const SKU: SkuKey = SkuKey {
    activity: ActivityId(10_001),
    sku: SkuId(90_001),
};
pub const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

pub fn sale() -> Sale {
    let money = Money {
        minor: 1990,
        currency: *b"CNY",
    };
    let sku = Sku {
        id: SKU.sku,
        first_stock: 10,
        quantity_max: 1,
        once_per_activity: false,
        unit_price: money,
        unpaid_timeout_ms: 60_000,
        budget: Rate::per_second(40_000),
        sold_out_ttl_ms: 3_000,
    };
    Sale {
        activities: vec![Activity {
            id: SKU.activity,
            version: 8,
            path_id: PathId::new(b"p_7vKh2P").unwrap(),
            opens_at: WallMs(OPENS_AT),
            closes_at: WallMs(OPENS_AT + 3_600_000),
            retention_ms: 86_400_000,
            device_salt: [9; 32],
            skus: vec![sku],
        }],
    }
}

pub fn keyed(rate: Rate, capacity: u32) -> KeyedLimit {
    let policy = Policy::new(rate, capacity).unwrap();
    KeyedLimit {
        rule: Rule::gcra(policy),
        shadow: None,
        overflow: policy,
        slots: 4096,
    }
}

pub fn config() -> ShardConfig {
    let free = || keyed(Rate::per_second(1_000_000), 1_000_000);
    ShardConfig {
        shard: ShardId(0),
        shard_boot: 77,
        seed: 1,
        sale: Arc::new(sale()),
        keys: Arc::new(KeyRing::new(TicketKey::new(b"k1", SECRET).unwrap(), None).unwrap()),
        payment_key: None,
        signature: None,
        source: Source::Peer,
        trusted: Arc::new([]),
        origins: Arc::new([b"https://shop.example".to_vec()]),
        conns_max: 16,
        conns_per_source_max: 65_536,
        connect: free(),
        timeouts: Timeouts {
            head_ms: 5_000,
            body_ms: 5_000,
            idle_ms: 30_000,
            write_ms: 10_000,
            linger_ms: 2_000,
        },
        instance: Policy::new(Rate::per_second(1_000_000), 1_000_000).unwrap(),
        ip: free(),
        user: keyed(
            Rate {
                tokens: 1,
                per_ns: 2_000_000_000,
            },
            3,
        ),
        device: free(),
        status: free(),
        rate_limit_headers: true,
        deny: Arc::default(),
        bans: BanLimits {
            user: BanPolicy {
                strikes: 20,
                window_ms: 30_000,
                first_ms: 10_000,
                max_ms: 600_000,
                forget_ms: 600_000,
            },
            ip: BanPolicy {
                strikes: 0,
                window_ms: 30_000,
                first_ms: 10_000,
                max_ms: 60_000,
                forget_ms: 600_000,
            },
            slots: 256,
        },
        inflight_max: 64,
        status_inflight_max: 8,
        sku_inflight_max: 64,
        sku_inflight_min: 1,
        user_inflight_max: 8,
        payments_max: 8,
        request_budget_ms: 100,
        payment_budget_ms: 2_000,
        drain_ms: 5_000,
        leeway_ms: 500,
        known_max: 1024,
        log_admitted_every: 0,
        log_refused_every: 0,
        log_failed_every: 0,
        is_ledger_remote: false,
        role: Role::Whole,
        user_hash_key: [3; 32],
    }
}

/// The bench.
pub struct Kit {
    pub shard: Shard,
    pub fx: Effects,
    pub now: Now,
    /// Everything the shard wrote, per slot.
    pub out: Vec<Vec<u8>>,
    pub ops: Vec<Op>,
    pub mail: Vec<(Addr, Mail)>,
    /// Unconsumed bytes, per slot.
    kept: Vec<Vec<u8>>,
    receiving: Vec<bool>,
    /// Peers that will send no more.
    ended: Vec<bool>,
    pub accepting: bool,
    /// Clients take nothing by themselves: see [`Kit::take`].
    pub slow: bool,
    leasing: bool,
}

impl Kit {
    pub fn new(config: ShardConfig) -> Self {
        let now = Now {
            mono: Mono(1_000_000_000),
            wall: WallMs(OPENS_AT + 1_000),
        };
        let conns_max = config.conns_max;
        let mut kit = Self {
            shard: Shard::new(now, config),
            fx: Effects::new(conns_max),
            now,
            out: vec![Vec::new(); conns_max],
            ops: Vec::new(),
            mail: Vec::new(),
            kept: vec![Vec::new(); conns_max],
            receiving: vec![true; conns_max],
            ended: vec![false; conns_max],
            accepting: false,
            slow: false,
            leasing: false,
        };
        kit.shard.on_start(now, &mut kit.fx);
        kit.end_turn();
        kit
    }

    /// A shard with a view of the SKU and tokens to spend.
    pub fn open(config: ShardConfig) -> Self {
        let mut kit = Self::new(config);
        kit.view(|_| {});
        kit.lease();
        kit
    }

    pub fn view(&mut self, change: impl FnOnce(&mut SkuView)) {
        let mut view = SkuView {
            sku: SKU,
            boot: 1,
            version: 1,
            stock_epoch: 0,
            sold_out: false,
            open: true,
            mode: Mode::Normal,
            poisoned: false,
            winners: Arc::new(WinnersFilter::default()),
        };
        change(&mut view);
        self.event(Event::Mail(Mail::View(view)));
        self.end_turn();
    }

    /// From now on every draw is granted in full.
    pub fn lease(&mut self) {
        self.leasing = true;
        self.grant_draws();
        self.end_turn();
    }

    fn grant_draws(&mut self) {
        let mut draws = Vec::new();
        self.mail.retain(|(_, mail)| match mail {
            Mail::LeaseDraw(draw) => {
                draws.push(*draw);
                false
            }
            _ => true,
        });
        for draw in draws {
            let LeaseDraw {
                shard_boot,
                seq,
                want,
                ..
            } = draw;
            let grant = LeaseGrant {
                sku: SKU,
                owner_boot: 1,
                shard_boot,
                seq,
                tokens: want,
                ttl_ms: 3_600_000,
                retry_ms: 10,
            };
            self.event(Event::Mail(Mail::LeaseGrant(grant)));
        }
    }

    pub fn conn(slot: u32) -> ConnId {
        ConnId {
            slot,
            generation: 1,
        }
    }

    pub fn connect(&mut self, slot: u32) {
        self.connect_from(slot, "198.51.100.7:4000");
    }

    pub fn connect_from(&mut self, slot: u32, peer: &str) {
        self.kept[slot as usize].clear();
        self.out[slot as usize].clear();
        self.receiving[slot as usize] = true;
        self.ended[slot as usize] = false;
        self.fx.open_conn(Self::conn(slot));
        self.event(Event::Accepted {
            conn: Self::conn(slot),
            peer: peer.parse().unwrap(),
        });
    }

    /// The peer is gone.
    pub fn hang_up(&mut self, slot: u32) {
        let conn = Self::conn(slot);
        self.fx.forget_conn(conn);
        self.event(Event::Closed {
            conn,
            cause: CloseCause::Reset,
        });
    }

    pub fn event(&mut self, event: Event<'_>) {
        self.shard.on_event(self.now, event, &mut self.fx);
    }

    /// Bytes arrive on `slot`; the turn goes on.
    pub fn bytes(&mut self, slot: u32, bytes: &[u8]) {
        self.kept[slot as usize].extend_from_slice(bytes);
        self.show(slot, false);
    }

    /// Bytes arrive on `slot`, and the peer's end right behind them.
    pub fn bytes_and_end(&mut self, slot: u32, bytes: &[u8]) {
        self.ended[slot as usize] = true;
        self.kept[slot as usize].extend_from_slice(bytes);
        self.show(slot, true);
    }

    /// True when the shard has ended its side of `slot`.
    pub fn finished(&self, slot: u32) -> bool {
        let is_finish = |op: &Op| matches!(op, Op::Finish(conn) if conn.slot == slot);
        self.ops.iter().any(is_finish)
    }

    pub fn show(&mut self, slot: u32, ended: bool) {
        if !self.receiving[slot as usize] {
            return;
        }
        let consumed = Cell::new(0);
        let kept = std::mem::take(&mut self.kept[slot as usize]);
        self.event(Event::Received {
            conn: Self::conn(slot),
            input: Input::new(&kept, ended, &consumed),
        });
        self.kept[slot as usize] = kept[consumed.get()..].to_vec();
    }

    /// A slow client takes so many bytes, at most all that there are.
    pub fn take(&mut self, slot: u32, bytes: usize) {
        let conn = Self::conn(slot);
        self.fx.sent(conn, bytes.min(self.fx.unsent_bytes(conn)));
        if self.fx.unsent_bytes(conn) == 0 {
            self.event(Event::Sent { conn });
        }
        self.end_turn();
    }

    /// The turn ends: decisions, then writes.
    pub fn end_turn(&mut self) {
        self.shard.on_flush(self.now, &mut self.fx);
        let mut sent = Vec::new();
        while let Some(conn) = self.fx.next_dirty() {
            let mut buffer = Vec::new();
            self.fx.take_pending(conn, &mut buffer);
            self.out[conn.slot as usize].extend_from_slice(&buffer);
            if !self.slow {
                self.fx.sent(conn, buffer.len());
                sent.push(conn);
            }
        }
        for conn in sent {
            self.shard
                .on_event(self.now, Event::Sent { conn }, &mut self.fx);
        }
        // As in a driver's turn: what was sent may let a paused connection read again.
        self.shard.on_flush(self.now, &mut self.fx);
        let mut ops = Vec::new();
        self.fx.take_ops(&mut ops);
        let mail = &mut self.mail;
        self.fx.deliver_posts(|to, post| {
            mail.push((to, post));
            Ok(())
        });
        if self.leasing {
            self.grant_draws();
        }
        for op in ops {
            self.ops.push(op);
            match op {
                Op::Accept(on) => self.accepting = on,
                Op::Receive(conn, on) => {
                    let was = std::mem::replace(&mut self.receiving[conn.slot as usize], on);
                    if on && !was && !self.kept[conn.slot as usize].is_empty() {
                        self.show(conn.slot, self.ended[conn.slot as usize]);
                        self.end_turn();
                    }
                }
                Op::Close(conn) => {
                    self.fx.forget_conn(conn);
                    self.shard.on_event(
                        self.now,
                        Event::Closed {
                            conn,
                            cause: CloseCause::Local,
                        },
                        &mut self.fx,
                    );
                }
                _ => {}
            }
        }
    }

    pub fn advance_ms(&mut self, ms: u64) {
        self.now.mono = self.now.mono.plus_ms(ms);
        self.now.wall = self.now.wall.plus_ms(ms);
    }

    /// Time passes; ticks come when they are due.
    pub fn run_ms(&mut self, ms: u64) {
        let end = self.now.mono.plus_ms(ms);
        let base = self.now;
        while let Some(due) = self.shard.next_deadline().filter(|&due| due <= end) {
            let at = due.max(self.now.mono);
            let step_ms = at.since(base.mono) / 1_000_000;
            self.now = Now {
                mono: at,
                wall: base.wall.plus_ms(step_ms),
            };
            self.event(Event::Tick);
            self.end_turn();
            if self.shard.next_deadline().is_some_and(|next| next <= at) {
                self.now.mono = self.now.mono.plus_ns(1);
            }
        }
        self.now = Now {
            mono: end,
            wall: base.wall.plus_ms(ms),
        };
    }

    /// One request on a connection of its own; the reply's status and body.
    pub fn ask_once(&mut self, slot: u32, bytes: &[u8]) -> (u16, String) {
        self.out[slot as usize].clear();
        self.bytes(slot, bytes);
        self.end_turn();
        self.replies(slot).into_iter().next().expect("one reply")
    }

    /// The replies written on `slot` so far.
    pub fn replies(&self, slot: u32) -> Vec<(u16, String)> {
        let mut replies = Vec::new();
        let mut rest = &self.out[slot as usize][..];
        while !rest.is_empty() {
            let head_end = rest
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
                .expect("a whole head")
                + 4;
            let head = std::str::from_utf8(&rest[..head_end]).unwrap();
            let status: u16 = head[9..12].parse().unwrap();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .map_or(0, |text| text.parse().unwrap());
            replies.push((
                status,
                String::from_utf8(rest[head_end..head_end + length].to_vec()).unwrap(),
            ));
            rest = &rest[head_end + length..];
        }
        replies
    }

    pub fn asks(&mut self) -> Vec<Ask> {
        let mut asks = Vec::new();
        self.mail.retain(|(_, mail)| match mail {
            Mail::Ask(ask) => {
                asks.push(*ask);
                false
            }
            _ => true,
        });
        asks
    }

    pub fn answer(&mut self, ask: &Ask, answer: LedgerAnswer) {
        self.outcome(ask, Outcome::Done(answer));
    }

    pub fn outcome(&mut self, ask: &Ask, outcome: Outcome) {
        self.event(Event::Mail(Mail::Answer(Answer {
            id: ask.id,
            outcome,
        })));
        self.end_turn();
    }
}

pub fn held(number: u64) -> Held {
    Held {
        reservation: ReservationId(number),
        state: ReservationState::Reserved,
        quantity: 1,
    }
}

pub fn claims(user: u64, nonce: u8) -> Claims {
    let mut raw = [nonce; 16];
    raw[..8].copy_from_slice(&user.to_be_bytes());
    Claims {
        activity: SKU.activity,
        sku: SKU.sku,
        user: UserId(user),
        activity_version: 8,
        path_id: PathId::new(b"p_7vKh2P").unwrap(),
        nonce: NonceClaim::Raw(raw),
        device: DeviceClaim::Unbound,
        not_before_ms: OPENS_AT,
        expires_at_ms: OPENS_AT + 600_000,
    }
}

pub fn ticket(user: u64, nonce: u8, compact: bool) -> Vec<u8> {
    let key = TicketKey::new(b"k1", SECRET).unwrap();
    let mut out = Vec::new();
    if compact {
        mint_compact(&claims(user, nonce), &key, &mut out).unwrap();
    } else {
        mint_jws(&claims(user, nonce), &key, &mut out).unwrap();
    }
    out
}

pub fn submit(user: u64, request: &str, ticket: &[u8]) -> Vec<u8> {
    let body = format!(
        "{{\"request_id\":\"{request}\",\"activity_id\":10001,\"sku_id\":90001,\"user_id\":{user},\"quantity\":1}}"
    );
    let ticket = std::str::from_utf8(ticket).unwrap();
    format!(
        "POST /v1/seckill/p_7vKh2P HTTP/1.1\r\nHost: weir.test\r\nAuthorization: Bearer {ticket}\r\nContent-Type: application/json\r\n\
         Accept-Language: en\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// What a shard is given when it asks for signatures, with keys of these ids; the secret of key n is n bytes of n.
pub fn signatures(kids: &[&str], skew_ms: u64) -> RequestSignatures {
    let mut keys = kids.iter().map(|kid| signature_key(kid));
    let keys = SignatureKeys::new(keys.next().unwrap(), keys.next()).unwrap();
    RequestSignatures {
        keys: Arc::new(keys),
        skew_ms,
    }
}

pub fn signature_key(kid: &str) -> SignatureKey {
    let secret: Vec<u8> = kid.bytes().cycle().take(32).collect();
    SignatureKey::new(kid.as_bytes(), &secret).unwrap()
}

/// `request` with its signature in front of its other headers.
pub fn signed(request: &[u8], kid: &str, time_ms: u64) -> Vec<u8> {
    let text = std::str::from_utf8(request).unwrap();
    let (line, rest) = text.split_once("\r\n").unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let mut words = line.split(' ');
    let signed = Signed {
        method: words.next().unwrap().as_bytes(),
        target: words.next().unwrap().as_bytes(),
        body: body.as_bytes(),
    };
    let mut header = Vec::new();
    sign_request(signed, &signature_key(kid), time_ms, &mut header);
    let header = String::from_utf8(header).unwrap();
    format!("{line}\r\nX-Weir-Signature: {header}\r\n{rest}").into_bytes()
}

pub fn status(request: &str, ticket: &[u8]) -> Vec<u8> {
    let ticket = std::str::from_utf8(ticket).unwrap();
    format!(
        "GET /v1/activities/10001/skus/90001/requests/{request} HTTP/1.1\r\nHost: weir.test\r\nAuthorization: Bearer {ticket}\r\n\r\n"
    )
    .into_bytes()
}
