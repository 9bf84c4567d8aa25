//! The lease protocol: one owner's book, one shard, a network that loses, doubles and reorders, restarts of both.

use stateright::{Model, Property};
use std::fmt;
use std::hash::{Hash, Hasher};
use weir_core::limit::book::LeaseBook;
use weir_core::limit::budget::BudgetShare;
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::{LeaseDraw, LeaseGrant, LeaseReturn, ShardId};
use weir_core::time::{Mono, NS_PER_MS};
use weir_proto::ids::{ActivityId, SkuId, SkuKey};

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
const RATE: Rate = Rate::per_second(20);
/// A step of time: longer than the pause between two sendings of a draw.
const STEP_MS: u64 = 700;
const STEPS_MAX: u64 = 2;
/// Messages on their way at once.
const NET_MAX: usize = 2;

/// The model; with `reused_boot` a restarted shard keeps its run's number, which it must not.
#[derive(Clone, Copy, Debug)]
pub struct Leases {
    pub reused_boot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    Draw(LeaseDraw),
    Grant(LeaseGrant),
    Return(LeaseReturn),
}

/// What may go wrong, each so many times.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Left {
    copies: u8,
    shard_restarts: u8,
    owner_restarts: u8,
}

#[derive(Clone)]
pub struct World {
    now: Mono,
    book: LeaseBook,
    /// Granted by the owner's runs before this one.
    granted_before: u64,
    owner_boot: u64,
    share: BudgetShare,
    shard_boot: u64,
    net: Vec<Message>,
    /// Spent by all runs of the shard.
    spent: u64,
    /// Spent by its runs before this one.
    spent_before: u64,
    left: Left,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (book, share) = (&self.book, &self.share);
        let rest = (
            self.now,
            self.granted_before,
            self.owner_boot,
            self.shard_boot,
            &self.net,
            self.spent,
            &self.left,
        );
        write!(f, "{book:?} {share:?} {rest:?}")
    }
}

/// Two worlds are one when they read alike: every field of the real types shows itself.
impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        format!("{self:?}").hash(hasher);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Wait,
    Want,
    SpendAll,
    GiveBack,
    Deliver(usize),
    Copy(usize),
    Lose(usize),
    RestartShard,
    RestartOwner,
}

impl World {
    fn deliver(&mut self, at: usize) {
        match self.net.remove(at) {
            Message::Draw(draw) => {
                if let Some(grant) = self.book.draw(self.now, &draw) {
                    self.net.push(Message::Grant(grant));
                }
            }
            Message::Grant(grant) => {
                self.share.grant(self.now, &grant);
            }
            Message::Return(back) => {
                self.book.give_back(self.now, &back);
            }
        }
    }

    fn spend_all(&mut self) {
        let held = self.share.held();
        if self.share.take(self.now, held) {
            self.spent += u64::from(held);
        }
    }

    fn restart_shard(&mut self, boot: u64) {
        self.shard_boot = boot;
        self.spent_before = self.spent;
        self.share = BudgetShare::new(self.now, ShardId(0), SKU, boot);
    }

    fn restart_owner(&mut self) {
        self.owner_boot += 1;
        self.granted_before += self.book.counts().granted;
        self.book = LeaseBook::new(self.now, self.owner_boot, RATE, 1).unwrap();
    }
}

impl Model for Leases {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: Mono(0),
            book: LeaseBook::new(Mono(0), 1, RATE, 1).unwrap(),
            granted_before: 0,
            owner_boot: 1,
            share: BudgetShare::new(Mono(0), ShardId(0), SKU, 1),
            shard_boot: 1,
            net: Vec::new(),
            spent: 0,
            spent_before: 0,
            left: Left {
                copies: 1,
                shard_restarts: 1,
                owner_restarts: 1,
            },
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.now.0 < STEPS_MAX * STEP_MS * NS_PER_MS {
            steps.push(Step::Wait);
        }
        let room = world.net.len() < NET_MAX;
        if room {
            steps.push(Step::Want);
        }
        if world.share.held() > 0 {
            steps.push(Step::SpendAll);
            if room {
                steps.push(Step::GiveBack);
            }
        }
        for at in 0..world.net.len() {
            steps.push(Step::Deliver(at));
            steps.push(Step::Lose(at));
            if room && world.left.copies > 0 {
                steps.push(Step::Copy(at));
            }
        }
        if world.left.shard_restarts > 0 {
            steps.push(Step::RestartShard);
        }
        if world.left.owner_restarts > 0 {
            steps.push(Step::RestartOwner);
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        match step {
            Step::Wait => world.now = world.now.plus_ms(STEP_MS),
            Step::Want => world.net.push(Message::Draw(world.share.want(world.now)?)),
            Step::SpendAll => world.spend_all(),
            Step::GiveBack => {
                let back = world.share.give_back(world.now)?;
                world.net.push(Message::Return(back));
            }
            Step::Deliver(at) => world.deliver(at),
            Step::Copy(at) => {
                world.left.copies -= 1;
                world.net.push(world.net[at]);
            }
            Step::Lose(at) => {
                world.net.remove(at);
            }
            Step::RestartShard => {
                world.left.shard_restarts -= 1;
                let boot = world.shard_boot + u64::from(!self.reused_boot);
                world.restart_shard(boot);
            }
            Step::RestartOwner => {
                world.left.owner_restarts -= 1;
                world.restart_owner();
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("spent tokens were granted once", |_, world| {
                world.spent <= world.granted_before + world.book.counts().granted
            }),
            Property::<Self>::always("the rate made what was spent", |_, world| {
                // The bucket starts empty, after a restart, too: the rate alone made what was spent.
                let made = world.now.0 * RATE.tokens / RATE.per_ns;
                world.spent <= made
            }),
            Property::<Self>::always("the shard accounts for its tokens", |_, world| {
                let books = world.share.books();
                let held = u64::from(world.share.held());
                books.granted == books.spent + books.returned + books.wasted + held
                    && world.spent == world.spent_before + books.spent
            }),
            Property::<Self>::always("no more comes back than went out", |_, world| {
                world.book.counts().returned <= world.book.counts().granted
            }),
            Property::<Self>::sometimes("tokens are spent", |_, world| world.spent > 0),
        ]
    }
}
