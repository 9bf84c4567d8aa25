//! What befalls a world, carried out: crashes, restarts, failures, drains, wrong repairs, steps of the clock.

use super::Director;
use crate::sim::mishap::{Mishap, Part};
use crate::sim::operator::Operator;
use crate::sim::store::StoreModel;
use crate::sim::tally::Fault;
use weir_core::ask::{Release, ReleaseEnd, ReservationRef, ReservationState};
use weir_core::journal::StoreFault;
use weir_core::ledger::Reservation;
use weir_core::ledger::owner::Owner;
use weir_core::mail::Addr;
use weir_core::order::contract::OrderFault;
use weir_core::order::model::OrderModel;
use weir_core::order::worker::Worker;
use weir_core::redis::clerk::Clerk;
use weir_core::shard::Shard;
use weir_core::time::NS_PER_MS;
use weir_io::sim::{Seat, SimPart, Status, StepInfo};

impl Director {
    pub(super) fn befall(&mut self, mishap: Mishap) {
        if self.options.trace {
            println!("{} mishap: {mishap:?}", self.now_ns() / NS_PER_MS);
        }
        match mishap {
            Mishap::CrashProcess(machine) => {
                self.faults.count(Fault::CrashProcess);
                let down_ns = self.down_ns();
                for part in self.machine(machine) {
                    self.crash(part, down_ns);
                }
            }
            Mishap::CrashShard(shard) => self.crash_all(Fault::CrashShard, &[Part::Shard(shard)]),
            Mishap::CrashLedger(machine) if self.plan.redis.is_some() => {
                self.crash_all(Fault::CrashLedger, &[Part::Owner(machine)]);
            }
            Mishap::CrashLedger(_) => {
                self.crash_all(Fault::CrashLedger, &[Part::Store, Part::Owner(0)]);
            }
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
                    orders.faults.poison.insert(self.plan.reservation(number));
                }
            }
            Mishap::StepWall(delta_ms) => {
                let kind = if delta_ms > 0 {
                    Fault::WallForward
                } else {
                    Fault::WallBack
                };
                self.faults.count(kind);
                self.step_wall(delta_ms);
            }
            Mishap::Pause(part, ns) => {
                let seat = self.plan.seat(part);
                if self.world.status(seat) == Status::Running {
                    self.faults.count(Fault::Pause);
                    self.world.pause(seat, ns);
                }
            }
            Mishap::DrainShard(shard) => self.drain_shard(shard),
            Mishap::StrayRelease(drawn) => self.release_stray(drawn),
            Mishap::Look => self.look_after_failed(),
            other => self.befall_redis(other),
        }
    }

    /// SIGTERM for one shard: it ends in its own time, and comes again.
    fn drain_shard(&mut self, shard: u16) {
        let part = Part::Shard(shard);
        let seat = self.plan.seat(part);
        if self.world.status(seat) == Status::Running && self.draining.insert(shard) {
            self.faults.count(Fault::DrainShard);
            self.world.drain(seat);
            let at_ns = self.now_ns() + (self.plan.shard.drain_ms + 200) * NS_PER_MS;
            self.at(at_ns, Mishap::Restart(part));
        }
    }

    /// A repair that should not have been: a reservation with an order loses its unit.
    fn release_stray(&mut self, drawn: u64) {
        let now = self.world.now().mono;
        let has_order = |found: &Reservation| found.state == ReservationState::Confirmed;
        let confirmed = self.checker.truth.reservations().filter(has_order);
        let Some(found) = confirmed.last() else {
            return;
        };
        let release = Release {
            target: ReservationRef {
                sku: found.message.sku,
                reservation: found.message.reservation,
            },
            end: if drawn.is_multiple_of(2) {
                ReleaseEnd::Closed
            } else {
                ReleaseEnd::Failed
            },
        };
        if let Some(operator) = self.world.part_mut::<Operator>(Addr::Ops) {
            self.faults.count(Fault::StrayRelease);
            operator.release(now, release);
            self.world.poke(Addr::Ops);
        }
    }

    /// What a turn left in a shard's and the owner's own books, now and then.
    pub(super) fn look_at(&mut self, info: StepInfo) {
        let seat = Seat {
            machine: info.machine,
            addr: info.part,
        };
        if info.part == Addr::Owner
            && let Some(clerk) = self.world.part::<Clerk>(seat)
        {
            self.sky.borrow_mut().sees_clerk(seat.machine, clerk);
        }
        if !self.checker.turns().is_multiple_of(64) {
            return;
        }
        let mut sky = self.sky.borrow_mut();
        if let Some(shard) = self.world.part::<Shard>(seat) {
            sky.sees_shard(shard);
        }
        if let Some(owner) = self.world.part::<Owner>(seat) {
            sky.sees_owner(owner);
        }
    }

    /// Takes the counters of a run that is over.
    pub(super) fn run_ends(&self, handler: &dyn SimPart) {
        let mut sky = self.sky.borrow_mut();
        if let Some(shard) = handler.as_any().downcast_ref::<Shard>() {
            sky.shard_ends(shard);
        }
        if let Some(owner) = handler.as_any().downcast_ref::<Owner>() {
            sky.owner_ends(owner);
        }
        if let Some(clerk) = handler.as_any().downcast_ref::<Clerk>() {
            sky.clerk_ends(clerk);
        }
    }

    fn step_wall(&mut self, delta_ms: i64) {
        self.wall_latest = self.wall_latest.max(self.world.now().wall);
        self.world.step_wall(delta_ms);
        self.keep_redis_clock(delta_ms);
    }

    /// A clock that stepped back is a fault, too, and ends with the others: what is due after what was shown before the
    /// step would wait as long as the step was wide.
    pub(super) fn set_clock_right(&mut self) {
        let behind_ms = self.wall_latest.since(self.world.now().wall);
        if behind_ms > 0 {
            self.step_wall(behind_ms as i64); // steps of some seconds each
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
    pub(super) fn crash(&mut self, part: Part, down_ns: u64) -> bool {
        let Some(mut handler) = self.world.crash(self.plan.seat(part)) else {
            return false;
        };
        self.run_ends(handler.as_ref());
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

    pub(super) fn restart(&mut self, part: Part) {
        let seat = self.plan.seat(part);
        let status = self.world.status(seat);
        if status == Status::Stopped
            && let Some(shard) = self.world.part::<Shard>(seat)
        {
            self.sky.borrow_mut().shard_ends(shard);
        }
        if let (Part::Shard(shard), true) = (part, status != Status::Running) {
            self.draining.remove(&shard);
        }
        if status != Status::Running {
            let handler = self.make(part);
            self.world.restart(seat, handler);
            if part == Part::Store {
                self.checker.truth_moved(&mut self.world); // what the crash left is durable now
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
    pub(super) fn look_after_failed(&mut self) {
        let store = self.world.part::<StoreModel>(Addr::Store);
        if store.is_some_and(StoreModel::is_poisoned) {
            self.cycle(&[Part::Store, Part::Owner(0)]);
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
}
