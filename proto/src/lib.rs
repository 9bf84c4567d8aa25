//! Bytes to values and back: HTTP/1.1, JSON, tickets, client addresses, answers, Redis replies.
//!
//! Called by weir-core (requests), weir-bench (tickets, answers) and the `weir` program (keys, answers).
//! Invariants: no state between calls, no allocation on a request's path, no clock, no unsafe.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addr;
pub mod answer;
pub mod http;
pub mod ids;
pub mod json;
pub mod limits;
pub mod payment;
pub mod resp;
pub mod signature;
mod stamp;
pub mod submit;
pub mod text;
pub mod ticket;
