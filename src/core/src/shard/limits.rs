//! The shard's keyed limits, their shadows, and what a client is told of them (C1, C3, C6).

use super::admit::Refusal;
use super::config::{KeyedLimit, ShardConfig};
use super::staged::{Call, StagedCall};
use crate::limit::dimension::{Dim, Dimension, Judged};
use crate::limit::table::{KeyedLimiter, TableSpec};
use crate::mail::LimitChange;
use crate::time::{Mono, Now};
use weir_proto::addr::IpKey;
use weir_proto::answer::Reason;
use weir_proto::http::quota::Quota;

/// A table of so many bytes is not in a core's own cache as a whole.
const FAR_BYTES_MIN: usize = 1 << 20;

/// See the module.
pub(super) struct Limits {
    dimensions: [Dimension; Dim::ALL.len()],
    tells_quota: bool,
}

/// What an admitted call's reply says of its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// For the headers.
    pub quota: Option<Quota>,
    /// Until the caller's next turn, in milliseconds; 0: says nothing.
    pub pace_ms: u64,
}

/// A table of `limit`'s size with `limit.rule`; `secret` keys its hash.
pub(super) fn table(now: Mono, limit: &KeyedLimit, secret: [u8; 16]) -> KeyedLimiter {
    let spec = TableSpec {
        slots: limit.slots,
        rule: limit.rule,
        overflow: limit.overflow,
        secret,
    };
    KeyedLimiter::new(now, &spec)
}

impl Limits {
    pub fn new(now: Mono, config: &ShardConfig, mut secret: impl FnMut() -> [u8; 16]) -> Self {
        let dimensions = Dim::ALL.map(|dim| {
            let limit = limit_of(config, dim);
            let live = table(now, limit, secret());
            let watching = |rule| table(now, &KeyedLimit { rule, ..*limit }, secret());
            Dimension::new(dim, live, limit.shadow.map(watching))
        });
        Self {
            dimensions,
            tells_quota: config.rate_limit_headers,
        }
    }

    pub fn of(&mut self, dim: Dim) -> &mut Dimension {
        &mut self.dimensions[dim as usize]
    }

    /// Asks memory for the lines that decide these calls by their address, so that they come while others are decided
    /// and not one by one: where the table fits a cache, and for a call alone, that is work for nothing.
    pub fn touch(&self, calls: &[StagedCall]) {
        let addresses = &self.dimensions[Dim::Ip as usize];
        if calls.len() < 2 || addresses.live().bytes() < FAR_BYTES_MIN {
            return;
        }
        for staged in calls {
            let client = match &staged.call {
                Call::Submit(call) => call.client,
                Call::Status(call) => call.client,
                Call::Payment(_) | Call::Answered(_) => continue,
            };
            addresses.touch(&IpKey::new(client).to_words());
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (Dim, &Dimension)> {
        Dim::ALL.into_iter().zip(&self.dimensions)
    }

    /// Passes an allowed call on and makes a refused one a [`Refusal`] with its exact wait.
    pub fn check(&self, dim: Dim, judged: &Judged) -> Result<(), Refusal> {
        let reason = match dim {
            Dim::Ip => Reason::LimitedIp,
            Dim::User => Reason::LimitedUser,
            Dim::Device => Reason::LimitedDevice,
            Dim::Status => Reason::LimitedStatus,
        };
        super::admit::limited(judged.verdict(), reason)
            .map_err(|refusal| refusal.with_quota(self.quota(dim, judged)))
    }

    /// What the reply to a charged call says.
    pub fn told(&self, dim: Dim, judged: &Judged) -> Told {
        Told {
            quota: self.quota(dim, judged),
            pace_ms: self.dimensions[dim as usize].pace_ms(judged),
        }
    }

    fn quota(&self, dim: Dim, judged: &Judged) -> Option<Quota> {
        let dimension = &self.dimensions[dim as usize];
        self.tells_quota.then(|| dimension.quota(judged)).flatten()
    }

    /// An operator's change. The ops listener has checked that the rule can be enforced.
    pub fn change(&mut self, now: Now, config: &ShardConfig, change: &LimitChange) {
        let overflow = limit_of(config, change.dim).overflow;
        let changed = self
            .of(change.dim)
            .set_policy(now.mono, change.policy, overflow);
        debug_assert_eq!(changed, Ok(()), "the sender checks what it sends");
    }
}

fn limit_of(config: &ShardConfig, dim: Dim) -> &KeyedLimit {
    match dim {
        Dim::Ip => &config.ip,
        Dim::User => &config.user,
        Dim::Device => &config.device,
        Dim::Status => &config.status,
    }
}
