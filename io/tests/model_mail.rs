//! Every interleaving and reordering of a box's sleep and wake-up, by loom, over the file that the drivers use
//! (`src/asleep.rs`); and the mistakes that it must find.

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

/// What `src/asleep.rs` takes from its crate: here loom's.
mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};
}
#[path = "../src/asleep.rs"]
mod asleep;

use asleep::{Asleep, Word};
use atomics::{AtomicBool, Ordering, fence};

/// Every order with at most so many switches that no thread asked for: more take minutes and have found nothing more.
const PREEMPTIONS_MAX: usize = 3;

/// A box whose queue orders no more than a push and its pop, less than the real one does.
struct Mailbox {
    waiting: AtomicUsize,
    asleep: Asleep,
    drain: Word,
    rung: AtomicBool,
}

impl Mailbox {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            waiting: AtomicUsize::new(0),
            asleep: Asleep::new(),
            drain: Word::new(),
            rung: AtomicBool::new(false),
        })
    }

    fn put(&self) {
        self.waiting.fetch_add(1, Ordering::Release);
        if self.asleep.must_ring() {
            self.ring();
        }
    }

    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// One turn of a driver: takes what is there; true when it then goes to sleep.
    fn turn(&self) -> bool {
        self.waiting.swap(0, Ordering::AcqRel);
        self.asleep.will_sleep(|| self.is_empty())
    }

    /// When all is quiet: who sleeps beside mail, or with an order to drain, has heard the bell.
    fn check(&self, sleeps: bool) {
        let has_news = !self.is_empty() || self.drain.is_said();
        let is_lost = sleeps && has_news && !self.rung.load(Ordering::Acquire);
        assert!(!is_lost, "a wake-up is lost");
    }
}

/// Runs `others`, each on its own thread, beside `receiver`, in every order; then checks.
fn model(others: &'static [fn(&Mailbox)], receiver: fn(&Mailbox) -> bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(move || {
        let mailbox = Mailbox::new();
        let threads: Vec<_> = others
            .iter()
            .map(|other| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || other(&mailbox))
            })
            .collect();
        let sleeps = receiver(&mailbox);
        for thread in threads {
            thread.join().expect("the others do not panic");
        }
        mailbox.check(sleeps);
    });
}

#[test]
fn no_wake_up_is_lost_whatever_the_order() {
    model(&[Mailbox::put, Mailbox::put], Mailbox::turn);
}

/// The bell of the turn before is heard; the next sleep has one of its own.
#[test]
fn nor_in_the_turn_after_a_wake_up() {
    static TWICE: [fn(&Mailbox); 1] = [|mailbox| {
        mailbox.put();
        mailbox.put();
    }];
    model(&TWICE, |mailbox| {
        if mailbox.turn() && mailbox.rung.swap(false, Ordering::AcqRel) {
            mailbox.asleep.awake();
            return mailbox.turn();
        }
        false
    });
}

#[test]
fn the_order_to_drain_wakes_who_sleeps() {
    static THROW: [fn(&Mailbox); 1] = [|mailbox| {
        mailbox.drain.say();
        mailbox.ring(); // who throws the switch rings every bell
    }];
    model(&THROW, |mailbox| !mailbox.drain.is_said() && mailbox.turn());
}

/// A receiver that looks into its box and then says that it sleeps: mail may come between.
#[test]
#[should_panic(expected = "a wake-up is lost")]
fn a_receiver_that_looks_before_it_says_so_is_found() {
    model(&[Mailbox::put], |mailbox| {
        mailbox.is_empty() && mailbox.asleep.will_sleep(|| true)
    });
}

/// A sender that rings by what it read before its mail was in.
#[test]
#[should_panic(expected = "a wake-up is lost")]
fn a_sender_that_reads_the_word_first_is_found() {
    static LATE: [fn(&Mailbox); 1] = [|mailbox| {
        let rings = mailbox.asleep.must_ring();
        fence(Ordering::SeqCst);
        mailbox.waiting.fetch_add(1, Ordering::Release);
        if rings {
            mailbox.ring();
        }
    }];
    model(&LATE, Mailbox::turn);
}
