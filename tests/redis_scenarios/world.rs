//! One asker with a desk, one or two modelled servers, one virtual clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use weir::sim::redis::{Conduct, Fate, Identity, Keys, Piece, RedisModel, Reply};
use weir_core::ask::{Answer, Ask, AskId, LedgerOp, Open, OpsRef, Reserve};
use weir_core::limits::LINK_SENT_MAX;
use weir_core::mail::Addr;
use weir_core::order::contract::Money;
use weir_core::port::{Effects, Event, Handler};
use weir_core::redis::breaker;
use weir_core::redis::desk::{Desk, DeskConfig, DeskCounts};
use weir_core::redis::endpoint::{Endpoint, Host};
use weir_core::redis::link::Patience;
use weir_core::redis::link::fault::LinkFault;
use weir_core::redis::link::greeting::{Auth, HomeId, Words};
use weir_core::redis::script::Script;
use weir_core::redis::step::{SkuSteps, StepPlan};
use weir_core::redis::watch::Watch;
use weir_core::time::{Mono, NS_PER_MS, Now, WallMs};
use weir_core::view::SkuView;
use weir_io::sim::{Config, Listen, Span, World};
use weir_proto::ids::{ActivityId, SkuId, SkuKey, UserId};
use weir_proto::resp::Value;
use weir_proto::text::Text;

/// What is sold.
pub const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
/// Units put on sale.
pub const STOCK: u64 = 10_000;
/// The asker.
pub const ASKER: Addr = Addr::Client(0);
/// Sunday 2026-11-01: when the world begins.
const WALL_START_MS: u64 = 1_793_491_200_000;

/// Server A or B.
pub fn server(number: u16) -> (Addr, SocketAddr) {
    let port = 6_380 + number;
    (
        Addr::Client(10 + number),
        SocketAddr::from(([127, 0, 0, 1], port)),
    )
}

/// One reserve of a story: user `number`, `number + 1` units, so that answers cannot be mistaken for each other.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Names it.
    pub number: u64,
    /// Sent then, after the start of the story.
    pub at_ms: u64,
    /// Its asker gives up so much later.
    pub patience_ms: u64,
}

impl Wish {
    fn ask(&self, start: Mono) -> Ask {
        let text = format!("request-{}", self.number);
        let reserve = Reserve {
            sku: SKU,
            user: UserId(self.number),
            request_id: Text::new(text.as_bytes()).unwrap(),
            nonce: Text::new(format!("nonce-{}", self.number).as_bytes()).unwrap(),
            nonce_until: WallMs(WALL_START_MS + 3_600_000),
            quantity: units(self.number),
        };
        Ask {
            from: ASKER,
            id: AskId(self.number),
            deadline: start.plus_ms(self.at_ms + self.patience_ms),
            op: LedgerOp::Reserve(reserve),
        }
    }
}

/// Units of a wish.
pub fn units(number: u64) -> u32 {
    number as u32 + 1
}

/// The part that asks, as a shard would.
pub struct Asker {
    /// The desk under test.
    pub desk: Desk,
    wishes: Vec<Wish>,
    start: Mono,
    next: usize,
    /// Every answer, in order, with its time.
    pub answers: Vec<(Mono, Answer)>,
    watch: Option<Watch>,
    /// Every view that its watch showed, with its time.
    pub views: Vec<(Mono, SkuView)>,
}

impl Asker {
    fn ask_due(&mut self, now: Now, fx: &mut Effects) {
        while let Some(wish) = self.wishes.get(self.next) {
            if self.start.plus_ms(wish.at_ms) > now.mono {
                break;
            }
            let ask = wish.ask(self.start);
            self.next += 1;
            self.desk.ask(now, ask, fx);
        }
    }
}

impl Handler for Asker {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        self.desk.turn(now, fx);
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Connected { conn, token } => {
                assert!(self.desk.connected(now, conn, token, fx));
            }
            Event::ConnectFailed { token, error } => {
                assert!(self.desk.connect_failed(now, token, error));
            }
            Event::Received { conn, mut input } => {
                assert!(self.desk.received(now, conn, &mut input, fx));
            }
            Event::Closed { conn, .. } => {
                assert!(self.desk.closed(now, conn, fx));
            }
            Event::Tick | Event::Sent { .. } | Event::Mail(_) => {}
            Event::Drain => fx.stop(),
            Event::Accepted { .. } => panic!("nobody connects to the asker"),
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        self.ask_due(now, fx);
        if let Some(watch) = &mut self.watch {
            while let Some(news) = self.desk.next_news() {
                let view = watch.hear(now, news);
                self.views.extend(view.map(|view| (now.mono, view)));
            }
            watch.turn(now, &mut self.desk, fx);
        }
        self.desk.turn(now, fx);
        while let Some((_, answer)) = self.desk.next_answer() {
            self.answers.push((now.mono, answer));
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        let wish = self.wishes.get(self.next);
        let wish = wish.map(|wish| self.start.plus_ms(wish.at_ms));
        let watch = self.watch.as_ref().and_then(Watch::next_deadline);
        [wish, watch, self.desk.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// How one reply of one server leaves instead of whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Which server.
    pub server: u16,
    /// Which reply of it.
    pub reply: u64,
    /// So many bytes come first.
    pub bytes: usize,
    /// The rest comes so much later; `None`: the connection closes there.
    pub gap_ms: Option<u64>,
}

/// What a server saw: replies' lengths, and what became of each reserve that reached it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Bytes of each reply.
    pub replies: Vec<usize>,
    /// By request id: how each arrival of it ended.
    pub reserves: BTreeMap<String, Vec<Arrival>>,
    /// Commands by name.
    pub commands: BTreeMap<String, u64>,
}

/// What happened to a reserve that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Carried out, or not answered: its asker must not send it again.
    Open,
    /// Answered with "not executed".
    Refused,
}

/// A story's conduct with the cut laid over it, and notes of what was seen.
pub struct Watched {
    /// The story's own.
    pub inner: Box<dyn Conduct>,
    /// Of this server, if it is its reply that is cut.
    pub cut: Option<Cut>,
    /// Where the notes go.
    pub seen: Arc<Mutex<Seen>>,
    /// The request of the reserve in hand.
    pub asked: Option<String>,
}

impl Conduct for Watched {
    fn fate(&mut self, now: Now, conn: u32, words: &[&[u8]]) -> Fate {
        let fate = self.inner.fate(now, conn, words);
        let mut seen = self.seen.lock().unwrap();
        let name = String::from_utf8_lossy(words[0]).to_uppercase();
        *seen.commands.entry(name.clone()).or_default() += 1;
        let request = words.iter().find(|word| word.starts_with(b"request-"));
        let request = request.filter(|_| name == "EVALSHA");
        self.asked = request.map(|request| String::from_utf8_lossy(request).into_owned());
        if self.asked.is_some() {
            *seen.commands.entry("RESERVE".to_string()).or_default() += 1;
        }
        if let Some(request) = &self.asked {
            // Open until an answer says otherwise.
            let arrivals = seen.reserves.entry(request.clone()).or_default();
            arrivals.push(Arrival::Open);
        }
        fate
    }

    fn pieces(&mut self, now: Now, number: u64, mut reply: Vec<u8>) -> Vec<(Mono, Piece)> {
        let mut seen = self.seen.lock().unwrap();
        seen.replies.push(reply.len());
        let is_refusal = reply.starts_with(b"-") && !reply.starts_with(b"-ERR");
        if let Some(request) = self.asked.take().filter(|_| is_refusal) {
            let arrivals = seen.reserves.get_mut(&request);
            *arrivals.unwrap().last_mut().unwrap() = Arrival::Refused;
        }
        drop(seen);
        match self.cut.filter(|cut| cut.reply == number) {
            Some(cut) if cut.bytes < reply.len() => {
                let rest = reply.split_off(cut.bytes);
                let first = (now.mono, Piece::Bytes(reply));
                match cut.gap_ms {
                    Some(gap_ms) => vec![first, (now.mono.plus_ms(gap_ms), Piece::Bytes(rest))],
                    None => vec![first, (now.mono, Piece::Close)],
                }
            }
            _ => self.inner.pieces(now, number, reply),
        }
    }
}

/// What a world is made of.
pub struct Plan {
    /// Conduct of each server, A first.
    pub conducts: Vec<Box<dyn Conduct>>,
    /// Who each of them is. The books are those of A, whoever has them.
    pub identities: Vec<Identity>,
    /// The desk knows only A, and asks it for the others.
    pub is_cluster: bool,
    /// The servers have every script.
    pub scripts_loaded: bool,
    /// The asker listens to events and pulls snapshots.
    pub watches: bool,
    /// The desk's password.
    pub password: Option<&'static str>,
    /// What is asked.
    pub wishes: Vec<Wish>,
}

/// The plan of what is sold.
pub fn step_plan() -> StepPlan {
    StepPlan {
        sku: SKU,
        reservations_max: 20_000,
        unit_price: Money {
            minor: 100,
            currency: *b"CNY",
        },
        keep_until: WallMs(WALL_START_MS + 86_400_000),
        policy: 1,
        ids_above: 0,
    }
}

/// What a story came to.
pub struct Ended {
    /// The world, for a closer look.
    pub world: World,
    /// What each server saw.
    pub seen: Vec<Seen>,
    /// Units that each server still has.
    pub free: Vec<u64>,
    /// Everything that each server stores, before and after.
    pub keys_before: Vec<Keys>,
    /// See `keys_before`.
    pub keys: Vec<Keys>,
}

impl Ended {
    /// The asker as it is at the end.
    pub fn asker(&self) -> &Asker {
        self.world.part(ASKER).expect("the asker is there")
    }

    /// The desk as it is at the end.
    pub fn desk(&self) -> &Desk {
        &self.asker().desk
    }

    /// What the desk counted.
    pub fn counts(&self) -> DeskCounts {
        *self.desk().counts()
    }

    /// Servers that are not who they were.
    pub fn changed_servers(&self) -> usize {
        self.desk().changed().count()
    }

    /// What the watch showed: when, in ms after the start, which epoch, and whether it was sold out.
    pub fn views(&self) -> Vec<(u64, u64, bool)> {
        let views = self.asker().views.iter();
        views
            .map(|(at, view)| {
                let ms = (at.0 / NS_PER_MS).saturating_sub(SETTLED_MS);
                (ms, view.stock_epoch, view.sold_out)
            })
            .collect()
    }

    /// Why a server cannot be asked.
    pub fn fault(&self, server: usize) -> Option<LinkFault> {
        self.desk().nodes().nth(server).and_then(|(_, fault)| fault)
    }
}

/// The words of one command, as a client would send them.
fn words_of(frame: &[u8]) -> Vec<Vec<u8>> {
    let Value::Array(items) = weir_proto::resp::read(frame) else {
        panic!("a command is an array");
    };
    items.map(|item| item.text().unwrap().to_vec()).collect()
}

fn operate(model: &mut RedisModel, words: &[&[u8]]) -> Reply {
    let reply = model.operate(WALL_START_MS, words);
    assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
    reply
}

/// Stock is there before the story begins, opened at the server of that name.
fn put_on_sale(model: &mut RedisModel, scripts_loaded: bool, home: &HomeId) {
    for script in [Script::Open, Script::Reserve, Script::Snapshot] {
        operate(model, &[b"SCRIPT", b"LOAD", script.source().as_bytes()]);
    }
    let open = Open {
        target: OpsRef {
            sku: SKU,
            request_id: Text::new(b"open-1").unwrap(),
        },
        stock: STOCK,
        quantity_max: 100,
        once_per_activity: false,
    };
    let mut frame = Vec::new();
    SkuSteps::new(step_plan()).push(&LedgerOp::Open(open), home, &mut frame);
    let words = words_of(&frame);
    operate(model, &words.iter().map(Vec::as_slice).collect::<Vec<_>>());
    if !scripts_loaded {
        operate(model, &[b"SCRIPT", b"FLUSH"]);
    }
}

fn free_units(world: &mut World, number: u16) -> u64 {
    let model: &mut RedisModel = world
        .part_mut(server(number).0)
        .expect("the server is there");
    let reply = operate(model, &[b"HGET", b"{a1:s1}:sku", b"free"]);
    let Reply::Bulk(text) = reply else {
        panic!("no stock: {reply:?}");
    };
    String::from_utf8(text).unwrap().parse().unwrap()
}

/// The server falls and another takes its address: with what `keys` say, and a run and a history of its own.
pub fn fail_over(world: &mut World, keys: &Keys) {
    at_server(world, |model| {
        model.keys = keys.clone();
        model.identity.run_id = "d".repeat(40);
        model.identity.replication_id = "e".repeat(40);
        model.drop_clients();
    });
}

/// Somebody else sells the last units in epoch 31; its word reaches nobody who is not there.
pub fn sell_out_unheard(world: &mut World, _: &Keys) {
    at_server(world, |model| {
        model.drop_clients();
        stock(model, "31", "1", 0);
        publish(model, b"SOLD_OUT 31");
    });
}

/// Units come back in epoch 32, and everybody is told.
pub fn reopen(world: &mut World, _: &Keys) {
    at_server(world, |model| {
        stock(model, "32", "0", 100);
        publish(model, b"STOCK_REOPENED 32");
    });
}

fn stock(model: &mut RedisModel, epoch: &str, sold_out: &str, free: u64) {
    let (free, held) = (free.to_string(), (STOCK - free).to_string());
    let words: [&[u8]; 12] = [
        b"HSET",
        b"{a1:s1}:sku",
        b"epoch",
        epoch.as_bytes(),
        b"sold_out",
        sold_out.as_bytes(),
        b"free",
        free.as_bytes(),
        b"held",
        held.as_bytes(),
        b"version",
        epoch.as_bytes(),
    ];
    operate(model, &words);
}

fn publish(model: &mut RedisModel, text: &[u8]) {
    operate(model, &[b"PUBLISH", b"{a1:s1}:events", text]);
}

fn at_server(world: &mut World, with: impl FnOnce(&mut RedisModel)) {
    let (addr, _) = server(0);
    with(world.part_mut(addr).expect("the server is there"));
    world.poke(addr);
}

/// The story begins so long after the world: links are greeted by then.
pub const SETTLED_MS: u64 = 50;

/// What happens at a time after the start of the story; the keys are what the first server stored at its beginning.
pub type Happening = (u64, fn(&mut World, &Keys));

/// Builds the world of `plan` and runs it for `run_ms` after the start of the story.
pub fn run(plan: Plan, cut: Option<Cut>, run_ms: u64, happenings: &[Happening]) -> Ended {
    let config = Config {
        wall_start_ms: WALL_START_MS,
        wake_ns: Span::exactly(1_000),
        turn_ns: Span::exactly(1_000),
        mail_ns: Span::exactly(1_000),
        net_ns: Span::exactly(100_000),
        split_per_mille: 0,
        ..Config::default()
    };
    let mut world = World::new(7, config);
    let (mut notes, mut keys_before) = (Vec::new(), Vec::new());
    let first = &plan.identities[0];
    let home = format!("{}:{}", first.replication_id, first.run_id);
    let home = HomeId::new(home.as_bytes()).unwrap();
    for (number, (inner, identity)) in plan.conducts.into_iter().zip(plan.identities).enumerate() {
        let (addr, listen) = server(number as u16);
        let seen = Arc::new(Mutex::new(Seen::default()));
        notes.push(Arc::clone(&seen));
        let cut = cut.filter(|cut| usize::from(cut.server) == number);
        let conduct = Watched {
            inner,
            cut,
            seen,
            asked: None,
        };
        let mut model = RedisModel::new(Identity::default(), Box::new(conduct));
        put_on_sale(&mut model, plan.scripts_loaded, &home);
        keys_before.push(model.keys.clone());
        model.identity = identity;
        world.add_part(addr, Box::new(model), Listen::On(listen), 64);
    }
    let desk = DeskConfig {
        servers: vec![Endpoint {
            host: Host::Ip(server(0).1.ip()),
            port: server(0).1.port(),
        }],
        hears_events: plan.watches,
        wait: None,
        remembers: false,
        is_cluster: plan.is_cluster,
        tls: None,
        words: Words {
            client_name: "weir-test".to_string(),
            auth: plan.password.map(|password| Auth {
                user: None,
                password: password.to_string(),
            }),
            database: 0,
            channels: Vec::new(),
        },
        patience: Patience {
            greeting_ms_max: 150,
            reply_ms_max: 1_000,
            ping_every_ms: 500,
        },
        under_way_max: LINK_SENT_MAX,
        breaker: breaker::Policy::default(),
        seed: 11,
    };
    let asker = Asker {
        desk: Desk::new(desk, &[step_plan()]),
        wishes: plan.wishes,
        start: Mono(SETTLED_MS * NS_PER_MS),
        next: 0,
        answers: Vec::new(),
        watch: plan.watches.then(|| Watch::new([SKU].into_iter(), 1, 5)),
        views: Vec::new(),
    };
    world.add_part(ASKER, Box::new(asker), Listen::No, 64);
    let mut at_ms = 0;
    for (ms, happening) in happenings {
        world.run_for((SETTLED_MS + ms - at_ms) * NS_PER_MS);
        at_ms = SETTLED_MS + ms;
        happening(&mut world, &keys_before[0]);
    }
    world.run_for((SETTLED_MS + run_ms - at_ms) * NS_PER_MS);
    let free = (0..notes.len() as u16).map(|number| free_units(&mut world, number));
    let free = free.collect();
    let seen = notes.iter().map(|seen| seen.lock().unwrap().clone());
    Ended {
        seen: seen.collect(),
        free,
        keys: (0..notes.len() as u16)
            .map(|n| {
                world
                    .part::<RedisModel>(server(n).0)
                    .expect("the server is there")
                    .keys
                    .clone()
            })
            .collect(),
        keys_before,
        world,
    }
}
