//! `weir serve`: runs the server until SIGTERM.

use super::CliError;
use crate::config::{self, Plan};
use crate::serve::{self, ServeError, footprint_text};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_io::choice::Wanted;

/// Run the server until SIGTERM or Ctrl-C (a second signal ends it at once).
#[derive(Args)]
#[command(
    after_help = "Examples:\n  weir serve --config shop/weir.toml\n  weir serve --config shop/weir.toml --driver epoll\n\nExit codes: 0 stopped in order, 1 a part failed, 2 bad input or environment, 75 Redis is away or not ready yet (try again), 78 the driver that was asked for cannot run here.\nIt prints `serving` with both addresses once every part is ready."
)]
pub struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// What moves bytes, whatever the configuration says: auto, uring, epoll, monoio or glommio
    #[arg(long, value_name = "NAME", value_parser = super::driver_arg)]
    driver: Option<Wanted>,
}

/// Runs it.
pub fn run(args: &ServeArgs) -> Result<(), CliError> {
    serve_until_signal(&args.config, args.driver, || Ok(()))
}

/// Serves what `config` says, on `driver` if one is named; `beside` starts whatever else shall run in the process, once signals are blocked.
/// # Errors
/// `Input` when it does not start, `Broken` when a part ends by itself.
pub fn serve_until_signal(
    config: &Path,
    driver: Option<Wanted>,
    beside: impl FnOnce() -> Result<(), CliError>,
) -> Result<(), CliError> {
    weir_io::signals::block().map_err(CliError::input)?; // before any thread: all inherit it
    beside()?;
    let plan = config::load_for_this_host(config).map_err(CliError::input)?;
    run_plan(plan, driver)
}

/// Runs what `plan` says, on `driver` if one is named, until a signal comes; signals are blocked before.
/// # Errors
/// `Input` when it does not start, `Broken` when a part ends by itself.
pub fn run_plan(mut plan: Plan, driver: Option<Wanted>) -> Result<(), CliError> {
    plan.driver = driver.unwrap_or(plan.driver);
    // Standard error may be closed; serving does not depend on it.
    let say = |text: String| {
        let _ = writeln!(std::io::stderr(), "weir: {text}");
    };
    say(footprint_text(&plan));
    let server = serve::start(&plan).map_err(|error| match error {
        ServeError::Driver(..) => CliError::Config(error.to_string()),
        error if error.may_pass() => CliError::Away(error.to_string()),
        error => CliError::input(error),
    })?;
    server.notes.iter().cloned().for_each(say);
    say(format!(
        "serving http://{} (ops http://{})",
        server.listen, server.ops
    ));
    server
        .run_until_signal()
        .map_err(|error| CliError::Broken(error.to_string()))?;
    say("stopped: every answer that was owed has left".to_owned());
    Ok(())
}
