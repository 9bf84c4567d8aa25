//! What is done to the SKU's master, so that another one takes its place; each with drawn times.

use super::super::{Result, TortureError};
use super::limits::{CHANGE_MS_MAX, NODE_TIMEOUT_MS};
use super::nodes::Nodes;
use serde::Serialize;
use std::time::{Duration, Instant};
use weir_core::rng::Rng;
use weir_io::signals::Signal;

/// Between two looks at who is master.
const LOOK: Duration = Duration::from_millis(25);

/// One kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGKILL when its replicas have not heard of its last writes.
    KillLagging,
    /// SIGSTOP, and SIGCONT when another one is master: it wakes up as a liar.
    Hang,
    /// DEBUG SLEEP, likewise.
    Sleep,
    /// It hears no node and no node hears it; clients reach it. Mended when another one is master.
    Partition,
    /// CLUSTER FAILOVER: the replica waits until it has everything.
    Failover,
    /// CLUSTER FAILOVER FORCE: it does not ask the master.
    Force,
    /// CLUSTER FAILOVER TAKEOVER: it asks nobody.
    Takeover,
    /// The same by a replica that has not heard of the last writes.
    TakeoverLagging,
}

impl Fault {
    /// All of them; those that lose most come first.
    pub const ALL: [Self; 9] = [
        Self::KillLagging,
        Self::Partition,
        Self::Hang,
        Self::TakeoverLagging,
        Self::Kill,
        Self::Failover,
        Self::Sleep,
        Self::Takeover,
        Self::Force,
    ];

    /// The kinds of a run, each as often as the others within one, in drawn order.
    pub fn draw(count: u64, rng: &mut Rng) -> Vec<Self> {
        let mut drawn = Vec::new();
        while (drawn.len() as u64) < count {
            let mut round = Self::ALL;
            for at in (1..round.len()).rev() {
                round.swap(at, rng.below(at as u64 + 1) as usize);
            }
            drawn.extend(round);
        }
        drawn.truncate(count as usize);
        drawn
    }
}

/// Makes `fault` happen and undoes it once another node is master; that node, and how long the change took.
/// `None`: the masters stayed as they were. `at_once` is called when the fault is about to begin; where replicas lag, when
/// there is something to lose.
///
/// # Errors
/// A node cannot be started again, or takes no order.
pub fn strike(
    fault: Fault,
    nodes: &mut Nodes,
    rng: &mut Rng,
    at_once: impl FnOnce(),
) -> Result<Option<(usize, u64)>> {
    let began = Instant::now();
    let Some(master) = nodes.master() else {
        return Ok(None);
    };
    let family = nodes.family();
    let replicas: Vec<usize> = family
        .iter()
        .copied()
        .filter(|node| *node != master)
        .collect();
    let heir = replicas[rng.below(replicas.len() as u64) as usize];
    let lag_ms = 200 + rng.below(NODE_TIMEOUT_MS - 400);
    // Longer than it takes to be found dead and to be followed.
    let away_ms = 3 * NODE_TIMEOUT_MS + rng.below(NODE_TIMEOUT_MS);
    if matches!(fault, Fault::KillLagging | Fault::TakeoverLagging) {
        for replica in &replicas {
            nodes.wire.cut(master, *replica);
        }
        std::thread::sleep(Duration::from_millis(lag_ms));
    }
    at_once();
    match fault {
        Fault::Kill => nodes.server(master).kill(),
        Fault::KillLagging => {
            nodes.server(master).kill();
            nodes.wire.mend(false);
        }
        Fault::Hang => nodes.signal(master, Signal::Pause)?,
        Fault::Sleep => nodes.sleep(master, away_ms)?,
        Fault::Partition => {
            for other in (0..nodes.count()).filter(|node| *node != master) {
                nodes.wire.cut(master, other);
            }
        }
        Fault::Failover => nodes.order(heir, "CLUSTER FAILOVER")?,
        Fault::Force => nodes.order(heir, "CLUSTER FAILOVER FORCE")?,
        Fault::Takeover | Fault::TakeoverLagging => {
            nodes.order(heir, "CLUSTER FAILOVER TAKEOVER")?;
        }
    }
    let changed = until_changed(nodes, master);
    let change_ms = began.elapsed().as_millis() as u64;
    let lie_ms = rng.below(NODE_TIMEOUT_MS);
    match fault {
        Fault::Kill | Fault::KillLagging => {
            nodes.server(master).restart().map_err(TortureError::of)?
        }
        Fault::Hang => {
            std::thread::sleep(Duration::from_millis(lie_ms));
            nodes.signal(master, Signal::Resume)?;
        }
        Fault::Partition | Fault::TakeoverLagging => {
            std::thread::sleep(Duration::from_millis(lie_ms));
            nodes.wire.mend(rng.chance(1, 2));
        }
        Fault::Sleep | Fault::Failover | Fault::Force | Fault::Takeover => {}
    }
    Ok(changed.map(|now| (now, change_ms)))
}

fn until_changed(nodes: &Nodes, before: usize) -> Option<usize> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(CHANGE_MS_MAX) {
        if let Some(now) = nodes.master().filter(|now| *now != before) {
            return Some(now);
        }
        std::thread::sleep(LOOK);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_turn_before_one_comes_again() {
        let drawn = Fault::draw(20, &mut Rng::new(7));
        assert_eq!(drawn.len(), 20);
        for round in drawn.chunks(Fault::ALL.len()).take(2) {
            let mut kinds = round.to_vec();
            kinds.sort();
            kinds.dedup();
            assert_eq!(kinds.len(), Fault::ALL.len(), "{round:?}");
        }
        assert_ne!(drawn, Fault::draw(20, &mut Rng::new(8)));
        assert_eq!(drawn, Fault::draw(20, &mut Rng::new(7)));
    }
}
