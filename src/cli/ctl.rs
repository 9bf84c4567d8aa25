//! `weir ctl`: an operator's wish for a SKU of a running weir, sent to its ops listener.

use super::{CliError, print};
use crate::config::{self, Host};
use crate::keys;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

/// How long the listener may take; it tells an unknown result before.
const PATIENCE: Duration = Duration::from_secs(15);

/// Freeze, thaw or rebuild a SKU whose stock is in Redis, on a running weir.
///
/// After a failover weir does all of this by itself; these are for what an operator knows and weir does not.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir ctl freeze --config shop/weir.toml --activity 1 --sku 1    no new reservation on any instance\n  weir ctl thaw --config shop/weir.toml --activity 1 --sku 1      it sells again, in a larger epoch\n  weir ctl rebuild --config worker.toml --activity 1 --sku 1      every order is offered to Redis once more\n\nExit codes: 0 done, 1 refused or not known to be done, 2 bad input or no answer."
)]
pub struct CtlArgs {
    /// What to do.
    #[arg(value_enum)]
    pub wish: Wish,
    /// The configuration file of the weir that is asked: it names the ops listener and its token.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Where its ops listener is, when not where the file says.
    #[arg(long, value_name = "ADDR")]
    pub ops: Option<SocketAddr>,
    /// The activity.
    #[arg(long, value_name = "ID")]
    pub activity: u64,
    /// The SKU.
    #[arg(long, value_name = "ID")]
    pub sku: u64,
    /// Who wants it, for the audit log.
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
}

/// See [`CtlArgs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Wish {
    /// Let no new reservation in; everything else goes on.
    Freeze,
    /// End a freeze.
    Thaw,
    /// Offer every order and remembered grant to Redis once more.
    Rebuild,
}

/// Runs it.
/// # Errors
/// `Broken` when it was refused or is not known to be done; `Input` when nobody answers.
pub fn run(args: &CtlArgs) -> Result<(), CliError> {
    let plan = config::load(&args.config, &Host::read()).map_err(CliError::input)?;
    let random: [u8; 8] = keys::random().map_err(CliError::input)?;
    let request_id = random.iter().fold("ctl-".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a String takes everything
        text
    });
    let mut body = json!({ "request_id": request_id });
    if let Some(actor) = &args.actor {
        body["actor"] = json!(actor);
    }
    let token = plan.ops.token_file.as_ref();
    let token = token.map(|path| keys::read_token_text(path)).transpose();
    let token = token.map_err(CliError::input)?;
    let ops = args.ops.unwrap_or(plan.ops.listen);
    let answer = ask(ops, token.as_deref(), args, &body.to_string()).map_err(|error| {
        CliError::Input(format!(
            "{ops}: no answer ({error}); is weir running with {}?",
            args.config.display()
        ))
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.starts_with("HTTP/1.1 200") {
        return print(&format!("{body}\n"));
    }
    let told: Value = serde_json::from_str(body).unwrap_or_default();
    let message = told["message"].as_str().unwrap_or(body);
    Err(CliError::Broken(message.to_owned()))
}

fn ask(ops: SocketAddr, token: Option<&str>, args: &CtlArgs, body: &str) -> io::Result<String> {
    let action = match args.wish {
        Wish::Freeze => "freeze",
        Wish::Thaw => "thaw",
        Wish::Rebuild => "rebuild",
    };
    let mut socket = TcpStream::connect_timeout(&ops, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!(
        "POST /ops/v1/activities/{}/skus/{}/{action} HTTP/1.1\r\nHost: {ops}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        args.activity,
        args.sku,
        body.len()
    );
    if let Some(token) = token {
        let _ = write!(head, "Authorization: Bearer {token}\r\n"); // a String takes everything
    }
    socket.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    Ok(text)
}
