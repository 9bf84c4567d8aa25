//! What a seed makes of the Redis of a world: how many machines ask it, how it is reached, and how it misbehaves.
//!
//! Drawn from what the plan is already, as the gates are: a seed's sale is the same with either ledger. The director turns
//! the [`Mood`]; the modelled server asks it about each command.

use super::plan::{Plan, REDIS_LISTEN};
use super::redis::{Conduct, Fate, Identity};
use super::tally::{Fault, Faults};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_core::ledger::LedgerConfig;
use weir_core::limits::LINK_SENT_MAX;
use weir_core::redis::breaker;
use weir_core::redis::desk::{DeskConfig, Wait};
use weir_core::redis::endpoint::{Endpoint, Host};
use weir_core::redis::link::Patience;
use weir_core::redis::link::greeting::Words;
use weir_core::redis::step::StepPlan;
use weir_core::rng::Rng;
use weir_core::shard::config::Role;
use weir_core::time::{Mono, Now};

/// What a seed decides about Redis.
#[derive(Debug)]
pub(super) struct RedisPlan {
    /// Machines with shards and a clerk. The first one makes the orders.
    pub machines: u16,
    /// What the steps of each SKU need.
    pub steps: Vec<StepPlan>,
    /// What the first machine does beside making the orders; the second one sells.
    pub first: Role,
    /// Answers rest on a replica.
    pub wait: Option<Wait>,
    /// Nobody ever hears what it publishes.
    pub is_mute: bool,
    rates: Rates,
    patience: Patience,
    under_way_max: usize,
    breaker: breaker::Policy,
    /// Its replica takes over while the second machine is out of reach, and has sold what nobody else has heard of: from
    /// when on it gets nothing more, and for how long before it does, milliseconds.
    pub far_failover: Option<(u64, u64)>,
}

/// A load so much longer than a failover goes on after the books are mended.
const MENDED_MS: u64 = 3_600;

/// How often a command meets a fault; of a thousand.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    late: u64,
    late_ms_max: u64,
    unanswered: u64,
    unread: u64,
}

impl RedisPlan {
    /// What the seed of `plan` draws.
    pub fn draw(plan: &Plan) -> Self {
        let mut rng = Rng::new(!(plan.load_ms << 40 | plan.burst_ms << 20 | plan.buyers_count));
        let sizes = LedgerConfig::sized(&plan.sale, 0, &plan.sizes);
        let steps =
            crate::config::redis_steps(&plan.sale).expect("the ids of these sales are small");
        let steps = steps.into_iter().map(|steps| {
            let sized = sizes.plans.iter().find(|sized| sized.sku == steps.sku);
            StepPlan {
                reservations_max: sized
                    .map_or(steps.reservations_max, |plan| plan.reservations_max),
                ..steps
            }
        });
        let is_calm = plan.mishaps_count == 0;
        let mut often = |most: u64| {
            if is_calm || rng.chance(1, 2) {
                0
            } else {
                rng.below(most)
            }
        };
        let rates = Rates {
            late: often(30),
            late_ms_max: 1 + often(600),
            unanswered: often(12),
            unread: often(12),
        };
        let machines = 1 + u16::from(rng.chance(1, 2));
        let first = match machines == 2 && rng.chance(1, 3) {
            true => Role::MakesOrders,
            false => Role::Whole,
        };
        let wait = rng.chance(1, 3).then(|| Wait {
            replicas: 1,
            timeout_ms: 5 + rng.below(50),
        });
        let goes_far = machines == 2 && !is_calm && wait.is_none() && plan.load_ms > MENDED_MS;
        let far_failover = (goes_far && rng.chance(2, 3)).then(|| {
            let at_ms = rng.below(plan.load_ms - MENDED_MS);
            (at_ms, 50 + rng.below(300))
        });
        Self {
            machines,
            first,
            steps: steps.collect(),
            wait,
            is_mute: rng.chance(1, 4),
            rates,
            patience: Patience {
                greeting_ms_max: 100 + rng.below(300),
                reply_ms_max: 300 + rng.below(1_700),
                ping_every_ms: 1_000,
            },
            breaker: breaker::Policy {
                samples_min: if rng.chance(1, 2) { 3 } else { 20 },
                ..breaker::Policy::default()
            },
            far_failover,
            under_way_max: match rng.chance(1, 6) {
                true => 12 + rng.below(12) as usize,
                false => LINK_SENT_MAX,
            },
        }
    }

    /// How a clerk reaches it.
    pub fn desk(&self, seed: u64) -> DeskConfig {
        DeskConfig {
            servers: vec![Endpoint {
                host: Host::Ip(REDIS_LISTEN.ip()),
                port: REDIS_LISTEN.port(),
            }],
            is_cluster: false,
            tls: None,
            wait: self.wait,
            remembers: true,
            hears_events: true,
            words: Words {
                client_name: "weir".to_owned(),
                auth: None,
                database: 0,
                channels: Vec::new(),
            },
            patience: self.patience,
            under_way_max: self.under_way_max,
            breaker: self.breaker,
            seed,
        }
    }
}

/// The server of its `number`th life.
pub(super) fn identity(number: u64) -> Identity {
    Identity {
        run_id: format!("{number:040x}"),
        replication_id: format!("{:040x}", number << 8),
        ..Identity::default()
    }
}

/// How the server is at present; shared by its model and the director.
#[derive(Clone, Default)]
pub(super) struct Mood(Arc<Mutex<Turns>>);

#[derive(Default)]
struct Turns {
    is_calm: bool,
    busy_until: Mono,
    loading_until: Mono,
    counts: Faults,
}

impl Mood {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It misbehaves no more.
    pub fn calm(&self) {
        *self.turns() = Turns {
            is_calm: true,
            counts: self.counts(),
            ..Turns::default()
        };
    }

    /// A script of somebody else runs until then.
    pub fn busy_until(&self, until: Mono) {
        self.turns().busy_until = until;
    }

    /// It reads its data until then.
    pub fn loads_until(&self, until: Mono) {
        self.turns().loading_until = until;
    }

    /// Faults that came true.
    pub fn counts(&self) -> Faults {
        self.turns().counts
    }
}

/// Decides each command's fate.
pub(super) struct Squall {
    rates: Rates,
    mood: Mood,
    rng: Rng,
}

impl Squall {
    pub fn new(plan: &RedisPlan, mood: Mood, rng: Rng) -> Self {
        Self {
            rates: plan.rates,
            mood,
            rng,
        }
    }
}

impl Conduct for Squall {
    fn fate(&mut self, now: Now, _conn: u32, _words: &[&[u8]]) -> Fate {
        let mut turns = self.mood.turns();
        if now.mono < turns.loading_until {
            turns.counts.count(Fault::RedisLoading);
            return Fate::Say(b"-LOADING Redis is loading the dataset in memory\r\n".to_vec());
        }
        if now.mono < turns.busy_until {
            turns.counts.count(Fault::RedisBusy);
            return Fate::Say(
                b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n".to_vec(),
            );
        }
        if turns.is_calm {
            return Fate::Serve;
        }
        let (draw, rates) = (self.rng.below(1_000), self.rates);
        if draw < rates.late {
            turns.counts.count(Fault::RedisLate);
            Fate::ServeAfter(1 + self.rng.below(rates.late_ms_max))
        } else if draw < rates.late + rates.unanswered {
            turns.counts.count(Fault::RedisUnanswered);
            Fate::ServeThenClose
        } else if draw < rates.late + rates.unanswered + rates.unread {
            turns.counts.count(Fault::RedisUnread);
            Fate::SayThenClose(Vec::new())
        } else {
            Fate::Serve
        }
    }
}
