//! The load generator: many persistent HTTP/1.1 clients in one `Handler`, driven by a workload.
//!
//! `client` is the engine that `weir bench`, `weir demo` and the simulator's buyers share; what is sent, and when, is a
//! [`client::Workload`]. Schedules are fixed before the start and latency counts from the scheduled instant, so a
//! server that stalls cannot hide it (coordinated omission). Nothing is skipped: what goes late or not at all is said.

pub mod client;
pub mod due;
pub mod latency;
pub mod limits;
mod load;
pub mod mix;
pub mod report;
pub mod request;
mod run;
pub mod schedule;
pub mod tally;
mod tickets;
mod watch;

pub use report::BenchReport;
pub use run::{BenchConfig, BenchError, Look, Rate, own_cpu_ns, run};
pub use tickets::TicketMint;
pub use watch::{Watch, WatchReport};
