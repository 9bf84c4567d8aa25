//! `weir bench`: its arguments. Load from a schedule, latency counted from the scheduled instant.

use super::duration_arg;
use std::path::PathBuf;

/// Load a server and measure it.
///
/// Open loop by default: requests leave by a fixed schedule and latency counts from the scheduled instant, so a server that
/// stalls cannot hide it. What could not be sent is said.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  weir bench --url http://127.0.0.1:8080/healthz --rate 20000 --duration 30s\n  weir bench --url http://127.0.0.1:8080 --mix mix.toml --connections 256 --json\n  weir bench --url http://127.0.0.1:8080/healthz --max --pipeline 16"
)]
pub struct BenchArgs {
    /// The server: http://ADDRESS:PORT and, without --mix, the path to get.
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// Requests per second by schedule (open loop).
    #[arg(long, value_name = "R", default_value_t = 1_000, conflicts_with = "max", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: u64,
    /// As fast as replies come (closed loop): for the highest throughput, not for latency.
    #[arg(long)]
    pub max: bool,
    /// Connections, shared by all requests.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub connections: u32,
    /// How long.
    #[arg(long, value_name = "S", default_value = "10s", value_parser = duration_arg)]
    pub duration: u64,
    /// What is sent, and how much of each.
    #[arg(long, value_name = "FILE")]
    pub mix: Option<PathBuf>,
    /// Requests that may be under way on one connection.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub pipeline: u32,
    /// End with one JSON object on the last line.
    #[arg(long)]
    pub json: bool,
}
