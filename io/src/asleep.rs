//! How a part falls asleep and is woken: the words that threads share, apart from the queues themselves.
//!
//! No wake-up is lost and nobody spins: the receiver says that it will sleep, looks into its box again, then sleeps; the
//! sender puts mail in, then rings only if the receiver said so. `tests/model_mail.rs` runs this very file under every
//! interleaving and reordering, with loom's atomics in the place of `crate::atomics`.

use crate::atomics::{AtomicBool, Ordering, fence};

/// Whether one receiver sleeps, or will after one more look into its box.
#[derive(Debug)]
pub(crate) struct Asleep(AtomicBool);

impl Asleep {
    /// Awake.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// For a sender whose mail is in the box: true when it must ring.
    pub(crate) fn must_ring(&self) -> bool {
        // Pairs with the fence in `will_sleep`: either this sees the word, or the receiver sees the mail.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    /// Says that the receiver will sleep. False: `is_empty` says that there is mail, it must not.
    pub(crate) fn will_sleep(&self, is_empty: impl FnOnce() -> bool) -> bool {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if is_empty() {
            return true;
        }
        self.awake();
        false
    }

    /// Says that the receiver is awake.
    pub(crate) fn awake(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A word that is said once, to all; who says it rings every bell after it.
#[derive(Debug)]
pub(crate) struct Word(AtomicBool);

impl Word {
    /// Not said.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Says it. Again is allowed and does nothing more.
    pub(crate) fn say(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// True once said.
    pub(crate) fn is_said(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
