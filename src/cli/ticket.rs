//! `weir ticket`: mint one ticket, for trying things out and for support.

use super::{CliError, duration_arg, print};
use crate::config::{self, Host, Plan, units};
use crate::keys;
use std::path::PathBuf;
use weir_core::sale::{Activity, Sku};
use weir_proto::ids::UserId;
use weir_proto::limits::{DEVICE_BYTES_MAX, ID_MAX, TICKET_WINDOW_MS_MAX};
use weir_proto::ticket::{Claims, DeviceClaim, MintError, NonceClaim, mint_compact, mint_jws};

/// Print a ticket: the signed right of one user to submit, valid from now on.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir ticket --config shop/weir.toml --user 42\n  weir ticket --config shop/weir.toml --activity 1 --sku 1 --user 42 --device my-phone --ttl 1h --form jws\n\nA ticket is a credential: whoever holds it may submit as that user."
)]
pub struct TicketArgs {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The activity's id; may be left out when there is only one.
    #[arg(long)]
    pub activity: Option<u64>,
    /// The SKU's id; may be left out when the activity has only one.
    #[arg(long)]
    pub sku: Option<u64>,
    /// The buyer, 1 to 2^63-1.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=ID_MAX))]
    pub user: u64,
    /// The device that may use it, as its X-Weir-Device header says; without it, any.
    #[arg(long)]
    pub device: Option<String>,
    /// How long it is valid, at most 1h.
    #[arg(long, default_value = "5m", value_parser = duration_arg)]
    pub ttl: u64,
    /// How it is written: compact (fast, ours) or jws (HS256, for every JWT library).
    #[arg(long, default_value = "compact")]
    pub form: Form,
}

/// How a ticket is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Keyed BLAKE3.
    Compact,
    /// JWS HS256.
    Jws,
}

impl std::str::FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "compact" => Ok(Self::Compact),
            "jws" => Ok(Self::Jws),
            _ => Err("must be compact or jws".to_owned()),
        }
    }
}

/// Runs it.
/// # Errors
/// The configuration's problems, an unknown activity or SKU, an argument out of range.
pub fn run(args: &TicketArgs) -> Result<(), CliError> {
    let host = Host::read();
    let plan = config::load(&args.config, &host).map_err(CliError::input)?;
    if !(1..=TICKET_WINDOW_MS_MAX).contains(&args.ttl) {
        return Err(CliError::Input(format!(
            "--ttl {}: must be from 1ms to {}",
            units::duration_text(args.ttl),
            units::duration_text(TICKET_WINDOW_MS_MAX)
        )));
    }
    let activity = the_activity(&plan, args.activity)?;
    let sku = the_sku(activity, args.sku)?;
    let device = match &args.device {
        None => DeviceClaim::Unbound,
        Some(device) => DeviceClaim::of_device(&activity.device_salt, device.as_bytes())
            .ok_or_else(|| {
                CliError::Input(format!("--device: must have 1 to {DEVICE_BYTES_MAX} bytes"))
            })?,
    };
    let claims = Claims {
        activity: activity.id,
        sku: sku.id,
        user: UserId(args.user),
        activity_version: activity.version,
        path_id: activity.path_id,
        nonce: NonceClaim::Raw(keys::random().map_err(CliError::input)?),
        device,
        not_before_ms: host.wall_ms,
        expires_at_ms: host.wall_ms + args.ttl,
    };
    let mut ticket = Vec::new();
    let key = plan.keys().signing();
    let minted = match args.form {
        Form::Compact => mint_compact(&claims, key, &mut ticket),
        Form::Jws => mint_jws(&claims, key, &mut ticket),
    };
    minted.map_err(|error| match error {
        MintError::PathId => CliError::Input(format!("{error} (--form jws)")),
        other => CliError::input(other),
    })?;
    ticket.push(b'\n');
    print(&String::from_utf8_lossy(&ticket))
}

pub(super) fn the_activity(plan: &Plan, id: Option<u64>) -> Result<&Activity, CliError> {
    let all = &plan.sale.activities;
    let ids: Vec<u64> = all.iter().map(|activity| activity.id.0).collect();
    let at = chosen(&ids, id, "--activity", "the file has activities")?;
    Ok(&all[at])
}

pub(super) fn the_sku(activity: &Activity, id: Option<u64>) -> Result<&Sku, CliError> {
    let ids: Vec<u64> = activity.skus.iter().map(|sku| sku.id.0).collect();
    let at = chosen(&ids, id, "--sku", "the activity has SKUs")?;
    Ok(&activity.skus[at])
}

/// The place of `id` in `ids`, or of the only one when none is named.
fn chosen(ids: &[u64], id: Option<u64>, flag: &str, what: &str) -> Result<usize, CliError> {
    let at = match (ids, id) {
        ([_], None) => Some(0),
        (_, None) => None,
        (_, Some(id)) => ids.iter().position(|known| *known == id),
    };
    at.ok_or_else(|| {
        let list: Vec<String> = ids.iter().map(u64::to_string).collect();
        let asked = id.map_or_else(
            || "say which one".to_owned(),
            |id| format!("{id} is none of them"),
        );
        CliError::Input(format!("{flag}: {asked}; {what} {}", list.join(", ")))
    })
}
