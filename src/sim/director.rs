//! One world from its seed to its verdict: builds the parts, lets mishaps happen, restarts what fell, drains, checks.

use super::Options;
use super::check::Checker;
use super::crowd::Crowd;
use super::end::{self, End};
use super::mishap::{Mishap, Part};
use super::operator::Operator;
use super::plan::{LISTEN, Plan, WALL_START_MS};
use super::store::StoreModel;
use super::tally::{Fault, Faults, Sin, SinKind};
use super::weather::{Sky, Wind};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use weir_core::journal::StoreFault;
use weir_core::ledger::LedgerConfig;
use weir_core::ledger::owner::{Owner, OwnerConfig};
use weir_core::limit::lease::ShardId;
use weir_core::mail::Addr;
use weir_core::order::contract::OrderFault;
use weir_core::order::model::OrderModel;
use weir_core::order::worker::Worker;
use weir_core::rng::Rng;
use weir_core::shard::Shard;
use weir_core::time::NS_PER_MS;
use weir_io::sim::{Config, Listen, SimPart, Status, World};
use weir_proto::ids::ReservationId;

/// The part that all buyers live in.
const CROWD: Addr = Addr::Client(0);
/// Connections that the buyers may have at a time.
const CROWD_CONNS_MAX: usize = 2048;
/// After load and faults: a status that is not terminal by then is limbo (design §12.7).
const DRAIN_MS: u64 = 30_000;
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
            sins: vec![Sin::new(SinKind::Broken, what)],
        }
    });
    SEED.set(None);
    report
}

impl Director {
    fn new(seed: u64, options: Options) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Arc::new(Plan::draw(&mut rng));
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
        let mut director = Self {
            options,
            world,
            sky,
            checker: Checker::new(ledger_config.clone()),
            mishaps: BinaryHeap::new(),
            planned: 0,
            faults: Faults::default(),
            store_down: Some(Box::new(StoreModel::new(ledger_config, rng.fork()))),
            orders_down: Some(Box::new(OrderModel::new())),
            worker_boot: 0,
            plan: Arc::clone(&plan),
            rng: rng.fork(),
        };
        for part in director.process() {
            let handler = director.make(part);
            let (listen, conns_max) = match part {
                Part::Shard(_) => (Listen::On(LISTEN), plan.shard.conns_max),
                _ => (Listen::No, 0),
            };
            director
                .world
                .add_part(part.addr(), handler, listen, conns_max);
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

    /// All parts of the process, in the order they start.
    fn process(&self) -> Vec<Part> {
        let mut parts = vec![Part::Store, Part::OrderStore, Part::Owner, Part::Worker];
        parts.extend((0..self.plan.shards_count).map(Part::Shard));
        parts
    }

    /// A new run of a part; disks keep what they have.
    fn make(&mut self, part: Part) -> Box<dyn SimPart> {
        match part {
            Part::Shard(shard) => {
                let shard = ShardId(shard);
                self.sky.borrow_mut().shard_restarts(shard);
                let config = self.plan.shard_config(shard, &mut self.rng);
                Box::new(Shard::new(self.world.now(), config))
            }
            Part::Owner => Box::new(Owner::new(OwnerConfig {
                sale: Arc::clone(&self.plan.sale),
                shards_count: self.plan.shards_count,
                seed: self.rng.next_u64(),
                #[cfg(weir_planted)]
                planted: self.options.planted,
            })),
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
        }
    }

    fn plan_mishaps(&mut self) {
        let load_ns = self.plan.load_ns();
        for _ in 0..self.plan.mishaps_count {
            let at_ns = 20 * NS_PER_MS + self.rng.below(load_ns);
            let mishap = Mishap::draw(&mut self.rng, self.plan.shards_count);
            self.at(at_ns, mishap);
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
                    self.checker.after(&mut self.world, info);
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
        let end_ns = self.now_ns() + DRAIN_MS * NS_PER_MS;
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
        orders.is_some_and(|orders| end::differences(&self.checker, &orders.tables).is_empty())
            && operator.is_some_and(Operator::is_done)
    }

    fn befall(&mut self, mishap: Mishap) {
        if self.options.trace {
            println!("{} mishap: {mishap:?}", self.now_ns() / NS_PER_MS);
        }
        match mishap {
            Mishap::CrashProcess => {
                self.faults.count(Fault::CrashProcess);
                let down_ns = self.down_ns();
                for part in self.process() {
                    self.crash(part, down_ns);
                }
            }
            Mishap::CrashShard(shard) => self.crash_all(Fault::CrashShard, &[Part::Shard(shard)]),
            Mishap::CrashLedger => self.crash_all(Fault::CrashLedger, &[Part::Store, Part::Owner]),
            Mishap::CrashWorker => self.crash_all(Fault::CrashWorker, &[Part::Worker]),
            Mishap::CrashOrders => self.crash_all(Fault::CrashOrders, &[Part::OrderStore]),
            Mishap::Restart(part) => self.restart(part),
            Mishap::StoreFull => self.fail_store(StoreFault::DiskFull),
            Mishap::StoreIo => self.fail_store(StoreFault::Io),
            Mishap::OrdersBusy(times) => {
                self.fail_orders(Fault::OrdersBusy, OrderFault::Busy, times)
            }
            Mishap::OrdersFull => self.fail_orders(Fault::OrdersFailed, OrderFault::DiskFull, 1),
            Mishap::OrdersIo => self.fail_orders(Fault::OrdersFailed, OrderFault::Io, 1),
            Mishap::OrdersSlow(ms) => {
                if let Some(orders) = self.world.part_mut::<OrderModel>(Addr::OrderStore) {
                    self.faults.count(Fault::OrdersSlow);
                    orders.faults.delay_ns = ms * NS_PER_MS;
                }
            }
            Mishap::Poison(number) => {
                if let Some(orders) = self.world.part_mut::<OrderModel>(Addr::OrderStore) {
                    self.faults.count(Fault::OrderPoisoned);
                    orders.faults.poison.insert(ReservationId(number));
                }
            }
            Mishap::StepWall(delta_ms) => {
                let kind = if delta_ms > 0 {
                    Fault::WallForward
                } else {
                    Fault::WallBack
                };
                self.faults.count(kind);
                self.world.step_wall(delta_ms);
            }
            Mishap::Pause(part, ns) => {
                if self.world.status(part.addr()) == Status::Running {
                    self.faults.count(Fault::Pause);
                    self.world.pause(part.addr(), ns);
                }
            }
            Mishap::Look => self.look_after_failed(),
        }
    }

    fn down_ns(&mut self) -> u64 {
        (1 + self.rng.below(600)) * NS_PER_MS
    }

    fn crash_all(&mut self, fault: Fault, parts: &[Part]) {
        let down_ns = self.down_ns();
        let mut fell = false;
        for part in parts {
            fell |= self.crash(*part, down_ns);
        }
        if fell {
            self.faults.count(fault);
        }
    }

    /// False when it was down already.
    fn crash(&mut self, part: Part, down_ns: u64) -> bool {
        let Some(mut handler) = self.world.crash(part.addr()) else {
            return false;
        };
        match part {
            Part::Store => {
                if let Some(store) = handler.as_mut().as_any_mut().downcast_mut::<StoreModel>() {
                    store.restart();
                }
                self.store_down = Some(handler);
            }
            Part::OrderStore => {
                if let Some(orders) = handler.as_mut().as_any_mut().downcast_mut::<OrderModel>() {
                    orders.restart();
                }
                self.orders_down = Some(handler);
            }
            _ => {}
        }
        let at_ns = self.now_ns() + down_ns;
        self.at(at_ns, Mishap::Restart(part));
        true
    }

    fn restart(&mut self, part: Part) {
        if self.world.status(part.addr()) == Status::Crashed {
            let handler = self.make(part);
            self.world.restart(part.addr(), handler);
            if part == Part::Store {
                self.checker.store_moved(&self.world); // what the crash left is durable now
            }
        }
    }

    fn fail_store(&mut self, fault: StoreFault) {
        if let Some(store) = self.world.part_mut::<StoreModel>(Addr::Store) {
            store.next_fault = Some(fault);
        }
    }

    fn fail_orders(&mut self, kind: Fault, fault: OrderFault, times: u64) {
        if let Some(orders) = self.world.part_mut::<OrderModel>(Addr::OrderStore) {
            for _ in 0..times {
                self.faults.count(kind);
                orders.faults.next.push_back(fault);
            }
        }
    }

    /// A store that failed takes nothing until the process is restarted: its operator does that.
    fn look_after_failed(&mut self) {
        let store = self.world.part::<StoreModel>(Addr::Store);
        if store.is_some_and(StoreModel::is_poisoned) {
            self.cycle(&[Part::Store, Part::Owner]);
        }
        let orders = self.world.part::<OrderModel>(Addr::OrderStore);
        let worker = self.world.part::<Worker>(Addr::Worker);
        if orders.is_some_and(|orders| orders.fault().is_some())
            || worker.is_some_and(|worker| worker.fault().is_some())
        {
            self.cycle(&[Part::OrderStore, Part::Worker]);
        }
    }

    fn cycle(&mut self, parts: &[Part]) {
        for part in parts {
            self.crash(*part, 0);
        }
        for part in parts {
            self.restart(*part);
        }
    }

    fn verdict(mut self, seed: u64) -> SeedReport {
        self.checker.audit();
        let mut sins = std::mem::take(&mut self.checker.sins);
        sins.append(&mut self.sky.borrow_mut().sins);
        let crowd = self.world.part::<Crowd>(CROWD);
        let operator = self.world.part::<Operator>(Addr::Ops);
        let orders = self.world.part::<OrderModel>(Addr::OrderStore);
        let (requests, hang_ups) = crowd.map_or((0, 0), |crowd| (crowd.requests, crowd.hang_ups));
        if let (Some(crowd), Some(operator), Some(orders)) = (crowd, operator, orders) {
            sins.extend(end::sins(&End {
                plan: &self.plan,
                checker: &self.checker,
                crowd,
                operator,
                orders: &orders.tables,
                wall: self.world.now().wall.max(orders.tables.last_at),
            }));
        } else {
            sins.push(Sin::new(SinKind::Broken, "a part is down at the end"));
        }
        let mut faults = self.faults;
        faults.add(&self.sky.borrow().counts);
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
            grants: self.checker.replica.next_reservation().0 - 1,
            unknowns: self.checker.unknowns,
            faults,
            sins,
        }
    }
}
