//! A slot that another node has: by a migration, which brings every grant along, or because a replica was promoted,
//! which may lack some. One wish is granted at A; then A says MOVED to B, and a second wish comes.

use super::world::{self, Plan, SKU, STOCK, Wish, server};
use weir::sim::redis::{Conduct, Fate, Honest, Identity};
use weir_core::ask::{Failure, LedgerAnswer, Outcome};
use weir_core::time::Now;

/// How A is once its slot is B's.
#[derive(Clone, Copy)]
struct After {
    role: &'static str,
    replication: char,
    /// It takes the slot for its own, but for reserves.
    keeps_slot: bool,
}

const MIGRATED: After = After {
    role: "master",
    replication: 'b',
    keeps_slot: false,
};

struct OldHome {
    after: After,
    has_granted: bool,
}

impl Conduct for OldHome {
    fn fate(&mut self, _now: Now, _conn: u32, words: &[&[u8]]) -> Fate {
        let is_reserve = words.iter().any(|word| word.starts_with(b"request-"));
        match (words[0], self.has_granted) {
            (b"CLUSTER", has_granted) => slots_at(u16::from(has_granted)),
            (b"EVALSHA", false) => {
                self.has_granted = is_reserve;
                Fate::Serve
            }
            (b"EVALSHA", true) if is_reserve || !self.after.keeps_slot => {
                let slot = weir_proto::resp::key_slot(b"{a1:s1}:sku");
                Fate::Say(format!("-MOVED {slot} {}\r\n", server(1).1).into_bytes())
            }
            (b"INFO", true) => replication(self.after.role, self.after.replication, '0'),
            _ => Fate::Serve,
        }
    }
}

/// B: it was a replica once.
struct Promoted;

impl Conduct for Promoted {
    fn fate(&mut self, _now: Now, _conn: u32, words: &[&[u8]]) -> Fate {
        match words {
            [b"INFO", b"replication"] => replication("master", 'd', 'b'),
            _ => Fate::Serve,
        }
    }
}

fn replication(role: &str, id: char, before: char) -> Fate {
    let [id, before] = [id, before].map(|digit| digit.to_string().repeat(40));
    let text = format!(
        "# Replication\r\nrole:{role}\r\nmaster_replid:{id}\r\nmaster_replid2:{before}\r\n"
    );
    Fate::Say(format!("${}\r\n{text}\r\n", text.len()).into_bytes())
}

/// All slots at that server, as `CLUSTER SLOTS` says it.
fn slots_at(number: u16) -> Fate {
    let port = server(number).1.port();
    let node = format!(
        "*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$40\r\n{}\r\n",
        "c".repeat(40)
    );
    Fate::Say(format!("*1\r\n*3\r\n:0\r\n:16383\r\n{node}").into_bytes())
}

/// What came of the second wish; how many servers are not trusted; units that B has let go.
fn second_wish(after: After, b: Box<dyn Conduct>) -> (Outcome, usize, u64) {
    let wish = |number, at_ms| Wish {
        number,
        at_ms,
        patience_ms: 100,
    };
    let old = Identity {
        version: "6.2.0", // asked for CLUSTER SLOTS
        ..Identity::default()
    };
    let plan = Plan {
        conducts: vec![
            Box::new(OldHome {
                after,
                has_granted: false,
            }),
            b,
        ],
        identities: vec![
            old.clone(),
            Identity {
                run_id: "c".repeat(40),
                replication_id: "c".repeat(40),
                ..old
            },
        ],
        is_cluster: true,
        scripts_loaded: true,
        watches: false,
        password: None,
        wishes: vec![wish(1, 0), wish(2, 300)],
    };
    let ended = world::run(plan, None, 700, &[]);
    let answers = &ended.asker().answers;
    let outcome = |number| {
        let found = answers.iter().find(|(_, answer)| answer.id.0 == number);
        found.unwrap().1.outcome
    };
    assert_eq!(SKU.sku.0, 1);
    assert!(is_granted(outcome(1)), "{:?}", outcome(1));
    assert_eq!(answers.len(), 2);
    (outcome(2), ended.changed_servers(), STOCK - ended.free[1])
}

fn is_granted(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Done(LedgerAnswer::Granted(_)))
}

#[test]
fn a_slot_that_its_master_gave_away_is_sold_at_the_new_node_at_once() {
    let (outcome, changed, sold) = second_wish(MIGRATED, Box::new(Honest));
    assert!(is_granted(outcome), "{outcome:?}");
    assert_eq!((changed, sold), (0, u64::from(world::units(2))));
}

/// Field bug R34.
#[test]
fn a_slot_that_was_taken_from_its_master_is_frozen_at_the_new_node() {
    let demoted = After {
        role: "slave",
        replication: 'd',
        ..MIGRATED
    };
    let began_anew = After {
        replication: 'e',
        ..MIGRATED
    };
    let stale = After {
        keeps_slot: true,
        ..MIGRATED
    };
    let frozen = (Outcome::Failed(Failure::Frozen), 1, 0);
    for after in [demoted, began_anew, stale] {
        assert_eq!(second_wish(after, Box::new(Honest)), frozen);
    }
    assert_eq!(second_wish(MIGRATED, Box::new(Promoted)), frozen);
}
