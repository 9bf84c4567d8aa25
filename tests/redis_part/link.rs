//! A blocking connection of a test to a real Redis: `weir::private_redis::link`, where a failure is a failed test.

use super::Redis;
use weir::private_redis::link;

/// One connection; a command at a time.
pub struct Link(link::Link);

impl Link {
    pub fn new(server: &Redis) -> Self {
        Self(server.0.connect().unwrap())
    }

    /// Sends a command and returns its reply's bytes, for `read`; pushes before it are dropped.
    pub fn ask(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        self.0.ask(parts).unwrap()
    }

    /// `ask` with the words of `text`.
    pub fn say(&mut self, text: &str) -> Vec<u8> {
        self.0.say(text).unwrap()
    }

    /// `say` of what must be answered by OK.
    pub fn order(&mut self, text: &str) {
        self.0.order(text).unwrap();
    }
}
