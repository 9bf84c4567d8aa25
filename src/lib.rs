//! The `weir` program: boot, configuration, command line, stores, operator's listener.
pub mod orders;
pub mod store;
