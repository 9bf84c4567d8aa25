//! What a client is told: the one table of reasons, the JSON body, the languages, and a reader for our own answers.
//!
//! Called by weir-core (decides a `Reason`), weir-bench and tests (read answers), `weir` (metrics, admission log).
//! Invariants: every way a request can end is one [`Reason`] with one [`Row`]; a (status, code) pair is in
//! [`SEED_PAIRS`] (seed 000 §8.5) or in [`EXTENSION_PAIRS`] (design §12.11) and nowhere else; encoding allocates
//! nothing beyond the output's own growth. Not here: the HTTP head around the body.

mod body;
mod code;
mod lang;
mod read;
mod reason;
mod refusal;
mod time_text;

pub use body::{AnswerBody, retry_after_header_s};
pub use code::{Code, Decision, EXTENSION_PAIRS, NextAction, RequestState, SEED_PAIRS, Stage};
pub use lang::Lang;
pub use read::{read_bool_member, read_code, read_state, read_text_member, read_u64_member};
pub use reason::{Reason, Row};
pub use refusal::DetailText;
pub use time_text::{CivilTime, civil_time, rfc3339_ms};
