//! `POST /ops/v1/tickets`: mints a ticket for a shop's backend (the format is documented, so it may also mint its own).

use super::entropy::Entropy;
use super::limits::{TICKET_TTL_S, TICKET_TTL_S_MAX};
use super::refusal::{Fault, Refusal};
use super::reply::Reply;
use serde::Serialize;
use weir_core::sale::Sale;
use weir_core::time::WallMs;
use weir_proto::http::response::Status;
use weir_proto::ids::{ActivityId, SkuId, SkuKey, UserId};
use weir_proto::json::{JsonError, MemberFault, Object};
use weir_proto::limits::{DEVICE_BYTES_MAX, ID_MAX};
use weir_proto::ticket::{Claims, DeviceClaim, KeyRing, NonceClaim, mint_compact, mint_jws};

const MEMBERS: &[&str] = &[
    "activity_id",
    "sku_id",
    "user_id",
    "device",
    "ttl_s",
    "form",
];

/// What is asked for. No `Debug`: it holds a raw user and device id.
struct Wish {
    sku: SkuKey,
    user: UserId,
    device: Option<Vec<u8>>,
    ttl_s: u64,
    compact: bool,
}

#[derive(Serialize)]
struct Minted<'a> {
    ticket: &'a str,
    kid: &'a str,
    expires_at_ms: u64,
    path_id: &'a str,
}

/// Reads the body and mints.
pub(super) fn mint(
    now: WallMs,
    sale: &Sale,
    keys: &KeyRing,
    entropy: &mut Entropy,
    body: &[u8],
) -> Result<Reply, Refusal> {
    let wish = read(body)?;
    let (activity, _) = sale.sku(wish.sku).ok_or(Fault::UnknownSku)?;
    let device = match &wish.device {
        None => DeviceClaim::Unbound,
        Some(raw) => DeviceClaim::of_device(&activity.device_salt, raw)
            .expect("the reader holds the device to its length"),
    };
    let claims = Claims {
        activity: wish.sku.activity,
        sku: wish.sku.sku,
        user: wish.user,
        activity_version: activity.version,
        path_id: activity.path_id,
        nonce: NonceClaim::Raw(entropy.draw()),
        device,
        not_before_ms: now.0,
        expires_at_ms: now.plus_ms(wish.ttl_s * 1000).0,
    };
    let key = keys.signing();
    let mut ticket = Vec::with_capacity(512);
    let minted = if wish.compact {
        mint_compact(&claims, key, &mut ticket)
    } else {
        mint_jws(&claims, key, &mut ticket)
    };
    minted.map_err(|error| Refusal::from(Fault::Ticket).with_detail(&error))?;
    let kid = key.kid();
    let body = Minted {
        ticket: std::str::from_utf8(&ticket).expect("both forms are ASCII"),
        kid: kid.as_str(),
        expires_at_ms: claims.expires_at_ms,
        path_id: activity.path_id.as_str(),
    };
    Ok(Reply::json(Status::Ok, &body))
}

fn read(body: &[u8]) -> Result<Wish, JsonError> {
    let mut object = Object::open(body, MEMBERS)?;
    let (mut activity, mut sku, mut user, mut device) = (None, None, None, None);
    let (mut ttl_s, mut compact) = (TICKET_TTL_S, false);
    while let Some(member) = object.next_member()? {
        match member.name {
            "activity_id" => activity = Some(ActivityId(member.integer(1..=ID_MAX)?)),
            "sku_id" => sku = Some(SkuId(member.integer(1..=ID_MAX)?)),
            "user_id" => user = Some(UserId(member.integer(1..=ID_MAX)?)),
            "device" => {
                let text = member.text()?.visible::<DEVICE_BYTES_MAX>();
                let text = text.filter(|text| !text.is_empty());
                let fault = MemberFault::Form(
                    "1 to 128 visible ASCII characters, as X-Weir-Device will be sent",
                );
                let text = text.ok_or_else(|| member.fault(fault))?;
                device = Some(text.as_bytes().to_vec());
            }
            "ttl_s" => ttl_s = member.integer(1..=TICKET_TTL_S_MAX)?,
            _ => {
                let text = member.text()?;
                compact = text.is("compact");
                if !compact && !text.is("jws") {
                    return Err(member.fault(MemberFault::Form("jws or compact")));
                }
            }
        }
    }
    let sku = SkuKey {
        activity: activity.ok_or_else(|| JsonError::missing("activity_id"))?,
        sku: sku.ok_or_else(|| JsonError::missing("sku_id"))?,
    };
    Ok(Wish {
        sku,
        user: user.ok_or_else(|| JsonError::missing("user_id"))?,
        device,
        ttl_s,
        compact,
    })
}
