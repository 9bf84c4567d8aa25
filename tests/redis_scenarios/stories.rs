//! The 27 scenarios of `resp-fault-scenarios.json` as conduct of servers, wishes of an asker, and what must hold.

use super::world::{self, Ended, Happening, Plan, SKU, STOCK, Seen, Wish, server, units};
use std::collections::BTreeMap;
use weir::sim::redis::{Conduct, Fate, Identity, Piece};
use weir_core::ask::{Failure, LedgerAnswer, Outcome};
use weir_core::redis::link::fault::LinkFault;
use weir_core::time::{Mono, Now};

/// One scenario.
pub struct Story {
    /// Its id in the file.
    pub id: &'static str,
    /// So long it is looked at.
    pub run_ms: u64,
    /// How it begins; made anew for each run.
    pub plan: fn() -> Plan,
    /// What happens meanwhile.
    pub happenings: &'static [Happening],
    /// What must hold when nothing is cut but where replies are split; gives what does not.
    pub check: fn(&Outcomes, &Ended) -> Vec<String>,
}

/// What each wish came to: the answer and when it came, in ms after the start; `None`: none yet.
pub type Outcomes = BTreeMap<u64, (Outcome, u64)>;

/// A conduct made of a function.
struct By<F>(F);

impl<F: FnMut(Now, u32, &[&[u8]]) -> Fate + Send> Conduct for By<F> {
    fn fate(&mut self, now: Now, conn: u32, words: &[&[u8]]) -> Fate {
        (self.0)(now, conn, words)
    }
}

fn by(fate: impl FnMut(Now, u32, &[&[u8]]) -> Fate + Send + 'static) -> Box<dyn Conduct> {
    Box::new(By(fate))
}

/// Serves everything but what `odd` decides.
fn but(
    mut odd: impl FnMut(Now, u32, &[&[u8]]) -> Option<Fate> + Send + 'static,
) -> Box<dyn Conduct> {
    by(move |now, conn, words| odd(now, conn, words).unwrap_or(Fate::Serve))
}

/// Serves every reserve but the first, which `fate` decides.
fn first_reserve(fate: Fate) -> Box<dyn Conduct> {
    let mut fate = Some(fate);
    but(move |_, _, words| if is_reserve(words) { fate.take() } else { None })
}

fn is_reserve(words: &[&[u8]]) -> bool {
    words[0] == b"EVALSHA" && words.iter().any(|word| word.starts_with(b"request-"))
}

fn is_word(words: &[&[u8]], word: &str) -> bool {
    words[0].eq_ignore_ascii_case(word.as_bytes())
}

fn say(text: &str) -> Fate {
    Fate::Say(format!("{text}\r\n").into_bytes())
}

fn wish(number: u64, at_ms: u64) -> Wish {
    Wish {
        number,
        at_ms,
        patience_ms: 100,
    }
}

fn plan(conduct: Box<dyn Conduct>, wishes: &[Wish]) -> Plan {
    Plan {
        conducts: vec![conduct],
        identities: vec![Identity::default()],
        is_cluster: false,
        scripts_loaded: true,
        watches: false,
        password: None,
        wishes: wishes.to_vec(),
    }
}

/// One wish, and one more when the link must be well again.
const TWO: [Wish; 2] = [
    Wish {
        number: 1,
        at_ms: 0,
        patience_ms: 100,
    },
    Wish {
        number: 2,
        at_ms: 700,
        patience_ms: 100,
    },
];

/// Notes what does not hold.
struct Judge<'a> {
    outcomes: &'a Outcomes,
    ended: &'a Ended,
    wrong: Vec<String>,
}

impl<'a> Judge<'a> {
    fn new(outcomes: &'a Outcomes, ended: &'a Ended) -> Self {
        Self {
            outcomes,
            ended,
            wrong: Vec::new(),
        }
    }

    fn hold(mut self, is_so: bool, what: &str) -> Self {
        if !is_so {
            self.wrong.push(what.to_string());
        }
        self
    }

    fn outcome(self, number: u64, what: &str, is_so: impl Fn(&Outcome) -> bool) -> Self {
        let outcome = self.outcomes.get(&number).map(|(outcome, _)| *outcome);
        let is_so = outcome.as_ref().is_some_and(is_so);
        self.hold(is_so, &format!("wish {number} is {what}, not {outcome:?}"))
    }

    fn granted(self, number: u64) -> Self {
        self.outcome(number, "granted", |outcome| {
            matches!(outcome, Outcome::Done(LedgerAnswer::Granted(_)))
        })
    }

    fn unknown(self, number: u64) -> Self {
        self.outcome(number, "unknown", |outcome| *outcome == Outcome::Unknown)
    }

    fn failed(self, number: u64, failure: Failure) -> Self {
        self.outcome(number, &format!("{failure:?}"), |outcome| {
            *outcome == Outcome::Failed(failure)
        })
    }

    fn seen(&self, server: usize) -> &Seen {
        &self.ended.seen[server]
    }

    /// So many commands of that name reached the server.
    fn commands(self, server: usize, name: &str, count: impl Fn(u64) -> bool) -> Self {
        let commands = self.seen(server).commands.get(name).copied().unwrap_or(0);
        let is_so = count(commands);
        self.hold(
            is_so,
            &format!("{commands} times {name} at server {server}"),
        )
    }

    fn end(self) -> Vec<String> {
        self.wrong
    }
}

/// A refusal by a word that says that nothing was executed: the first wish fails, the second is served.
fn refused_by(word: &'static str) -> Plan {
    plan(first_reserve(say(&format!("-{word} something"))), &TWO)
}

fn check_refused(outcomes: &Outcomes, ended: &Ended) -> Vec<String> {
    Judge::new(outcomes, ended)
        .failed(1, Failure::Unavailable)
        .granted(2)
        .hold(
            ended.free[0] == STOCK - u64::from(units(2)),
            "only the second wish took stock",
        )
        .hold(ended.counts().refusals == 1, "the refusal is counted")
        .end()
}

macro_rules! refusals {
    ($($id:literal => $word:literal),* $(,)?) => {
        [$(Story {
            id: $id,
            run_ms: 1_200,
            happenings: &[],
            plan: || refused_by($word),
            check: check_refused,
        }),*]
    };
}

/// All slots at that server, as `CLUSTER SLOTS` says it.
fn slots_at(number: u16) -> Fate {
    let port = server(number).1.port();
    let id = "c".repeat(40);
    Fate::Say(
        format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$40\r\n{id}\r\n")
            .into_bytes(),
    )
}

fn moved_to(number: u16) -> Fate {
    let (_, to) = server(number);
    let slot = weir_proto::resp::key_slot(
        format!("{{a{}:s{}}}:sku", SKU.activity.0, SKU.sku.0).as_bytes(),
    );
    say(&format!("-MOVED {slot} {to}"))
}

/// Two nodes: A sends reserves on to B; `b` is B's conduct.
fn two_nodes(b: Box<dyn Conduct>) -> Plan {
    let mut has_moved = false;
    let a = but(move |_, _, words| {
        if is_word(words, "CLUSTER") {
            return Some(slots_at(u16::from(has_moved)));
        }
        is_reserve(words).then(|| {
            has_moved = true;
            moved_to(1)
        })
    });
    Plan {
        conducts: vec![a, b],
        identities: vec![Identity::default(), Identity::default()],
        is_cluster: true,
        ..plan(Box::new(weir::sim::redis::Honest), &TWO)
    }
}

struct Dribble;

impl Conduct for Dribble {
    fn fate(&mut self, _now: Now, _conn: u32, _words: &[&[u8]]) -> Fate {
        Fate::Serve
    }

    fn pieces(&mut self, now: Now, number: u64, reply: Vec<u8>) -> Vec<(Mono, Piece)> {
        // The greeting has four replies; it is dribbled, too, but not for longer than its deadline.
        let every_us = if number < 4 { 100 } else { 1_000 };
        let times = (0..).map(|at| now.mono.plus_ns(at * every_us * 1_000));
        let pieces = reply.into_iter().map(|byte| Piece::Bytes(vec![byte]));
        times.zip(pieces).collect()
    }
}

/// So many wishes while the server takes its time to greet, longer than any of them waits.
pub fn slow_greeting(wishes: u64) -> Plan {
    let slow = but(|_, _, words| is_word(words, "HELLO").then_some(Fate::ServeAfter(140)));
    let hasty = |number| Wish {
        patience_ms: 50,
        ..wish(number, 0)
    };
    plan(slow, &(1..=wishes).map(hasty).collect::<Vec<_>>())
}

/// The server's user may do everything but listen; four wishes come while it is greeted.
pub fn no_subscribing() -> Plan {
    let deaf = but(|_, _, words| {
        is_word(words, "SUBSCRIBE")
            .then(|| say("-NOPERM this user has no permissions to run the 'subscribe' command"))
    });
    let wishes: Vec<Wish> = (1..=4).map(|number| wish(number, number * 50)).collect();
    Plan {
        watches: true,
        ..plan(deaf, &wishes)
    }
}

/// The first reserve is refused in the words of Redis 6.
pub fn wrapped_demotion() -> Plan {
    let words = "-ERR Error running script (call to f_6a73): @user_script:49: -READONLY You can't write against a read only replica.";
    plan(first_reserve(say(words)), &TWO)
}

/// Every scenario of the file, in its order.
pub fn all() -> Vec<Story> {
    let mut all = first_half();
    all.extend(refusals![
        "err-busy" => "BUSY",
        "err-oom" => "OOM",
        "err-noreplicas" => "NOREPLICAS",
        "err-masterdown" => "MASTERDOWN",
        "err-misconf" => "MISCONF",
        "err-clusterdown" => "CLUSTERDOWN",
        "err-tryagain" => "TRYAGAIN",
    ]);
    all.extend(second_half());
    all
}

fn first_half() -> Vec<Story> {
    vec![
        Story {
            id: "desync-timeout",
            run_ms: 300,
            happenings: &[],
            plan: || {
                let hasty = Wish {
                    patience_ms: 30,
                    ..wish(1, 0)
                };
                plan(first_reserve(Fate::ServeAfter(80)), &[hasty, wish(2, 35)])
            },
            // The asker of the first gave up at 30 ms; the late reply is its own and nobody else's.
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .granted(1)
                    .granted(2)
                    .hold(outcomes[&1].1 >= 80, "the first answer came late")
                    .end()
            },
        },
        Story {
            id: "desync-handshake",
            run_ms: 900,
            happenings: &[],
            plan: || {
                let late = but(|_, conn, words| {
                    assert!(
                        conn > 0 || !is_reserve(words),
                        "asked on a link that was never greeted"
                    );
                    (conn == 0 && is_word(words, "HELLO")).then_some(Fate::ServeAfter(200))
                });
                plan(late, &[wish(1, 0), wish(2, 700)])
            },
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .granted(2)
                    .commands(0, "HELLO", |count| count >= 2)
                    .end()
            },
        },
        Story {
            id: "retry-nonidempotent",
            run_ms: 1_200,
            happenings: &[],
            plan: || plan(first_reserve(Fate::ServeThenClose), &TWO),
            check: |outcomes, ended| {
                let taken = u64::from(units(1) + units(2));
                Judge::new(outcomes, ended)
                    .unknown(1)
                    .granted(2)
                    .hold(
                        ended.free[0] == STOCK - taken,
                        "stock went down once for each",
                    )
                    .end()
            },
        },
        Story {
            id: "noscript",
            run_ms: 200,
            happenings: &[],
            plan: || Plan {
                scripts_loaded: false,
                ..plan(Box::new(weir::sim::redis::Honest), &[wish(1, 0)])
            },
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .granted(1)
                    .commands(0, "SCRIPT", |count| count == 2)
                    .commands(0, "RESERVE", |count| count == 2)
                    .end()
            },
        },
        Story {
            id: "noscript-pipelined",
            run_ms: 200,
            happenings: &[],
            plan: || {
                let wishes: Vec<Wish> = (1..=64)
                    .map(|number| wish(number % 8 + 8 * (number / 8), 0))
                    .collect();
                Plan {
                    scripts_loaded: false,
                    ..plan(Box::new(weir::sim::redis::Honest), &wishes)
                }
            },
            check: |outcomes, ended| {
                let mut judge = Judge::new(outcomes, ended)
                    .commands(0, "SCRIPT", |count| count == 2)
                    .commands(0, "RESERVE", |count| count == 128);
                for (place, (number, (outcome, _))) in (1..).zip(outcomes) {
                    // Dense numbers in the order of the asks: they were sent again in that order.
                    let is_so = matches!(outcome, Outcome::Done(LedgerAnswer::Granted(held))
                        if held.reservation.0 == place);
                    judge = judge.hold(
                        is_so,
                        &format!("wish {number} is reservation {place}: {outcome:?}"),
                    );
                }
                judge.hold(outcomes.len() == 64, "all are answered").end()
            },
        },
        Story {
            id: "moved",
            run_ms: 1_200,
            happenings: &[],
            plan: || {
                two_nodes(but(|_, _, words| {
                    is_word(words, "CLUSTER").then(|| slots_at(1))
                }))
            },
            check: |outcomes, ended| {
                let count = |server: usize| {
                    ended.seen[server]
                        .commands
                        .get("CLUSTER")
                        .copied()
                        .unwrap_or(0)
                };
                let maps = count(0) + count(1);
                Judge::new(outcomes, ended)
                    .granted(1)
                    .granted(2)
                    .hold(
                        maps == 2,
                        &format!("one map at the start, one for MOVED, not {maps}"),
                    )
                    .commands(0, "RESERVE", |count| count == 1)
                    .commands(1, "RESERVE", |count| count == 2)
                    .end()
            },
        },
        Story {
            id: "moved-loop",
            run_ms: 500,
            happenings: &[],
            plan: || {
                let b = but(|_, _, words| {
                    if is_word(words, "CLUSTER") {
                        return Some(slots_at(0));
                    }
                    is_reserve(words).then(|| moved_to(0))
                });
                two_nodes(b)
            },
            check: |outcomes, ended| {
                let sent = |server: usize| {
                    ended.seen[server]
                        .commands
                        .get("RESERVE")
                        .copied()
                        .unwrap_or(0)
                };
                Judge::new(outcomes, ended)
                    .failed(1, Failure::Unavailable)
                    .hold(sent(0) + sent(1) == 4, "sent once and three times more")
                    .commands(0, "CLUSTER", |count| count <= 7)
                    .end()
            },
        },
        Story {
            id: "readonly-script",
            run_ms: 1_200,
            happenings: &[],
            plan: || {
                plan(
                    first_reserve(say(
                        "-READONLY You can't write against a read only replica. script: 6a73, on @user_script:49.",
                    )),
                    &TWO,
                )
            },
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .failed(1, Failure::Unavailable)
                    .granted(2)
                    .commands(0, "HELLO", |count| count == 2)
                    .commands(0, "RESERVE", |count| count == 2)
                    .end()
            },
        },
        Story {
            id: "loading",
            run_ms: 1_200,
            happenings: &[],
            plan: || refused_by("LOADING"),
            check: check_refused,
        },
        Story {
            id: "loading-ping",
            run_ms: 3_000,
            happenings: &[],
            plan: || {
                let loading = but(|now, _, words| {
                    let loads = now.mono < Mono(0).plus_ms(400);
                    (loads && is_word(words, "PING"))
                        .then(|| say("-LOADING Redis is loading the dataset in memory"))
                });
                plan(loading, &[wish(1, 200), wish(2, 2_700)])
            },
            // While it loads the desk is not ready, so nothing is sent.
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .failed(1, Failure::Unavailable)
                    .granted(2)
                    .commands(0, "RESERVE", |count| count == 1)
                    .end()
            },
        },
    ]
}

fn second_half() -> Vec<Story> {
    vec![
        Story {
            id: "oom-midway",
            run_ms: 200,
            happenings: &[],
            plan: || {
                let full = Identity {
                    refuses_writes: Some("OOM command not allowed when used memory > 'maxmemory'."),
                    ..Identity::default()
                };
                Plan {
                    identities: vec![full],
                    ..plan(Box::new(weir::sim::redis::Honest), &[wish(1, 0)])
                }
            },
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .failed(1, Failure::Unavailable)
                    .hold(ended.free[0] == STOCK, "no unit is held")
                    .hold(ended.keys[0] == ended.keys_before[0], "no key was made")
                    .end()
            },
        },
        Story {
            id: "half-open",
            run_ms: 3_200,
            happenings: &[],
            plan: || {
                let mut greeted = 0;
                let hole = but(move |_, conn, words| {
                    greeted += u32::from(is_word(words, "PING"));
                    (conn == 0 && (is_reserve(words) || greeted > 1)).then_some(Fate::Ignore)
                });
                plan(hole, &[wish(1, 0), wish(2, 2_500)])
            },
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .unknown(1)
                    .granted(2)
                    .hold(outcomes[&1].1 <= 3_000, "the link is replaced within 3 s")
                    .end()
            },
        },
        Story {
            id: "mid-reply-close",
            run_ms: 1_200,
            happenings: &[],
            plan: || {
                plan(
                    first_reserve(Fate::SayThenClose(b"*4\r\n:1\r\n:99".to_vec())),
                    &TWO,
                )
            },
            check: |outcomes, ended| Judge::new(outcomes, ended).unknown(1).granted(2).end(),
        },
        Story {
            id: "byte-dribble",
            run_ms: 1_500,
            happenings: &[],
            plan: || {
                let patient = |number, at_ms| Wish {
                    patience_ms: 600, // the books of the SKU come first, byte by byte
                    ..wish(number, at_ms)
                };
                plan(Box::new(Dribble), &[patient(1, 100), patient(2, 900)])
            },
            check: |outcomes, ended| Judge::new(outcomes, ended).granted(1).granted(2).end(),
        },
        Story {
            id: "wrong-shape",
            run_ms: 1_200,
            happenings: &[],
            plan: || plan(first_reserve(say("+OK")), &TWO),
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .unknown(1)
                    .granted(2)
                    .commands(0, "HELLO", |count| count == 2)
                    .end()
            },
        },
        Story {
            id: "unsolicited",
            run_ms: 900,
            happenings: &[],
            plan: || {
                let chatty = but(|_, conn, words| {
                    (conn == 0 && is_word(words, "PING")).then(|| say("+PONG\r\n+OK"))
                });
                plan(chatty, &[wish(1, 700)])
            },
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .granted(1)
                    .commands(0, "HELLO", |count| count == 2)
                    .end()
            },
        },
        Story {
            id: "pubsub-gap",
            run_ms: 1_300,
            happenings: &[(300, world::sell_out_unheard), (700, world::reopen)],
            plan: || Plan {
                watches: true,
                ..plan(
                    Box::new(weir::sim::redis::Honest),
                    &[wish(1, 100), wish(2, 1_000)],
                )
            },
            // The link was lost with the event: the first thing after its greeting is a snapshot. The second event is
            // heard, and what it speaks of is pulled at once.
            check: |outcomes, ended| {
                let views = ended.views();
                let first_of = |epoch| views.iter().find(|view| view.1 == epoch).copied();
                let is_told = |view: Option<(u64, u64, bool)>, since_ms, sold_out| {
                    view.is_some_and(|(ms, _, is_out)| {
                        ms >= since_ms && ms < since_ms + 150 && is_out == sold_out
                    })
                };
                Judge::new(outcomes, ended)
                    .granted(1)
                    .granted(2)
                    .commands(0, "SUBSCRIBE", |count| count == 2)
                    .hold(
                        is_told(first_of(31), 300, true),
                        &format!("sold out is seen after the gap: {views:?}"),
                    )
                    .hold(
                        is_told(first_of(32), 700, false),
                        &format!("the reopening is seen at once: {views:?}"),
                    )
                    .hold(
                        views.is_sorted_by_key(|view| view.1),
                        "no epoch is older than one before it",
                    )
                    .end()
            },
        },
        Story {
            id: "failover-lost-write",
            run_ms: 1_200,
            happenings: &[(200, world::fail_over)],
            plan: || plan(Box::new(weir::sim::redis::Honest), &TWO),
            // Between the two wishes the server falls and its replica, which lacks the first, takes over.
            check: |outcomes, ended| {
                Judge::new(outcomes, ended)
                    .granted(1)
                    .failed(2, Failure::Frozen)
                    .commands(0, "RESERVE", |count| count == 1)
                    .hold(ended.changed_servers() == 1, "the change is told")
                    .end()
            },
        },
        Story {
            id: "auth-fail",
            run_ms: 500,
            happenings: &[],
            plan: || Plan {
                identities: vec![Identity {
                    password: Some("the right one".to_string()),
                    ..Identity::default()
                }],
                password: Some("hunter2"),
                ..plan(Box::new(weir::sim::redis::Honest), &[wish(1, 100)])
            },
            check: |outcomes, ended| {
                let fault = ended.fault(0);
                let words = format!(
                    "{:?} {}",
                    ended.desk(),
                    fault.map_or(String::new(), |fault| fault.to_string())
                );
                Judge::new(outcomes, ended)
                    .failed(1, Failure::Unavailable)
                    .hold(
                        fault == Some(LinkFault::NotAuthenticated),
                        "the fault says what is wrong",
                    )
                    .hold(!words.contains("hunter2"), "the password is shown")
                    .commands(0, "RESERVE", |count| count == 0)
                    .end()
            },
        },
        Story {
            id: "hello-unsupported",
            run_ms: 200,
            happenings: &[],
            plan: || {
                let old = but(|_, _, words| {
                    is_word(words, "HELLO").then(|| say("-ERR unknown command 'HELLO'"))
                });
                plan(old, &[wish(1, 0)])
            },
            check: |outcomes, ended| Judge::new(outcomes, ended).granted(1).end(),
        },
    ]
}
