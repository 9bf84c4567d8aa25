//! Whether this user may read the outbox stream as the maker of orders does: what it may not do would be found out by
//! buyers who wait for their orders.

use super::fault::Why;
use super::{RedisError, Visit};
use crate::config::RedisPlan;
use weir_core::redis::step::SkuSteps;
use weir_proto::resp::{self, Value};

/// Behind every message: nothing is claimed from there on.
const BEHIND_ALL: &[u8] = b"18446744073709551615-18446744073709551615";

impl Visit<'_> {
    /// Asks for each command of `take.lua` where it changes nothing that the maker's own first take does not.
    pub(super) fn look_at_stream(&mut self, plan: &RedisPlan) -> Result<(), RedisError> {
        for steps in &plan.steps {
            let key = SkuSteps::new(*steps).key("orders");
            let key = key.as_bytes();
            let commands: [(&'static str, &[&[u8]]); 6] = [
                ("XINFO GROUPS", &[b"XINFO", b"GROUPS", key]),
                ("XGROUP CREATE", &[b"XGROUP", b"CREATE", key, b"weir", b"0"]),
                ("XACK", &[b"XACK", key, b"weir", b"0-0"]),
                ("XDEL", &[b"XDEL", key, b"0-0"]),
                (
                    "XAUTOCLAIM",
                    &[
                        b"XAUTOCLAIM",
                        key,
                        b"weir",
                        b"look",
                        b"3600000",
                        BEHIND_ALL,
                        b"COUNT",
                        b"1",
                    ],
                ),
                // What this consumer was given and has not acknowledged: nothing.
                (
                    "XREADGROUP",
                    &[
                        b"XREADGROUP",
                        b"GROUP",
                        b"weir",
                        b"look",
                        b"COUNT",
                        b"1",
                        b"STREAMS",
                        key,
                        b"0",
                    ],
                ),
            ];
            for (command, words) in commands {
                let reply = self.ask(words)?;
                // Every other error says that there is no stream yet, or that the group is there.
                if let Value::Error(error) = resp::read(&reply)
                    && error.code == b"NOPERM"
                {
                    let word = "NOPERM".to_owned();
                    return Err(self.fail(Why::Refused { command, word }));
                }
            }
        }
        Ok(())
    }
}
