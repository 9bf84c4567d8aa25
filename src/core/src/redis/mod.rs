//! The ledger's second home: many instances share one stock in Redis (design §5, requirements F1-F6).
//!
//! A step is one script run with its keys and arguments, one atomic unit of work of Redis: [`script`] has their texts,
//! [`step`] makes an ask into a frame, [`reply`] a reply into an answer; [`lease`] does both for budgets. [`link`] is one
//! connection; [`desk`] has one per node, routes to an [`endpoint`] by [`slots`], and answers every ask once; [`watch`]
//! shows shards what it learns of the stock. Invariants: the scripts in `lua/` decide exactly as [`crate::ledger`] does; a
//! reply of another shape is a fault of its connection, never an answer; nothing here has a clock, a socket or entropy.

pub mod breaker;
pub mod clerk;
pub mod desk;
pub mod endpoint;
pub mod lease;
pub mod link;
pub mod offer;
pub mod reply;
pub mod script;
pub mod slots;
pub mod step;
pub mod watch;
