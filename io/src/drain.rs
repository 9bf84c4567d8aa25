//! The switch that asks every part to finish: thrown once, on SIGTERM or by the ops listener.
//!
//! Each driver reads it once per turn and shows `Event::Drain` once; throwing it wakes every sleeping driver.

use crate::asleep::Word;
use crate::post::PostOffice;
use std::sync::Arc;

/// One per process, shared by all drivers.
#[derive(Debug)]
pub struct DrainSwitch {
    on: Word,
    post: Arc<PostOffice>,
}

impl DrainSwitch {
    /// Off. `post`: whose parts are woken.
    pub fn new(post: Arc<PostOffice>) -> Self {
        Self {
            on: Word::new(),
            post,
        }
    }

    /// Asks every part to finish. Again is allowed and does nothing more.
    pub fn throw(&self) {
        self.on.say();
        self.post.ring_all();
    }

    /// True once thrown.
    pub fn is_on(&self) -> bool {
        self.on.is_said()
    }
}
