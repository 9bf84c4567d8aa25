//! The desk against a modelled Redis that does what has gone wrong elsewhere: every scenario of
//! `resp-fault-scenarios.json`, with every reply split at every byte, and with the connection lost at every byte
//! (D6, E2, F6; requirements N1).
#![allow(clippy::unwrap_used)] // a test that meets one has failed

#[path = "redis_scenarios/homes.rs"]
mod homes;
#[path = "support/say.rs"]
mod say;
#[path = "redis_scenarios/stories.rs"]
mod stories;
#[path = "redis_scenarios/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use stories::{Outcomes, Story};
use weir_core::ask::{Failure, LedgerAnswer, Outcome};
use weir_core::limits::LINK_SENT_MAX;
use weir_core::redis::link::fault::LinkFault;
use weir_core::time::NS_PER_MS;
use world::{Arrival, Cut, Ended, SETTLED_MS, STOCK, units};

fn run(story: &Story, cut: Option<Cut>) -> Ended {
    world::run((story.plan)(), cut, story.run_ms, story.happenings)
}

fn outcomes(ended: &Ended) -> Outcomes {
    let start = SETTLED_MS * NS_PER_MS;
    let answers = ended.asker().answers.iter();
    answers
        .map(|(at, answer)| {
            let ms = at.0.saturating_sub(start) / NS_PER_MS;
            (answer.id.0, (answer.outcome, ms))
        })
        .collect()
}

/// What must hold in every run, however its replies were cut: gives what does not, and how often an ask whose fate was
/// open was sent again.
fn always(story: &Story, ended: &Ended) -> (Vec<String>, u64) {
    let mut wrong = Vec::new();
    let answers = &ended.asker().answers;
    let ids: BTreeSet<u64> = answers.iter().map(|(_, answer)| answer.id.0).collect();
    if ids.len() != answers.len() {
        wrong.push("an ask was answered twice".to_string());
    }
    let mut taken = 0;
    for (number, (outcome, _)) in outcomes(ended) {
        match outcome {
            Outcome::Done(LedgerAnswer::Granted(held)) if held.quantity == units(number) => {
                taken += u64::from(held.quantity);
            }
            Outcome::Unknown | Outcome::Failed(_) => {}
            other => wrong.push(format!(
                "wish {number} has the answer of another: {other:?}"
            )),
        }
    }
    let sold: u64 = ended.free.iter().map(|free| STOCK - free).sum();
    // In a story whose happenings change the stock it says nothing.
    if sold < taken && story.happenings.is_empty() {
        wrong.push(format!("{taken} units were granted, {sold} are held"));
    }
    let resent = ended.seen.iter().flat_map(|seen| seen.reserves.values());
    let resent = resent.map(|arrivals| {
        let open = arrivals
            .iter()
            .position(|arrival| *arrival == Arrival::Open);
        open.map_or(0, |first| arrivals.len() - first - 1) as u64
    });
    (wrong, resent.sum())
}

#[test]
fn the_file_has_a_story_for_each_scenario() {
    let text = std::fs::read_to_string("tests/data/resp-fault-scenarios.json").unwrap();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let ids = file.as_array().unwrap().iter();
    let ids: Vec<&str> = ids.map(|row| row["id"].as_str().unwrap()).collect();
    let stories: Vec<&str> = stories::all().iter().map(|story| story.id).collect();
    assert_eq!(ids, stories);
}

#[test]
fn every_story_ends_as_it_must() {
    let mut wrong = Vec::new();
    for story in stories::all() {
        let ended = run(&story, None);
        let (mut found, resent) = always(&story, &ended);
        found.extend((story.check)(&outcomes(&ended), &ended));
        if !found.is_empty() || resent > 0 {
            wrong.push(format!("{}: {found:?}, resent {resent}", story.id));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the runs came to.
#[derive(Default)]
struct Sum {
    runs: u64,
    wrong: u64,
    resent_unknown: u64,
}

impl Sum {
    fn judge(&mut self, story: &Story, cut: Option<Cut>) -> Ended {
        let ended = run(story, cut);
        let (mut found, resent) = always(story, &ended);
        // A connection that is lost changes what comes of a story; a split changes nothing.
        if cut.is_none_or(|cut| cut.gap_ms.is_some()) {
            found.extend((story.check)(&outcomes(&ended), &ended));
        }
        if !found.is_empty() || resent > 0 {
            let id = story.id;
            say::say(&format!("{id} with {cut:?}: {found:?}, resent {resent}"));
        }
        self.runs += 1;
        self.wrong += u64::from(!found.is_empty());
        self.resent_unknown += resent;
        ended
    }

    /// The story whole, then with each reply split, and its connection lost, at each byte.
    fn every_cut(&mut self, story: &Story) {
        let whole = self.judge(story, None);
        for (server, seen) in (0..).zip(&whole.seen) {
            for (reply, bytes_count) in (0..).zip(&seen.replies) {
                for bytes in 0..*bytes_count {
                    for gap_ms in [Some(1), None] {
                        let cut = Cut {
                            server,
                            reply,
                            bytes,
                            gap_ms,
                        };
                        self.judge(story, Some(cut));
                    }
                }
            }
        }
    }
}

/// Field bugs R28 and B39: what waits is bounded, and what has waited too long is not sent.
#[test]
fn asks_that_wait_for_a_greeting_are_bounded_and_dropped_unsent_once_expired() {
    let ended = world::run(stories::slow_greeting(5_000), None, 300, &[]);
    let failed = |failure| {
        let answers = ended.asker().answers.iter();
        answers
            .filter(|(_, answer)| answer.outcome == Outcome::Failed(failure))
            .count()
    };
    assert_eq!(failed(Failure::Late), LINK_SENT_MAX);
    assert_eq!(failed(Failure::Unavailable), 5_000 - LINK_SENT_MAX);
    assert_eq!(ended.seen[0].commands.get("RESERVE"), None);
}

/// Field bug R24: Redis before 7.0 wraps what a command inside a script was refused with.
#[test]
fn a_demotion_told_inside_a_scripts_error_leaves_the_ask_open_and_ends_the_link() {
    let ended = world::run(stories::wrapped_demotion(), None, 1_200, &[]);
    let outcomes = outcomes(&ended);
    assert_eq!(outcomes[&1].0, Outcome::Unknown);
    let is_granted = matches!(outcomes[&2].0, Outcome::Done(LedgerAnswer::Granted(_)));
    assert!(is_granted, "{:?}", outcomes[&2]);
    assert_eq!(ended.seen[0].commands["HELLO"], 2);
}

/// A refusal of SUBSCRIBE is no push but a reply: nobody's ask may hear it, nor be shifted by it.
#[test]
fn a_refused_subscription_ends_the_link_and_shifts_no_reply() {
    let ended = world::run(stories::no_subscribing(), None, 600, &[]);
    let (wrong, resent) = always(&stories::all()[0], &ended);
    assert_eq!((wrong, resent), (Vec::new(), 0));
    assert_eq!(ended.fault(0), Some(LinkFault::NotPermitted));
    assert_eq!(ended.seen[0].commands.get("RESERVE"), None);
}

#[test]
fn no_reply_cut_anywhere_is_misread_and_nothing_open_is_sent_again() {
    let stories = stories::all();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut sum = Sum::default();
        while let Some(story) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
            sum.every_cut(story);
        }
        sum
    };
    let sums =
        thread::scope(|scope| [scope.spawn(work), scope.spawn(work)].map(|t| t.join().unwrap()));
    let sum = sums.into_iter().fold(Sum::default(), |sum, part| Sum {
        runs: sum.runs + part.runs,
        wrong: sum.wrong + part.wrong,
        resent_unknown: sum.resent_unknown + part.resent_unknown,
    });
    say::say(&format!(
        "runs {}, wrong {}, resent_unknown {}",
        sum.runs, sum.wrong, sum.resent_unknown
    ));
    assert!(sum.runs > 40_000, "only {} runs", sum.runs);
    assert_eq!((sum.wrong, sum.resent_unknown), (0, 0));
}
