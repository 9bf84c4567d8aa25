//! A world for the operator's listener: it, parts that say what a test wants, and clients, on the sim driver.

#![allow(clippy::unwrap_used, reason = "test code")]
#![allow(dead_code)] // each test binary uses what it needs

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir::deny::DenyBook;
use weir::keys::OpsToken;
use weir::ops::entropy::Entropy;
use weir::ops::limits::OPS_CONNS_MAX;
use weir::ops::{AuditLog, OpsConfig, OpsListener};
use weir_core::ask::{Answer, Ask, Books, LedgerAnswer, LedgerOp, Mode, Outcome};
use weir_core::limit::deny::DenyList;
use weir_core::limit::gcra::{Policy, Rate};
use weir_core::limit::lease::ShardId;
use weir_core::limit::rule::Rule;
use weir_core::mail::{Addr, BanLift, Mail};
use weir_core::order::contract::Money;
use weir_core::port::{ConnId, Connect, ConnectToken, Effects, Event, Handler};
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::stats::{HotTable, Label, Sample, Stats};
use weir_core::time::{Mono, NS_PER_S, Now, WallMs};
use weir_io::sim::{Config, Listen, World};
use weir_proto::ids::{ActivityId, PathId, SkuId, SkuKey};
use weir_proto::ticket::{KeyRing, TicketKey};

pub const SECRET: &[u8] = b"canary-ticket-secret-0123456789abcdef";
pub const TOKEN: &str = "canary-ops-token-0123456789abcdef01";
pub const SALT: [u8; 32] = *b"canary-device-salt-0123456789abc";
pub const LISTEN: &str = "127.0.0.1:9090";
pub const KEY: SkuKey = SkuKey {
    activity: ActivityId(7),
    sku: SkuId(8),
};
pub const SHARD: Addr = Addr::Shard(ShardId(0));

pub fn sale() -> Arc<Sale> {
    let sku = Sku {
        id: KEY.sku,
        first_stock: 100,
        quantity_max: 2,
        once_per_activity: false,
        unit_price: Money {
            minor: 100,
            currency: *b"CNY",
        },
        unpaid_timeout_ms: 60_000,
        budget: Rate {
            tokens: 5,
            per_ns: 2 * NS_PER_S,
        },
        sold_out_ttl_ms: 2_000,
    };
    Arc::new(Sale {
        activities: vec![Activity {
            id: KEY.activity,
            version: 3,
            path_id: PathId::new(b"p1").unwrap(),
            opens_at: WallMs(0),
            closes_at: WallMs(u64::MAX / 2),
            retention_ms: 0,
            device_salt: SALT,
            skus: vec![sku],
        }],
    })
}

/// The rule of every dimension in this world.
pub fn limit_rule() -> Rule {
    Rule::gcra(Policy::new(Rate::per_second(2), 3).unwrap())
}

pub fn keys() -> Arc<KeyRing> {
    Arc::new(KeyRing::new(TicketKey::new(b"k1", SECRET).unwrap(), None).unwrap())
}

/// A directory of its own for each test.
pub fn fresh_dir() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!(
        "weir-ops-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Says what it is told to say.
pub struct Part {
    pub addr: Addr,
    pub samples: Vec<Sample>,
    pub silent: bool,
    pub asks: Vec<Ask>,
    pub answer: Option<Outcome>,
    pub stats_asks: u32,
    pub hot: Vec<HotTable>,
    /// Lists of who is denied, and bans lifted, as they came.
    pub denied: Vec<Arc<DenyList>>,
    pub lifts: Vec<BanLift>,
}

impl Part {
    pub fn new(addr: Addr, samples: Vec<Sample>) -> Self {
        Self {
            addr,
            samples,
            silent: false,
            asks: Vec::new(),
            answer: Some(Outcome::Done(LedgerAnswer::OpsDone(BOOKS))),
            stats_asks: 0,
            hot: Vec::new(),
            denied: Vec::new(),
            lifts: Vec::new(),
        }
    }
}

pub const BOOKS: Books = Books {
    total: 150,
    free: 120,
    held: 20,
    sold: 9,
    quarantined: 1,
};

impl Handler for Part {
    fn on_start(&mut self, _: Now, _: &mut Effects) {}
    fn on_event(&mut self, _: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(Mail::StatsAsk) => {
                self.stats_asks += 1;
                if !self.silent {
                    let stats = Stats {
                        from: self.addr,
                        samples: self.samples.clone(),
                        hot: self.hot.clone(),
                    };
                    fx.post(Addr::Ops, Mail::Stats(Box::new(stats)));
                }
            }
            Event::Mail(Mail::Deny(list)) => self.denied.push(list),
            Event::Mail(Mail::BanLift(lift)) => self.lifts.push(lift),
            Event::Mail(Mail::Ask(ask)) => {
                self.asks.push(ask);
                if let Some(outcome) = self.answer {
                    let id = ask.id;
                    fx.post(ask.from, Mail::Answer(Answer { id, outcome }));
                }
            }
            _ => {}
        }
    }
    fn on_flush(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// Connects, sends its text, keeps all that comes.
pub struct Client {
    to: SocketAddr,
    text: Vec<u8>,
    pub got: Vec<u8>,
    pub ended: bool,
    pub closed: u32,
    conn: Option<ConnId>,
}

impl Client {
    pub fn new(to: SocketAddr, text: &[u8]) -> Self {
        Self {
            to,
            text: text.to_vec(),
            got: Vec::new(),
            ended: false,
            closed: 0,
            conn: None,
        }
    }
}

impl Handler for Client {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        fx.connect(Connect {
            token: ConnectToken(1),
            to: self.to,
            from: None,
            deadline: now.mono.plus_ms(60_000),
        });
    }
    fn on_event(&mut self, _: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Connected { conn, .. } => {
                self.conn = Some(conn);
                fx.outbox(conn).extend_from_slice(&self.text);
            }
            Event::Received { conn, mut input } => {
                self.got.extend_from_slice(input.bytes());
                input.consume(input.bytes().len());
                if input.ended() {
                    self.ended = true;
                    fx.close(conn);
                }
            }
            Event::Closed { .. } => self.closed += 1,
            _ => {}
        }
    }
    fn on_flush(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// The world.
pub struct Bench {
    pub world: World,
    pub dir: PathBuf,
    listen: SocketAddr,
    clients: u16,
}

pub fn well(name: &'static str, value: u64) -> Sample {
    Sample {
        name,
        label: Label::None,
        value,
    }
}

pub fn owner_samples() -> Vec<Sample> {
    let sku = |name, value| Sample {
        name,
        label: Label::Sku(KEY),
        value,
    };
    vec![
        well("weir_ledger_serving", 1),
        well("weir_ledger_poisoned", 0),
        well("weir_lease_refused", 0),
        well("weir_redis_orders_elsewhere", 0),
        sku("seckill_stock_epoch", 6),
        sku("weir_ledger_units_total", BOOKS.total),
        sku("weir_ledger_units_free", BOOKS.free),
        sku("weir_ledger_units_held", BOOKS.held),
        sku("weir_ledger_units_sold", BOOKS.sold),
        sku("weir_ledger_units_quarantined", BOOKS.quarantined),
        Sample {
            name: "weir_ledger_mode",
            label: Label::SkuMode(KEY, Mode::Degraded),
            value: 1,
        },
    ]
}

pub fn shard_samples(ready: u64) -> Vec<Sample> {
    let label = Label::Shard(ShardId(0));
    let sample = |name, value| Sample { name, label, value };
    vec![
        sample("weir_shard_ready", ready),
        sample("weir_shard_draining", 0),
    ]
}

impl Bench {
    pub fn new() -> Self {
        Self::on(LISTEN, None)
    }

    pub fn on(listen: &str, token: Option<OpsToken>) -> Self {
        let dir = fresh_dir();
        let audit = AuditLog::open(&dir.join("audit.jsonl")).unwrap();
        Self::with_audit(listen, token, audit, dir)
    }

    pub fn with_audit(
        listen: &str,
        token: Option<OpsToken>,
        audit: AuditLog,
        dir: PathBuf,
    ) -> Self {
        let listen: SocketAddr = listen.parse().unwrap();
        let ops = OpsListener::new(OpsConfig {
            books: weir::ops::BooksAt::Here,
            listen,
            token,
            sale: sale(),
            keys: keys(),
            entropy: Entropy::new([9; 32]),
            parts: vec![SHARD, Addr::Owner, Addr::Worker],
            sources: vec![Box::new(|| vec![well("process_cpu_seconds_total", 1_230)])],
            audit,
            rules: [limit_rule(); 4],
            deny: DenyBook::open(&[], &dir.join("deny.txt")).unwrap(),
            user_hash_key: [3; 32],
            boot: 5,
        })
        .unwrap();
        let mut world = World::new(1, Config::default());
        world.add_part(Addr::Ops, Box::new(ops), Listen::On(listen), OPS_CONNS_MAX);
        for (addr, samples) in [
            (SHARD, shard_samples(1)),
            (Addr::Owner, owner_samples()),
            (Addr::Worker, vec![well("weir_orders_store_healthy", 1)]),
        ] {
            world.add_part(addr, Box::new(Part::new(addr, samples)), Listen::No, 0);
        }
        Self {
            world,
            dir,
            listen,
            clients: 0,
        }
    }

    pub fn part(&mut self, addr: Addr) -> &mut Part {
        self.world.part_mut(addr).unwrap()
    }

    /// Starts a client that sends `text`.
    pub fn client(&mut self, text: &[u8]) -> Addr {
        let addr = Addr::Client(self.clients);
        self.clients += 1;
        let client = Client::new(self.listen, text);
        self.world.add_part(addr, Box::new(client), Listen::No, 1);
        addr
    }

    pub fn got(&self, client: Addr) -> &Client {
        self.world.part(client).unwrap()
    }

    /// Sends `text`, waits for the end, gives status, head and body.
    pub fn send(&mut self, text: &[u8]) -> (u16, String, String) {
        let client = self.client(text);
        let done = |world: &World| world.part::<Client>(client).unwrap().ended;
        assert!(self.world.run_until(30 * NS_PER_S, done), "no answer");
        split(&self.got(client).got)
    }

    pub fn get(&mut self, path: &str) -> (u16, String, String) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
    }

    pub fn post(&mut self, path: &str, body: &str) -> (u16, serde_json::Value) {
        let (status, _, body) = self.send(post_text(path, body).as_bytes());
        (status, serde_json::from_str(&body).unwrap())
    }

    pub fn audit_lines(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.dir.join("audit.jsonl")).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub fn last_op(&mut self) -> LedgerOp {
        self.part(Addr::Owner).asks.last().unwrap().op
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub fn post_text(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:9090\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Status, head and body of the one answer; its length must be right and it must close.
pub fn split(bytes: &[u8]) -> (u16, String, String) {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .expect("a length");
    if !body.is_empty() {
        assert_eq!(length.parse::<usize>().unwrap(), body.len());
    }
    (status, head.to_owned(), body.to_owned())
}
