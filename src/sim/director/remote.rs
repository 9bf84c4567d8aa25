//! The Redis of a world and the clerks that ask it: built, made new, and befallen by what only they can meet.

use super::Director;
use crate::sim::mishap::{Mishap, Part};
use crate::sim::plan::{REDIS, REDIS_LISTEN};
use crate::sim::redis::{Keys, RedisModel};
use crate::sim::squall::{Mood, Squall, identity};
use crate::sim::tally::Fault;
use crate::sim::truth::Truth;
use std::sync::Arc;
use weir_core::mail::Addr;
use weir_core::order::model::OrderModel;
use weir_core::planted;
use weir_core::redis::clerk::lease::LeaseConfig;
use weir_core::redis::clerk::{Clerk, ClerkConfig};
use weir_core::redis::step::Maker;
use weir_core::rng::Rng;
use weir_core::time::NS_PER_MS;
use weir_io::sim::Listen;
use weir_proto::ids::SkuKey;

/// Connections of a clerk: one, and one that closes.
pub(super) const CLERK_CONNS_MAX: usize = 4;
/// Connections of the server.
const REDIS_CONNS_MAX: usize = 64;

/// Longer than books are mended.
const APART_MS: u64 = 4_500;

const NO_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const NO_REPLICA: &str = "NOREPLICAS Not enough good replicas to write.";

/// What the director knows of Redis.
#[derive(Default)]
pub(super) struct Remote {
    pub mood: Mood,
    /// Lives of the server so far.
    lives: u64,
    /// Times that another took its place.
    replaced: u64,
    /// What its replica has got, where that lags behind.
    replica: Option<Keys>,
    /// Its clock is so much ahead of the time since the world began.
    ahead_ms: i64,
    /// Runs of clerks, of all machines.
    boots: u64,
}

impl Remote {
    /// A server was replaced by one that lacked its last writes.
    pub fn has_lost(&self) -> bool {
        self.replaced > 0
    }
}

impl Director {
    /// True when a clerk may not have told a new server what it had granted at the one before: it crashed, stood still, or
    /// did not reach it. Where answers rest on a replica nothing that was told is lost.
    pub(super) fn forgets(&self) -> bool {
        let waits = self
            .plan
            .redis
            .as_ref()
            .is_some_and(|redis| redis.wait.is_some());
        !waits
            && self.faults.has_any(&[
                Fault::CrashProcess,
                Fault::CrashLedger,
                Fault::Pause,
                Fault::RedisApart,
            ])
    }

    /// Puts the server into the world, where Redis has the ledger.
    pub(super) fn add_redis(&mut self, rng: &mut Rng) {
        let Some(redis) = &self.plan.redis else {
            return;
        };
        let squall = Squall::new(redis, self.remote.mood.clone(), rng.fork());
        let mut model = RedisModel::new(identity(self.remote.lives), Box::new(squall));
        model.is_mute = redis.is_mute;
        model.replicas = 1;
        let listen = Listen::On(REDIS_LISTEN);
        self.world
            .add_part(REDIS, Box::new(model), listen, REDIS_CONNS_MAX);
    }

    /// A new run of a clerk.
    pub(super) fn clerk(&mut self, machine: u16) -> Clerk {
        let plan = Arc::clone(&self.plan);
        let redis = plan
            .redis
            .as_ref()
            .expect("a clerk is made where there is one to ask");
        let makes_orders = plan.role(machine).makes_orders();
        let never_open = match makes_orders {
            true => self.skus_with_orders(),
            false => Vec::new(),
        };
        self.remote.boots += 1;
        let config = ClerkConfig {
            sale: Arc::clone(&plan.sale),
            plans: redis.steps.clone(),
            never_open,
            maker: makes_orders.then_some(Maker {
                store: 1,
                run: self.remote.boots,
            }),
            shards_count: plan.shards_count,
            boot: self.remote.boots,
            seed: self.rng.next_u64(),
            leases: LeaseConfig {
                version: 1,
                instance: format!("machine-{machine}"),
                weight: 1,
                weights: u32::from(redis.machines),
                limiter: None,
            },
            freeze_ms: 1_000,
            desk: redis.desk(self.rng.next_u64()),
        };
        Clerk::new(self.world.now(), config)
    }

    fn skus_with_orders(&self) -> Vec<SkuKey> {
        let orders = match &self.orders_down {
            Some(down) => down.as_any().downcast_ref(),
            None => self.world.part::<OrderModel>(Addr::OrderStore),
        };
        let rows = orders.map(|orders| orders.tables.orders.values());
        let mut skus: Vec<_> = rows
            .into_iter()
            .flatten()
            .map(|row| row.message.sku)
            .collect();
        skus.sort_unstable();
        skus.dedup();
        skus
    }

    /// What befalls only a world with a Redis.
    pub(super) fn befall_redis(&mut self, mishap: Mishap) {
        let now = self.world.now();
        match mishap {
            Mishap::FlushScripts => {
                self.faults.count(Fault::RedisFlushed);
                self.at_redis(|model| {
                    model.operate(now.wall.0, &[b"SCRIPT", b"FLUSH"]);
                });
            }
            Mishap::CutLinks => {
                self.faults.count(Fault::RedisCut);
                self.at_redis(RedisModel::drop_clients);
            }
            Mishap::Partition(machine, ms) => {
                self.faults.count(Fault::RedisApart);
                let until = now.mono.plus_ms(ms);
                self.sky.borrow_mut().afar.part(machine, until);
            }
            Mishap::RestartRedis(ms) => {
                self.faults.count(Fault::RedisRestarted);
                self.remote.lives += 1;
                self.remote.mood.loads_until(now.mono.plus_ms(ms));
                let identity = identity(self.remote.lives);
                self.at_redis(|model| model.restart(identity));
            }
            Mishap::LagReplica(ms, far) => {
                if let Some(model) = self.world.part_mut::<RedisModel>(REDIS) {
                    model.replicas = 0;
                    self.remote.replica = Some(model.keys.clone());
                }
                if far.is_some() {
                    // Nobody but the one who is out of reach has heard of its grants.
                    self.befall(Mishap::Pause(Part::Owner(0), (ms + 1) * NS_PER_MS));
                }
                self.at(now.mono.0 + ms * NS_PER_MS, Mishap::FailOver(far));
            }
            Mishap::FailOver(far) => self.fail_over(far),
            Mishap::RefuseWrites(is_alone, ms) => {
                let (fault, words) = match is_alone {
                    true => (Fault::RedisAlone, NO_REPLICA),
                    false => (Fault::RedisFull, NO_MEMORY),
                };
                self.faults.count(fault);
                self.at_redis(|model| model.identity.refuses_writes = Some(words));
                self.at(now.mono.0 + ms * NS_PER_MS, Mishap::TakeWrites);
            }
            Mishap::TakeWrites => self.at_redis(|model| model.identity.refuses_writes = None),
            Mishap::BusyRedis(ms) => self.remote.mood.busy_until(now.mono.plus_ms(ms)),
            Mishap::StepRedis(delta_ms) => {
                self.faults.count(Fault::RedisClock);
                let step_ms = delta_ms - std::mem::replace(&mut self.remote.ahead_ms, delta_ms);
                self.at_redis(|model| model.clock_ahead_ms += step_ms);
            }
            _ => {}
        }
    }

    /// The clock of the other machines steps, that of Redis does not.
    pub(super) fn keep_redis_clock(&mut self, delta_ms: i64) {
        if self.plan.redis.is_some() {
            self.at_redis(|model| model.clock_ahead_ms -= delta_ms);
        }
    }

    fn at_redis(&mut self, with: impl FnOnce(&mut RedisModel)) {
        if let Some(model) = self.world.part_mut(REDIS) {
            with(model);
            self.world.poke(REDIS);
        }
    }

    /// The replica takes the place of its master, without what it had not got.
    fn fail_over(&mut self, far: Option<u16>) {
        let Some(keys) = self.remote.replica.take() else {
            return;
        };
        self.faults.count(Fault::RedisReplaced);
        self.remote.replaced += 1;
        self.sky.borrow_mut().afar.is_replaced = true;
        planted::without(|| self.checker.truth_moved(&mut self.world)); // all that it had done is known
        self.remote.lives += 1;
        let identity = identity(self.remote.lives);
        let now_ms = self.world.now().wall.0;
        if let (Some(model), Truth::Redis(books)) = (
            self.world.part_mut::<RedisModel>(REDIS),
            &mut self.checker.truth,
        ) {
            model.keys = keys;
            model.replicas = 1;
            model.restart(identity);
            books.reread(model, now_ms);
        }
        self.world.poke(REDIS);
        if let Some(machine) = far {
            self.befall_redis(Mishap::Partition(machine, APART_MS));
        }
    }

    /// No fault from now on.
    pub(super) fn calm_redis(&mut self) {
        if self.plan.redis.is_none() {
            return;
        }
        self.remote.mood.calm();
        self.at_redis(|model| {
            model.identity.refuses_writes = None;
            model.replicas = 1;
        });
    }
}
