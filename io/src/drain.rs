//! The switch that asks every part to finish: thrown once, on SIGTERM or by the ops listener.
//!
//! Each driver reads it once per turn and shows `Event::Drain` once; throwing it wakes every sleeping driver.

use crate::post::PostOffice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One per process, shared by all drivers.
#[derive(Debug)]
pub struct DrainSwitch {
    on: AtomicBool,
    post: Arc<PostOffice>,
}

impl DrainSwitch {
    /// Off. `post`: whose parts are woken.
    pub fn new(post: Arc<PostOffice>) -> Self {
        Self {
            on: AtomicBool::new(false),
            post,
        }
    }

    /// Asks every part to finish. Again is allowed and does nothing more.
    pub fn throw(&self) {
        self.on.store(true, Ordering::SeqCst);
        self.post.ring_all();
    }

    /// True once thrown.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }
}
