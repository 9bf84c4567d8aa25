//! Buyers on a desk that a real driver carries: each reserves, and after an unknown asks what became of it before it
//! does anything else. `Load` is the test's end of it, on another thread.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use weir_core::ask::*;
use weir_core::limits::LINK_SENT_MAX;
use weir_core::mail::Addr;
use weir_core::order::contract::Money;
use weir_core::port::{Effects, Event, Handler};
use weir_core::redis::breaker;
use weir_core::redis::desk::{Desk, DeskConfig, DeskCounts, Pull};
use weir_core::redis::endpoint::{Endpoint, Host};
use weir_core::redis::link::Patience;
use weir_core::redis::link::greeting::Words;
use weir_core::redis::step::{Maker, StepPlan};
use weir_core::rng::Rng;
use weir_core::time::{Mono, Now, WallMs};
use weir_io::choice::{self, DriverKind};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_proto::ids::*;
use weir_proto::text::Text;

use super::redis_part::PATIENCE;

/// Before an ask that was not executed, or a question, is asked again.
const PAUSE_MS: u64 = 10;
const ASK_MS: u64 = 1_000;
/// Far in the future: 2030.
const KEEP_UNTIL: WallMs = WallMs(1_900_000_000_000);

/// Where a server of a test listens.
pub fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        host: Host::parse(b"127.0.0.1").unwrap(),
        port,
    }
}

/// The SKU of that number.
/// Whose orders they are.
const MAKER: Maker = Maker { store: 1, run: 1 };

pub fn sku(number: u64) -> SkuKey {
    SkuKey {
        activity: ActivityId(1),
        sku: SkuId(number),
    }
}

/// What is sold, by whom, to how many at a time.
pub struct Sale {
    /// Servers that the desk begins with.
    pub ports: Vec<u16>,
    pub is_cluster: bool,
    pub kind: DriverKind,
    /// Number and units of each SKU.
    pub skus: Vec<(u64, u64)>,
    /// Buyers at a time, of each SKU.
    pub lanes: usize,
    /// Buyers of each SKU; `None`: until the test ends it.
    pub buyers: Option<u64>,
    /// A buyer gives up after so long without a result.
    pub patience_ms: u64,
}

/// What a buyer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Puts the SKU on sale: the first one of each SKU.
    Open,
    Reserve,
    /// Its reserve is unknown: looks it up, and closes the door behind it.
    Fate,
    /// Looks at what it holds.
    Status,
    Release,
    Over(End),
}

/// What became of a buyer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Opened,
    Holds,
    Released,
    /// Sold out, or its user holds another.
    Refused,
    /// Was not executed, within its patience.
    GaveUp,
    /// Nobody knows, within its patience.
    Unknown,
    /// Was granted and is not there any more.
    Lost,
}

/// One request of one user.
#[derive(Clone, Debug)]
pub struct Buyer {
    /// Its SKU's place in the sale.
    pub place: usize,
    pub user: u64,
    /// Names its request.
    pub number: u64,
    pub quantity: u32,
    /// Another request of the same user is about.
    has_twin: bool,
    stage: Stage,
    /// Its stage began then.
    since: Mono,
    pub reservation: Option<ReservationId>,
}

impl Buyer {
    pub fn end(&self) -> End {
        match self.stage {
            Stage::Over(end) => end,
            stage => panic!("{stage:?} is no end"),
        }
    }

    pub fn request(&self) -> String {
        format!("request-{}", self.number)
    }

    fn op(&self, key: SkuKey, stock: u64) -> LedgerOp {
        let request_id = Text::new(self.request().as_bytes()).unwrap();
        let user = UserId(self.user);
        let reservation = self.reservation.unwrap_or(ReservationId(0));
        let target = ReservationRef {
            sku: key,
            reservation,
        };
        match self.stage {
            Stage::Open => LedgerOp::Open(Open {
                target: OpsRef {
                    sku: key,
                    request_id,
                },
                stock,
                quantity_max: 2,
                once_per_activity: false,
            }),
            Stage::Reserve => LedgerOp::Reserve(Reserve {
                sku: key,
                user,
                request_id,
                nonce: Text::new(format!("nonce-{}", self.number).as_bytes()).unwrap(),
                nonce_until: KEEP_UNTIL,
                quantity: self.quantity,
            }),
            Stage::Fate | Stage::Status => LedgerOp::Lookup(Lookup {
                sku: key,
                user,
                request_id,
                tombstone: self.stage == Stage::Fate,
            }),
            Stage::Release => LedgerOp::Release(Release {
                target,
                end: ReleaseEnd::Closed,
            }),
            Stage::Over(_) => panic!("it asks no more"),
        }
    }
}

/// What both threads see of one SKU.
#[derive(Default)]
pub struct Tally {
    /// Grants that were heard of at once, not by a lookup.
    pub granted: AtomicU64,
    /// Asks that were refused because the server has not got the books.
    pub frozen: AtomicU64,
    pub over: AtomicU64,
}

#[derive(Default)]
struct Shared {
    /// No new buyers.
    is_over: AtomicBool,
    /// The test has failed: stop at once.
    is_lost: AtomicBool,
    tallies: Vec<Tally>,
    mends: AtomicBool,
    now: Mutex<(DeskCounts, Vec<Endpoint>)>,
}

/// How it went.
pub struct Report {
    pub buyers: Vec<Buyer>,
    pub asks: u64,
    pub counts: DeskCounts,
    /// What should not be; the first ones in words.
    pub wrong: Vec<String>,
}

impl Report {
    /// Buyers of that SKU by their end.
    pub fn ends(&self, place: usize) -> BTreeMap<End, u64> {
        let mut ends = BTreeMap::new();
        for buyer in self.buyers.iter().filter(|buyer| buyer.place == place) {
            *ends.entry(buyer.end()).or_default() += 1;
        }
        ends
    }
}

/// The handler.
struct Asker {
    desk: Desk,
    sale: Sale,
    buyers: Vec<Buyer>,
    /// By place: buyers that are under way, and those that began.
    under_way: Vec<usize>,
    begun: Vec<u64>,
    /// Buyers whose ask waits for its answer.
    waiting: HashMap<u64, usize>,
    again: VecDeque<(Mono, usize)>,
    asks: u64,
    rng: Rng,
    wrong: Vec<String>,
    shared: Arc<Shared>,
    done: Sender<Report>,
}

impl Asker {
    fn begin(&mut self, now: Now, fx: &mut Effects) {
        for place in 0..self.sale.skus.len() {
            let is_open =
                self.begun[place] > 0 && self.buyers[place].stage == Stage::Over(End::Opened);
            let lanes = if is_open { self.sale.lanes } else { 1 };
            let is_over = self.shared.is_over.load(Ordering::Relaxed);
            while self.under_way[place] < lanes
                && !is_over
                && self
                    .sale
                    .buyers
                    .is_none_or(|most| self.begun[place] <= most)
            {
                let number = self.buyers.len() as u64;
                let begun = self.begun[place];
                // Every tenth is a second request of the one before it.
                let of_before = begun > 2 && begun.is_multiple_of(10);
                self.buyers.push(Buyer {
                    place,
                    user: 1 + begun - u64::from(of_before),
                    number,
                    quantity: 1 + (begun % 3 / 2) as u32,
                    has_twin: of_before || begun % 10 == 9,
                    stage: if begun == 0 {
                        Stage::Open
                    } else {
                        Stage::Reserve
                    },
                    since: now.mono,
                    reservation: None,
                });
                self.begun[place] += 1;
                self.under_way[place] += 1;
                self.ask(now, number as usize, fx);
            }
        }
    }

    fn ask(&mut self, now: Now, at: usize, fx: &mut Effects) {
        let buyer = &self.buyers[at];
        let (number, stock) = self.sale.skus[buyer.place];
        let op = buyer.op(sku(number), stock);
        self.asks += 1;
        self.waiting.insert(self.asks, at);
        let ask = Ask {
            from: Addr::Ops,
            id: AskId(self.asks),
            deadline: now.mono.plus_ms(ASK_MS),
            op,
        };
        self.desk.ask(now, ask, fx);
    }

    fn hear(&mut self, now: Now, answer: Answer, fx: &mut Effects) {
        let Some(at) = self.waiting.remove(&answer.id.0) else {
            return self.wrong.push(format!("{answer:?} answers nothing"));
        };
        let next = self.next(at, answer.outcome);
        let buyer = &mut self.buyers[at];
        let tally = &self.shared.tallies[buyer.place];
        if answer.outcome == Outcome::Failed(Failure::Frozen) {
            tally.frozen.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(stage) = next {
            (buyer.stage, buyer.since) = (stage, now.mono);
        }
        if buyer.since.plus_ms(self.sale.patience_ms) < now.mono {
            let is_open = buyer.stage != Stage::Reserve;
            buyer.stage = Stage::Over(if is_open { End::Unknown } else { End::GaveUp });
        }
        match buyer.stage {
            Stage::Over(_) => {
                self.under_way[buyer.place] -= 1;
                tally.over.fetch_add(1, Ordering::Relaxed);
            }
            _ if next.is_some() => self.ask(now, at, fx),
            _ => self.again.push_back((now.mono.plus_ms(PAUSE_MS), at)),
        }
    }

    /// What the buyer does after that; `None`: the same again, which nothing but a reserve whose fate is open forbids.
    fn next(&mut self, at: usize, outcome: Outcome) -> Option<Stage> {
        use LedgerAnswer::{
            AlreadyHolds, Found, Granted, NoReservation, NotFound, Now, OpsDone, SoldOut,
        };
        let buyer = &mut self.buyers[at];
        let is_mine = |held: &Held| held.quantity == buyer.quantity;
        let told = match outcome {
            Outcome::Failed(_) => return None,
            Outcome::Unknown if buyer.stage == Stage::Reserve => return Some(Stage::Fate),
            Outcome::Unknown => return None,
            Outcome::Done(told) => told,
        };
        match (buyer.stage, told) {
            (Stage::Open, OpsDone(_)) => Some(Stage::Over(End::Opened)),
            (Stage::Reserve, Granted(held)) | (Stage::Fate, Found(held)) if is_mine(&held) => {
                buyer.reservation = Some(held.reservation);
                if buyer.stage == Stage::Reserve {
                    let tally = &self.shared.tallies[buyer.place];
                    tally.granted.fetch_add(1, Ordering::Relaxed);
                }
                Some(match self.rng.below(3) {
                    0 => Stage::Release,
                    1 => Stage::Status,
                    _ => Stage::Over(End::Holds),
                })
            }
            (Stage::Reserve, SoldOut { .. }) | (Stage::Fate, NotFound) => {
                Some(Stage::Over(End::Refused))
            }
            // Fewer are left than it wants.
            (Stage::Reserve, LedgerAnswer::QuantityRefused) if buyer.quantity > 1 => {
                Some(Stage::Over(End::Refused))
            }
            (Stage::Reserve, AlreadyHolds(_)) if buyer.has_twin => Some(Stage::Over(End::Refused)),
            (Stage::Status, Found(held)) if Some(held.reservation) == buyer.reservation => {
                Some(Stage::Over(End::Holds))
            }
            (Stage::Release, Now(held))
                if Some(held.reservation) == buyer.reservation
                    && held.state == ReservationState::Closed =>
            {
                Some(Stage::Over(End::Released))
            }
            (Stage::Status, NotFound) | (Stage::Release, NoReservation) => {
                Some(Stage::Over(End::Lost))
            }
            // Also `Repeated`: a reserve that was executed has been sent again.
            (stage, told) => {
                let what = format!("{buyer:?} heard {told:?} at {stage:?}");
                self.wrong.push(what);
                Some(Stage::Over(End::Unknown))
            }
        }
    }

    fn hear_all(&mut self, now: Now, fx: &mut Effects) -> bool {
        let mut any = false;
        while let Some((_, answer)) = self.desk.next_answer() {
            any = true;
            self.hear(now, answer, fx);
        }
        any
    }
}

impl Asker {
    /// Nothing is offered: what a failover lost stays lost here.
    fn mend(&mut self, now: Now, fx: &mut Effects) {
        for (number, _) in self.sale.skus.clone() {
            let key = sku(number);
            if self.desk.stranger(key).is_some() {
                assert!(self.desk.pull(now, key, Pull::Fence, fx));
                assert!(self.desk.pull(now, key, Pull::Rehome(MAKER), fx));
            }
        }
    }
}

impl Handler for Asker {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        self.desk.turn(now, fx);
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Connected { conn, token } => assert!(self.desk.connected(now, conn, token, fx)),
            Event::ConnectFailed { token, error } => {
                assert!(self.desk.connect_failed(now, token, error));
            }
            Event::Received { conn, mut input } => {
                assert!(self.desk.received(now, conn, &mut input, fx));
            }
            Event::Closed { conn, .. } => assert!(self.desk.closed(now, conn, fx)),
            Event::Tick | Event::Sent { .. } | Event::Mail(_) | Event::Drain => {}
            Event::Accepted { .. } => panic!("nobody connects to the asker"),
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        if self.shared.mends.swap(false, Ordering::Relaxed) {
            self.mend(now, fx);
        }
        self.desk.turn(now, fx);
        while let Some((at, buyer)) = self.again.front().copied() {
            if at > now.mono {
                break;
            }
            self.again.pop_front();
            self.ask(now, buyer, fx);
        }
        self.begin(now, fx);
        while self.hear_all(now, fx) {
            self.begin(now, fx);
        }
        while self.desk.next_news().is_some() {}
        let changed = self.desk.changed().map(|(endpoint, _)| endpoint.clone());
        *self.shared.now.lock().unwrap() = (*self.desk.counts(), changed.collect());
        let is_lost = self.shared.is_lost.load(Ordering::Relaxed);
        if is_lost || self.under_way.iter().all(|&count| count == 0) {
            self.sale.skus.clear(); // the driver may have some turns more
            let _ = self.done.send(Report {
                buyers: std::mem::take(&mut self.buyers),
                asks: self.asks,
                counts: *self.desk.counts(),
                wrong: std::mem::take(&mut self.wrong),
            });
            fx.stop();
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        let again = self.again.front().map(|(at, _)| *at);
        again.into_iter().chain(self.desk.next_deadline()).min()
    }
}

/// A load that runs.
pub struct Load {
    shared: Arc<Shared>,
    report: Receiver<Report>,
}

impl Load {
    pub fn start(sale: Sale) -> Self {
        let places = sale.skus.len();
        let shared = Arc::new(Shared {
            tallies: (0..places).map(|_| Tally::default()).collect(),
            ..Shared::default()
        });
        let (done, report) = channel();
        let kind = sale.kind;
        let asker = Asker {
            desk: desk(&sale),
            sale,
            buyers: Vec::new(),
            under_way: vec![0; places],
            begun: vec![0; places],
            waiting: HashMap::new(),
            again: VecDeque::new(),
            asks: 0,
            rng: Rng::new(3),
            wrong: Vec::new(),
            shared: Arc::clone(&shared),
            done,
        };
        std::thread::spawn(move || {
            let post = Arc::new(PostOffice::new([Addr::Ops]).unwrap());
            let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
            let config = DriverConfig {
                conns_max: 64,
                ..DriverConfig::new(Addr::Ops)
            };
            let stats = Arc::new(DriverStats::default());
            choice::run(kind, config, Box::new(asker), post, drain, stats).unwrap();
        });
        Self { shared, report }
    }

    /// Grants of that SKU so far.
    pub fn granted(&self, place: usize) -> u64 {
        self.shared.tallies[place].granted.load(Ordering::Relaxed)
    }

    /// Asks of that SKU that were refused as frozen.
    pub fn frozen(&self, place: usize) -> u64 {
        self.shared.tallies[place].frozen.load(Ordering::Relaxed)
    }

    /// Buyers of that SKU who are done.
    pub fn over(&self, place: usize) -> u64 {
        self.shared.tallies[place].over.load(Ordering::Relaxed)
    }

    /// What the desk has counted.
    pub fn counts(&self) -> DeskCounts {
        self.shared.now.lock().unwrap().0
    }

    /// Servers that are not those that were trusted.
    pub fn changed(&self) -> Vec<Endpoint> {
        self.shared.now.lock().unwrap().1.clone()
    }

    /// The books of every SKU whose server has not got them are taken for right as they are.
    pub fn mend(&self) {
        self.shared.mends.store(true, Ordering::Relaxed);
    }

    /// Lets the buyers end who have begun; each one does.
    pub fn finish(self) -> Report {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let report = self.report.recv_timeout(PATIENCE);
        report.expect("every ask ends")
    }

    /// The report of a load whose buyers are counted; `None`: not yet.
    pub fn finished(&self) -> Option<Report> {
        self.report.try_recv().ok()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.is_lost.store(true, Ordering::Relaxed);
    }
}

fn desk(sale: &Sale) -> Desk {
    let config = DeskConfig {
        servers: sale.ports.iter().copied().map(endpoint).collect(),
        is_cluster: sale.is_cluster,
        tls: None,
        hears_events: true,
        wait: None,
        remembers: false,
        words: Words {
            client_name: "weir-test".to_owned(),
            auth: None,
            database: 0,
            channels: Vec::new(),
        },
        patience: Patience {
            greeting_ms_max: 2_000,
            reply_ms_max: 2_000,
            ping_every_ms: 500,
        },
        under_way_max: LINK_SENT_MAX,
        breaker: breaker::Policy::default(),
        seed: 5,
    };
    let plan = |&(number, _): &(u64, u64)| StepPlan {
        sku: sku(number),
        reservations_max: 200_000,
        unit_price: Money {
            minor: 100,
            currency: *b"CNY",
        },
        keep_until: KEEP_UNTIL,
        policy: 1,
        ids_above: number << 32,
    };
    let plans: Vec<StepPlan> = sale.skus.iter().map(plan).collect();
    Desk::new(config, &plans)
}
