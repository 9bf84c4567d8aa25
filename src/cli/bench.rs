//! `weir bench`: load on a server of this machine, and what it felt like.

use super::ticket::{the_activity, the_sku};
use super::{CliError, duration_arg, print};
use crate::config::{self, Host};
use crate::keys;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_bench::mix::Mix;
use weir_bench::{BenchConfig, Look, Rate, TicketMint, Watch};
use weir_proto::limits::TICKET_WINDOW_MS_MAX;

/// Longest mix file: ours have a few lines.
const MIX_BYTES_MAX: u64 = 64 * 1024;

/// Send requests at a fixed rate (or as fast as answers come) and report latencies.
///
/// Open loop by default: every request has its instant, fixed before the start, and latency counts from that instant,
/// so a server that stalls cannot hide it. Nothing is skipped; what could not be sent is said.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  weir bench --url http://127.0.0.1:8080/ --rate 5000 --duration 30s\n  weir bench --url http://127.0.0.1:8080/ --max --pipeline 8\n  weir bench --url http://127.0.0.1:8080/ --config shop/weir.toml --mix probes.toml --rate 20000\n\nA mix file says what is sent in which proportion:\n  ticket = \"compact\"   # or \"jws\"\n  get = \"/\"\n  [weights]\n  submit = 90      # a new user with a fresh ticket: buys while there is stock, then a sold-out probe\n  bad_mac = 4      # a forged ticket\n  bad_path = 2     # not the activity's path\n  malformed = 1    # bytes that are no request\n  status = 2       # what became of an earlier submit\n  get = 1          # a plain GET\n\nOnly addresses of this machine are loaded. At most one hour and 100,000,000 requests."
)]
pub struct BenchArgs {
    /// Where to send: http://ADDRESS:PORT/path, a loopback address.
    #[arg(long)]
    pub url: String,
    /// Requests a second.
    #[arg(long, default_value_t = 1_000, conflicts_with = "max")]
    pub rate: u64,
    /// Distances as if by independent people, instead of even ones.
    #[arg(long, conflicts_with = "max")]
    pub poisson: bool,
    /// Closed loop: as fast as answers come. For ceilings; its latencies say little.
    #[arg(long)]
    pub max: bool,
    /// Connections, 1 to 16384.
    #[arg(long, default_value_t = 64)]
    pub connections: u32,
    /// Requests under way on each connection, 1 to 64.
    #[arg(long, default_value_t = 1)]
    pub pipeline: u32,
    /// How long requests are sent, at most 1h.
    #[arg(long, default_value = "10s", value_parser = duration_arg)]
    pub duration: u64,
    /// Of this, how long at the start is not measured.
    #[arg(long, default_value = "0s", value_parser = duration_arg)]
    pub warm_up: u64,
    /// Most requests.
    #[arg(long, default_value_t = weir_bench::limits::REQUESTS_MAX)]
    pub requests: u64,
    /// Each request on a connection of its own.
    #[arg(long, conflicts_with = "pipeline")]
    pub close_each: bool,
    /// A process whose CPU time and memory are reported: the server's. May be given again.
    #[arg(long, value_name = "PID")]
    pub watch: Vec<u32>,
    /// How many addresses of 127.1.0.0/16 to send from; 0: one.
    #[arg(long, default_value_t = 0)]
    pub sources: u32,
    /// What to send; without it, plain GETs of the URL.
    #[arg(long, value_name = "FILE")]
    pub mix: Option<PathBuf>,
    /// The server's configuration, for signing tickets.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The activity of the tickets; may be left out when there is only one.
    #[arg(long)]
    pub activity: Option<u64>,
    /// The SKU of the tickets; may be left out when the activity has only one.
    #[arg(long)]
    pub sku: Option<u64>,
    /// Mint so many tickets before the start and use them in turn; without it, each submit has one of its own.
    #[arg(long)]
    pub tickets: Option<u64>,
    /// The core of the generator; another one than the server's.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Draws what is drawn; without it, another one each time.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
/// # Errors
/// Arguments, the mix or the configuration; a server that does not answer at all; `Broken` when the numbers do not
/// describe the load that was asked for.
pub fn run(args: &BenchArgs) -> Result<(), CliError> {
    let config = bench_config(args)?;
    let mut watch = Watch::new(args.watch.clone(), args.warm_up);
    let report = weir_bench::run(&config, |look| {
        show(look);
        watch.look(look);
        true
    });
    clear();
    let mut report = report.map_err(CliError::input)?;
    report.watched = watch.report().filter(|_| !args.watch.is_empty());
    print(&match args.json {
        true => serde_json::to_string(&report).map_err(CliError::input)? + "\n",
        false => report.text(),
    })?;
    match report.void_because.is_empty() {
        true => Ok(()),
        false => Err(CliError::Broken(format!(
            "not the load that was asked for: {}",
            report.void_because.join("; ")
        ))),
    }
}

fn bench_config(args: &BenchArgs) -> Result<BenchConfig, CliError> {
    let (target, path) = target(&args.url).map_err(CliError::Input)?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => u64::from_le_bytes(keys::random().map_err(CliError::input)?),
    };
    let mut config = BenchConfig::new(target);
    config.path = path;
    config.rate = match (args.max, args.poisson) {
        (true, _) => Rate::Max,
        (false, true) => Rate::Poisson(args.rate),
        (false, false) => Rate::Constant(args.rate),
    };
    config.duration_ms = args.duration;
    config.warm_up_ms = args.warm_up;
    config.requests_max = args.requests;
    config.connections = args.connections;
    config.pipeline = args.pipeline;
    config.close_each = args.close_each;
    config.tickets_max = args.tickets;
    config.sources = args.sources;
    config.cpu = args.cpu;
    config.seed = seed;
    if let Some(file) = &args.mix {
        config.mix = read_mix(file)?;
    }
    if let Some(file) = &args.config {
        config.mint = Some(mint(args, file, &config, seed)?);
    }
    Ok(config)
}

/// Keys and sale from the server's configuration.
fn mint(
    args: &BenchArgs,
    file: &Path,
    bench: &BenchConfig,
    seed: u64,
) -> Result<TicketMint, CliError> {
    let host = Host::read();
    let plan = config::load(file, &host).map_err(CliError::input)?;
    let activity = the_activity(&plan, args.activity)?;
    let sku = the_sku(activity, args.sku)?;
    Ok(TicketMint {
        key: plan.keys().signing().clone(),
        form: bench.mix.ticket,
        activity: activity.id,
        sku: sku.id,
        activity_version: activity.version,
        path_id: activity.path_id,
        not_before_ms: host.wall_ms,
        expires_at_ms: host.wall_ms + TICKET_WINDOW_MS_MAX,
        // 2^40 runs of 2^22 users and more: two runs hardly ever meet.
        first_user: 1 + (seed >> 24 << 22),
        nonce_seed: seed,
    })
}

fn read_mix(file: &Path) -> Result<Mix, CliError> {
    let at = |message: String| CliError::Input(format!("{}: {message}", file.display()));
    let bytes = std::fs::metadata(file)
        .map_err(|error| at(error.kind().to_string()))?
        .len();
    if bytes > MIX_BYTES_MAX {
        return Err(at(format!(
            "has {bytes} bytes; at most {MIX_BYTES_MAX} are read"
        )));
    }
    let text = std::fs::read_to_string(file).map_err(|error| at(error.kind().to_string()))?;
    let mix: Mix = toml::from_str(&text).map_err(|error| at(error.to_string()))?;
    mix.check().map_err(|error| at(error.to_string()))?;
    Ok(mix)
}

/// Address and path of `http://ADDRESS[:PORT][/path]`.
fn target(url: &str) -> Result<(SocketAddr, String), String> {
    let wrong = || {
        format!(
            "--url {url}: must look like http://127.0.0.1:8080/path (http only, an address of this machine or localhost)"
        )
    };
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let authority = match authority.strip_prefix("localhost") {
        Some(port) => format!("127.0.0.1{port}"),
        None => authority.to_owned(),
    };
    let target = authority
        .parse()
        .or_else(|_| format!("{authority}:80").parse())
        .map_err(|_| wrong())?;
    Ok((target, path.to_owned()))
}

/// One line on a terminal, rewritten.
fn show(look: Look) {
    let mut err = io::stderr();
    if err.is_terminal() {
        let Look {
            sent,
            answered,
            failed,
        } = look;
        // A terminal that is gone must not end the run.
        let _ = write!(
            err,
            "\r\x1b[K{sent} sent, {answered} answered, {failed} failed"
        );
    }
}

fn clear() {
    let mut err = io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_others_refused_with_an_example() {
        for (url, address, path) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", "/"),
            ("http://localhost:81/a?b=c", "127.0.0.1:81", "/a?b=c"),
            ("http://127.0.0.1/x", "127.0.0.1:80", "/x"),
            ("http://[::1]:9/", "[::1]:9", "/"),
        ] {
            assert_eq!(target(url), Ok((address.parse().unwrap(), path.to_owned())));
        }
        for url in [
            "https://127.0.0.1/",
            "127.0.0.1:80",
            "http://example.org/",
            "http://localhosty/",
        ] {
            assert!(
                target(url)
                    .unwrap_err()
                    .contains("http://127.0.0.1:8080/path")
            );
        }
    }

    #[test]
    fn a_mix_file_is_read_strictly() {
        let mix: Mix =
            toml::from_str("get = \"/x\"\nticket = \"jws\"\n[weights]\nsubmit = 9\n").unwrap();
        assert_eq!((mix.weights.submit, mix.get.as_deref()), (9, Some("/x")));
        let wrong = toml::from_str::<Mix>("[weights]\nsumbit = 9\n").unwrap_err();
        assert!(
            wrong.to_string().contains("unknown field `sumbit`"),
            "{wrong}"
        );
    }
}
