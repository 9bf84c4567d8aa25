//! The `weir` program: boot, configuration, command line, stores, operator's listener.
pub mod cli;
pub mod config;
pub mod demo;
pub mod deny;
pub mod keys;
pub mod log;
pub mod ops;
pub mod orders;
pub mod private_redis;
pub mod serve;
pub mod sim;
pub mod store;
pub mod torture;
pub mod tune;
