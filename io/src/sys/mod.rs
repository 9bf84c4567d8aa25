//! System calls that std does not offer, one duty per file. Every unsafe block says what it relies on.

#[cfg(feature = "glommio")]
pub mod adopt;
pub mod affinity;
pub mod clock;
pub mod enter;
pub mod eventfd;
pub mod kernel;
pub mod notify;
pub mod own_disk;
pub mod rlimit;
pub mod signal;
pub mod socket;
