//! One limited dimension: the live limit, and a shadow that only watches.
//!
//! Called by the shard's pipeline. The shadow sees the calls that the live limit sees, decides each by its own rule, is
//! charged when the live limit is, and counts where the two differ; it never changes an answer. So a new policy can be
//! tried on the traffic of a real sale before it refuses anybody. Both tables have fixed sizes.

use super::gcra::{Policy, PolicyError, Verdict};
use super::table::{KeyedLimiter, Probe};
use crate::time::{Mono, NS_PER_MS, NS_PER_S};
use weir_proto::http::quota::Quota;

/// What is limited by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Submits by address.
    Ip,
    /// Submits by user and SKU.
    User,
    /// Submits by device and SKU.
    Device,
    /// Status queries by user.
    Status,
}

impl Dim {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ip, Self::User, Self::Device, Self::Status];

    /// Its word in the configuration, in metrics and in headers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::User => "user",
            Self::Device => "device",
            Self::Status => "status",
        }
    }
}

/// A decision that is charged to neither table yet; what the shadow says of it stays in the [`Dimension`].
#[derive(Clone, Copy, Debug)]
#[must_use = "an allowed call is charged"]
pub struct Judged {
    live: Probe,
}

impl Judged {
    /// What the live limit says: the only word that counts.
    pub const fn verdict(&self) -> Verdict {
        self.live.verdict
    }
}

/// Where live and shadow differed; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowCounts {
    /// Calls that passed and that the shadow would have refused.
    pub would_deny: u64,
    /// Calls that were refused and that the shadow would have let pass.
    pub would_pass: u64,
}

/// The limit that only watches.
#[derive(Debug)]
struct Shadow {
    table: KeyedLimiter,
    /// Of the call that was judged last.
    probe: Option<Probe>,
    counts: ShadowCounts,
}

impl Shadow {
    /// Decides for itself what the live limit has decided as `passes`.
    fn watch(&mut self, now: Mono, name: &[u64], passes: bool) {
        let probe = self.table.probe(now, self.table.key_of(name), 1);
        match (passes, probe.verdict.is_allow()) {
            (true, false) => self.counts.would_deny += 1,
            (false, true) => self.counts.would_pass += 1,
            _ => {}
        }
        self.probe = Some(probe);
    }

    fn charge(&mut self) {
        if let Some(probe) = self.probe.take_if(|probe| probe.verdict.is_allow()) {
            self.table.charge(&probe);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Dimension {
    name: &'static str,
    live: KeyedLimiter,
    shadow: Option<Shadow>,
    changes: u64,
}

impl Dimension {
    /// A dimension of two tables made alike but for their rule.
    pub fn new(dim: Dim, live: KeyedLimiter, shadow: Option<KeyedLimiter>) -> Self {
        Self {
            name: dim.word(),
            live,
            shadow: shadow.map(|table| Shadow {
                table,
                probe: None,
                counts: ShadowCounts::default(),
            }),
            changes: 0,
        }
    }

    /// Has what decides the next call of the key that `name` names brought near; see [`KeyedLimiter::touch`].
    #[inline]
    pub fn touch(&self, name: &[u64]) {
        self.live.touch(self.live.key_of(name));
    }

    /// Decides one call of the key that `name` names; charges nothing. Counts where the shadow differs.
    #[inline]
    pub fn probe(&mut self, now: Mono, name: &[u64]) -> Judged {
        let live = self.live.probe(now, self.live.key_of(name), 1);
        if let Some(shadow) = &mut self.shadow {
            shadow.watch(now, name, live.verdict.is_allow());
        }
        Judged { live }
    }

    /// Charges an allowed call, the one that was judged last, to the live limit, and to the shadow if that would have
    /// let it pass.
    #[inline]
    pub fn charge(&mut self, judged: &Judged) {
        self.live.charge(&judged.live);
        if let Some(shadow) = &mut self.shadow {
            shadow.charge();
        }
    }

    /// Decides and, when allowed, charges: for a limit that stands alone.
    pub fn take(&mut self, now: Mono, name: &[u64]) -> Judged {
        let judged = self.probe(now, name);
        if judged.verdict().is_allow() {
            self.charge(&judged);
        }
        judged
    }

    /// The same where nothing is told of a call that passes.
    /// # Errors
    /// The refused call.
    #[inline]
    pub fn pass(&mut self, now: Mono, name: &[u64]) -> Result<(), Judged> {
        if self.shadow.is_none() {
            let passed = self.live.pass(now, self.live.key_of(name), 1);
            return passed.map_err(|live| Judged { live });
        }
        let judged = self.take(now, name);
        if judged.verdict().is_allow() {
            Ok(())
        } else {
            Err(judged)
        }
    }

    /// What the client of a judged call may be told of the live limit, as it stands after the call; nothing for a key
    /// without a slot.
    pub fn quota(&self, judged: &Judged) -> Option<Quota> {
        let seconds = |ns: u64| u32::try_from(ns.div_ceil(NS_PER_S)).unwrap_or(u32::MAX);
        let (remaining, grows_ns) = self.live.outlook(&judged.live)?;
        let policy = self.live.rule().policy();
        Some(Quota {
            name: self.name,
            quota: policy.capacity(),
            window_s: seconds(policy.full_ns()?).max(1),
            remaining,
            grows_s: seconds(grows_ns),
        })
    }

    /// Milliseconds until a judged caller's turn, rounded up; 0 unless it is admitted by a leaky bucket.
    pub fn pace_ms(&self, judged: &Judged) -> u64 {
        self.live.pace_ns(&judged.live).div_ceil(NS_PER_MS)
    }

    /// Changes the live limit's rate and burst; see [`KeyedLimiter::set_policy`].
    /// # Errors
    /// As there; nothing changes then.
    pub fn set_policy(
        &mut self,
        now: Mono,
        policy: Policy,
        overflow: Policy,
    ) -> Result<(), PolicyError> {
        self.live.set_policy(now, policy, overflow)?;
        self.changes += 1;
        Ok(())
    }

    /// The live table.
    pub const fn live(&self) -> &KeyedLimiter {
        &self.live
    }

    /// Where the shadow differed; `None` without one.
    pub fn shadow_counts(&self) -> Option<ShadowCounts> {
        self.shadow.as_ref().map(|shadow| shadow.counts)
    }

    /// Changes of policy since start.
    pub const fn changes(&self) -> u64 {
        self.changes
    }
}
