//! One world from its seed to its verdict: builds the parts, lets mishaps happen, restarts what fell, drains, checks.

mod befall;
mod remote;

use super::Options;
use super::books::Books;
use super::check::Checker;
use super::crowd::Crowd;
use super::end::{self, End};
use super::marks::{Happened, Marks};
use super::mishap::{Mishap, Part};
use super::operator::Operator;
use super::plan::{LISTEN, Plan, WALL_START_MS};
use super::store::StoreModel;
use super::tally::{Fault, Faults, Sin, SinKind};
use super::truth::Truth;
use super::weather::{Sky, Wind};
use remote::{CLERK_CONNS_MAX, Remote};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use weir_core::ledger::LedgerConfig;
use weir_core::ledger::owner::{Owner, OwnerConfig};
use weir_core::mail::Addr;
use weir_core::order::model::{OrderModel, Tables};
use weir_core::order::state::OrderState;
use weir_core::order::worker::Worker;
use weir_core::planted;
use weir_core::redis::clerk::Clerk;
use weir_core::rng::Rng;
use weir_core::shard::Shard;
use weir_core::time::{NS_PER_MS, WallMs};
use weir_io::sim::{Config, Listen, SimPart, World};

/// The part that all buyers live in.
pub(super) const CROWD: Addr = Addr::Client(0);
/// Connections that the buyers may have at a time.
const CROWD_CONNS_MAX: usize = 2048;
/// After load and faults: a status that is not terminal by then is limbo (design §12.7).
const DRAIN_MS: u64 = 30_000;
/// At least so much longer than any order waits for its payment, also by a wall clock that has been ahead: every one has
/// been paid or closed by then, and its buyer has asked again.
const ASKS_AGAIN_MS: u64 = 21_500;
/// Then the two books may take so long to become equal: a sweep, a lost page and its repetition.
const BOOKS_MS: u64 = 60_000;
/// How often the books are compared then.
const BOOKS_EVERY_MS: u64 = 250;

/// What came of one world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedReport {
    /// Its seed.
    pub seed: u64,
    /// Of its event sequence and verdict.
    pub hash: u64,
    /// Turns of all parts.
    pub turns: u64,
    /// Requests that buyers sent.
    pub requests: u64,
    /// Reservations made durable.
    pub grants: u64,
    /// Replies that told an unknown result.
    pub unknowns: u64,
    /// Faults by kind.
    pub faults: Faults,
    /// What was reached.
    pub marks: Marks,
    /// Broken promises, the first ones of each check.
    pub sins: Vec<Sin>,
}

struct Director {
    plan: Arc<Plan>,
    options: Options,
    rng: Rng,
    world: World,
    sky: Rc<RefCell<Sky>>,
    checker: Checker,
    mishaps: BinaryHeap<Reverse<(u64, u64, Mishap)>>,
    planned: u64,
    faults: Faults,
    /// Models of disks while their part is down.
    store_down: Option<Box<dyn SimPart>>,
    orders_down: Option<Box<dyn SimPart>>,
    worker_boot: u32,
    /// Shards that were told to end and may not have yet.
    draining: BTreeSet<u16>,
    /// Only where Redis has the ledger.
    remote: Remote,
    /// The latest wall time that the world has shown, as far as a backward step hides it.
    wall_latest: WallMs,
}

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The seed whose world this thread runs: for the word of a panic, which in a release build ends the process.
pub fn seed_here() -> Option<u64> {
    SEED.get()
}

/// Runs the world of `seed` to its verdict. A panic of a part is a broken promise where panics unwind.
pub fn run_seed(seed: u64, options: &Options) -> SeedReport {
    SEED.set(Some(seed));
    #[cfg(weir_planted)]
    weir_core::planted::set(options.planted);
    let world = || {
        let mut director = Director::new(seed, *options);
        director.load();
        director.drain();
        director.verdict(seed)
    };
    let report = catch_unwind(AssertUnwindSafe(world)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        let what = format!("a part panicked: {}", words.unwrap_or("without words"));
        SeedReport {
            seed,
            hash: 0,
            turns: 0,
            requests: 0,
            grants: 0,
            unknowns: 0,
            faults: Faults::default(),
            marks: Marks::default(),
            sins: vec![Sin::new(SinKind::Broken, what)],
        }
    });
    SEED.set(None);
    report
}

impl Director {
    fn new(seed: u64, options: Options) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Arc::new(Plan::draw(&mut rng, options.ledger));
        let config = Config {
            wall_start_ms: WALL_START_MS,
            ..Config::default()
        };
        let mut world = World::new(rng.next_u64(), config);
        if options.trace {
            world.set_trace(Box::new(|line| println!("{line}")));
        }
        let sky = Rc::new(RefCell::new(Sky::new(Arc::clone(&plan))));
        world.set_faults(Box::new(Wind(Rc::clone(&sky))));
        let ledger_config = LedgerConfig::of_sale(&plan.sale, 7);
        let truth = match &plan.redis {
            None => Truth::of_journal(ledger_config.clone(), Arc::clone(&plan)),
            Some(redis) => {
                sky.borrow_mut().afar.begin();
                let books = Books::new(Arc::clone(&plan), redis, Rc::clone(&sky));
                Truth::Redis(Box::new(books))
            }
        };
        let mut director = Self {
            options,
            world,
            sky,
            checker: Checker::new(truth),
            remote: Remote::default(),
            mishaps: BinaryHeap::new(),
            planned: 0,
            faults: Faults::default(),
            store_down: Some(Box::new(StoreModel::new(ledger_config, rng.fork()))),
            orders_down: Some(Box::new(OrderModel::new())),
            worker_boot: 0,
            draining: BTreeSet::new(),
            wall_latest: WallMs(WALL_START_MS),
            plan: Arc::clone(&plan),
            rng: rng.fork(),
        };
        director.add_redis(&mut rng);
        for part in director.process() {
            let handler = director.make(part);
            let (listen, conns_max) = match part {
                Part::Shard(_) => (Listen::On(LISTEN), plan.shard.conns_max),
                Part::Owner(_) if plan.redis.is_some() => (Listen::No, CLERK_CONNS_MAX),
                _ => (Listen::No, 0),
            };
            let seat = plan.seat(part);
            director.world.add_part(seat, handler, listen, conns_max);
        }
        let operator = Box::new(Operator::new(&plan, &mut rng));
        director.world.add_part(Addr::Ops, operator, Listen::No, 0);
        let crowd = Box::new(Crowd::new(plan, rng.fork()));
        director
            .world
            .add_part(CROWD, crowd, Listen::No, CROWD_CONNS_MAX);
        director.plan_mishaps();
        director
    }

    /// All parts of all machines, in the order they start.
    fn process(&self) -> Vec<Part> {
        let machines = 0..self.plan.machines();
        machines.flat_map(|machine| self.machine(machine)).collect()
    }

    /// All parts of a machine, in the order they start.
    fn machine(&self, machine: u16) -> Vec<Part> {
        let mut parts = match (machine, &self.plan.redis) {
            (0, None) => vec![Part::Store, Part::OrderStore, Part::Owner(0), Part::Worker],
            (0, Some(_)) => vec![Part::OrderStore, Part::Owner(0), Part::Worker],
            (_, _) => vec![Part::Owner(machine)],
        };
        let shards = self.plan.shards_count * machine..self.plan.shards_count * (machine + 1);
        parts.extend(shards.map(Part::Shard));
        parts
    }

    /// A new run of a part; disks keep what they have.
    fn make(&mut self, part: Part) -> Box<dyn SimPart> {
        match part {
            Part::Shard(number) => {
                let seat = self.plan.seat(part);
                self.sky.borrow_mut().shard_restarts(seat);
                let config = self.plan.shard_config(number, &mut self.rng);
                Box::new(Shard::new(self.world.now(), config))
            }
            Part::Owner(machine) if self.plan.redis.is_some() => Box::new(self.clerk(machine)),
            Part::Owner(_) => {
                let config = OwnerConfig {
                    sale: Arc::clone(&self.plan.sale),
                    shards_count: self.plan.shards_count,
                    seed: self.rng.next_u64(),
                };
                Box::new(Owner::with_sizes(config, self.plan.sizes))
            }
            Part::Worker => {
                self.worker_boot += 1;
                Box::new(Worker::new(Arc::clone(&self.plan.sale), self.worker_boot))
            }
            Part::Store => self
                .store_down
                .take()
                .expect("the disk waits while its part is down"),
            Part::OrderStore => self
                .orders_down
                .take()
                .expect("the disk waits while its part is down"),
            Part::Redis => unreachable!("it is never taken out of the world"),
        }
    }

    fn plan_mishaps(&mut self) {
        let load_ns = self.plan.load_ns();
        for _ in 0..self.plan.mishaps_count {
            let at_ns = 20 * NS_PER_MS + self.rng.below(load_ns);
            let (kinds, shards_count) = (self.plan.mishap_kinds, self.plan.shards_count);
            let mishap = match &self.plan.redis {
                None => Mishap::draw(&mut self.rng, kinds, shards_count),
                Some(redis) => {
                    let shards_count = shards_count * redis.machines;
                    Mishap::draw_with_redis(&mut self.rng, kinds, redis.machines, shards_count)
                }
            };
            self.at(at_ns, mishap);
        }
        if let Some((at_ms, lag_ms)) = self
            .plan
            .redis
            .as_ref()
            .and_then(|redis| redis.far_failover)
        {
            self.at(at_ms * NS_PER_MS, Mishap::LagReplica(lag_ms, Some(1)));
        }
        for at_ms in (200..self.plan.load_ms).step_by(200) {
            self.at(at_ms * NS_PER_MS, Mishap::Look);
        }
    }

    fn at(&mut self, at_ns: u64, mishap: Mishap) {
        self.planned += 1;
        self.mishaps.push(Reverse((at_ns, self.planned, mishap)));
    }

    fn now_ns(&self) -> u64 {
        self.world.now().mono.0
    }

    /// Runs turns until `limit_ns`, each followed by its checks, mishaps at their times.
    fn run_to(&mut self, limit_ns: u64, mut done: impl FnMut(&Self) -> bool) {
        loop {
            let next_ns = self
                .mishaps
                .peek()
                .map_or(u64::MAX, |Reverse((at, ..))| *at);
            match self.world.step_until(next_ns.min(limit_ns)) {
                Some(info) => {
                    planted::without(|| self.checker.after(&mut self.world, info));
                    self.look_at(info);
                    if done(self) {
                        return;
                    }
                }
                None if next_ns > limit_ns => return,
                None => {
                    if let Some(Reverse((_, _, mishap))) = self.mishaps.pop() {
                        self.befall(mishap);
                    }
                }
            }
        }
    }

    fn load(&mut self) {
        self.run_to(self.plan.load_ns(), |_| false);
    }

    /// Ends load and faults, brings everything up, and lets the world come to rest.
    fn drain(&mut self) {
        self.sky.borrow_mut().calm();
        self.mishaps.clear();
        self.calm_redis();
        self.set_clock_right();
        for shard in std::mem::take(&mut self.draining) {
            self.crash(Part::Shard(shard), 0);
        }
        for part in self.process() {
            self.restart(part);
        }
        self.look_after_failed();
        if let Some(store) = self.world.part_mut::<StoreModel>(Addr::Store) {
            store.calm();
        }
        if let Some(orders) = self.world.part_mut::<OrderModel>(Addr::OrderStore) {
            orders.faults.next.clear();
            orders.faults.delay_ns = 0;
        }
        if let Some(crowd) = self.world.part_mut::<Crowd>(CROWD) {
            crowd.close();
        }
        let drain_ms = DRAIN_MS.max(self.plan.unpaid_ms_max() + ASKS_AGAIN_MS);
        let end_ns = self.now_ns() + drain_ms * NS_PER_MS;
        let is_settled = |director: &Self| {
            director
                .world
                .part::<Crowd>(CROWD)
                .is_some_and(Crowd::is_settled)
        };
        self.run_to(end_ns, is_settled);
        let end_ns = self.now_ns() + BOOKS_MS * NS_PER_MS;
        while self.now_ns() < end_ns && !self.books_are_equal() {
            let pause_ns = self.now_ns() + BOOKS_EVERY_MS * NS_PER_MS;
            self.run_to(pause_ns, |_| false);
        }
    }

    fn books_are_equal(&self) -> bool {
        let orders = self.world.part::<OrderModel>(Addr::OrderStore);
        let operator = self.world.part::<Operator>(Addr::Ops);
        let (Some(orders), Some(operator)) = (orders, operator) else {
            return false;
        };
        let mut skus = 0..self.plan.skus_count();
        let truth = &self.checker.truth;
        let may_revoke = self.remote.has_lost();
        skus.all(|sku| truth.sku(self.plan.sku_key(sku)).is_some())
            && operator.is_done()
            && end::differences(&self.checker, operator, &orders.tables, may_revoke).is_empty()
    }

    fn verdict(mut self, seed: u64) -> SeedReport {
        planted::without(|| self.checker.audit());
        let mut marks = self.checker.marks.clone();
        for part in self.process() {
            self.count_runs_of(part);
        }
        let mut sins = std::mem::take(&mut self.checker.sins);
        sins.append(&mut self.sky.borrow_mut().sins);
        let crowd = self.world.part::<Crowd>(CROWD);
        let operator = self.world.part::<Operator>(Addr::Ops);
        let orders = self.world.part::<OrderModel>(Addr::OrderStore);
        let (requests, hang_ups) = crowd.map_or((0, 0), |crowd| (crowd.requests, crowd.hang_ups));
        let owner = self.world.part::<Owner>(Addr::Owner);
        let is_up = owner.is_some() || self.plan.redis.is_some();
        if let (Some(crowd), Some(operator), Some(orders), true) = (crowd, operator, orders, is_up)
        {
            mark_orders(&orders.tables, &mut marks);
            let end = End {
                plan: &self.plan,
                checker: &self.checker,
                crowd,
                operator,
                orders: &orders.tables,
                is_replaced: self.remote.has_lost(),
                is_forgotten: self.forgets(),
                ledger: owner.map(Owner::ledger),
            };
            let lost = self.checker.told.iter().filter(|(id, _)| {
                end::is_lost_for_good(&end, *id) && !orders.tables.orders.contains_key(id)
            });
            marks.happened(Happened::LostForGood, lost.count() as u64);
            sins.extend(end::sins(&end));
        } else {
            sins.push(Sin::new(SinKind::Broken, "a part is down at the end"));
        }
        let mut faults = self.faults;
        marks.add(&self.sky.borrow().marks);
        faults.add(&self.sky.borrow().counts);
        faults.add(&self.remote.mood.counts());
        if let Some(store) = self.world.part::<StoreModel>(Addr::Store) {
            faults.add(&store.faults);
        }
        for _ in 0..hang_ups {
            faults.count(Fault::ClientGone);
        }
        SeedReport {
            seed,
            hash: self.world.hash(),
            turns: self.checker.turns(),
            requests,
            grants: self.checker.truth.grants(),
            unknowns: self.checker.unknowns,
            faults,
            marks,
            sins,
        }
    }

    /// The counters of a part that still runs at the end.
    fn count_runs_of(&self, part: Part) {
        let mut sky = self.sky.borrow_mut();
        let seat = self.plan.seat(part);
        if let Some(shard) = self.world.part::<Shard>(seat) {
            sky.shard_ends(shard);
        }
        if let Some(owner) = self.world.part::<Owner>(seat) {
            sky.owner_ends(owner);
        }
        if let Some(clerk) = self.world.part::<Clerk>(seat) {
            sky.clerk_ends(clerk);
        }
    }
}

/// Every transition that an order made.
fn mark_orders(tables: &Tables, marks: &mut Marks) {
    let mut standing = BTreeMap::new();
    for (reservation, _, state) in &tables.history {
        let before = standing.insert(*reservation, *state);
        marks.order(before.unwrap_or(OrderState::Queued), *state);
    }
}
