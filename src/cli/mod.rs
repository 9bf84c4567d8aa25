//! The command line. One file per command: its arguments and `run`.
//!
//! To add a command: `mod name;` below, and two lines: one in [`Command`] and one in [`run`]. Exit codes: 0 all is well,
//! 1 a promise broke or a difference was found, 2 bad input or environment, 75 a dependency is away, 78 a driver that was asked for cannot run. Messages go to standard error as `weir: …`.

pub mod bench;
mod config;
mod ctl;
pub mod demo;
mod export;
mod init;
mod keygen;
mod reconcile;
mod serve;
pub mod sim;
mod ticket;
pub mod torture;
mod tune;
mod worker;

use clap::{Parser, Subcommand};
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use weir_io::choice::Wanted;

/// A flash-sale admission server: refuses cheaply, never oversells, answers everyone.
#[derive(Parser)]
#[command(
    name = "weir",
    version,
    arg_required_else_help = true,
    after_help = "Start here:\n  weir init shop                              a directory with a configuration and keys\n  weir config check --config shop/weir.toml   is everything right?\n  weir serve --config shop/weir.toml          run it, until SIGTERM or Ctrl-C\n  weir ticket --config shop/weir.toml --user 42   what a buyer needs to submit\n  weir config explain                         every setting, its range and default\n  weir tune --check                           is this machine set up for it?\n\nExit codes: 0 all is well, 1 a promise broke or a difference was found, 2 bad input or environment."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(init::InitArgs),
    Serve(serve::ServeArgs),
    Worker(worker::WorkerArgs),
    Keygen(keygen::KeygenArgs),
    Ticket(ticket::TicketArgs),
    Config(config::ConfigArgs),
    Ctl(ctl::CtlArgs),
    Reconcile(reconcile::ReconcileArgs),
    Export(export::ExportArgs),
    Bench(Box<bench::BenchArgs>),
    Sim(sim::SimArgs),
    Demo(demo::DemoArgs),
    Torture(torture::TortureArgs),
    Tune(tune::TuneArgs),
    #[command(hide = true)]
    TortureClock(torture::ClockArgs),
}

fn run(command: Command) -> Result<(), CliError> {
    match command {
        Command::Init(args) => init::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Keygen(args) => keygen::run(&args),
        Command::Ticket(args) => ticket::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Reconcile(args) => reconcile::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Torture(args) => torture::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::TortureClock(args) => torture::run_clock(&args),
    }
}

/// Why a command ends without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CliError {
    /// A promise broke or a difference was found: exit code 1.
    Broken(String),
    /// Bad input or environment: exit code 2.
    Input(String),
    /// Something that this needs is away, which may pass: exit code 75 (EX_TEMPFAIL of sysexits.h), after which a
    /// supervisor tries again.
    Away(String),
    /// What was asked for by name cannot run here: exit code 78 (EX_CONFIG of sysexits.h), which a supervisor can be told
    /// not to try again.
    Config(String),
}

impl CliError {
    /// Bad input or environment, in the words of `error`.
    pub fn input(error: impl fmt::Display) -> Self {
        Self::Input(error.to_string())
    }
}

/// The program: reads the arguments, runs the command, says what went wrong.
pub fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        // Asked for help or version: that is an answer, on standard output.
        Err(error) if !error.use_stderr() => print(&error.to_string()),
        Err(error) => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            Err(CliError::input(text.trim_end()))
        }
    };
    let (message, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(CliError::Broken(message)) => (message, 1),
        Err(CliError::Input(message)) => (message, 2),
        Err(CliError::Away(message)) => (message, 75),
        Err(CliError::Config(message)) => (message, 78),
    };
    // Standard error may be closed; the exit code still says it.
    let _ = writeln!(io::stderr(), "weir: {message}");
    ExitCode::from(code)
}

/// Writes to standard output. A reader that has gone (`| head`) is not an error.
/// # Errors
/// `Input` when the output cannot be written, such as a full disk.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Input(format!(
            "standard output: {}",
            error.kind()
        ))),
        _ => Ok(()),
    }
}

/// Reads the name of a driver.
/// # Errors
/// What is allowed.
pub fn driver_arg(name: &str) -> Result<Wanted, String> {
    Wanted::named(name).ok_or_else(|| format!("must be one of {}", Wanted::NAMES.join(", ")))
}

/// Reads a duration argument such as `5m` in milliseconds.
/// # Errors
/// What is allowed.
pub fn duration_arg(text: &str) -> Result<u64, String> {
    crate::config::units::duration_ms(text)
}
