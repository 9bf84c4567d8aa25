//! Tickets of both forms against a slow model: raw bytes, signed JSON, sealed claims, and what weir mints itself.
//!
//! The first byte says how the rest is used, so that the fuzzer gets behind the MAC. Never: a panic, a ticket that verifies
//! after a change, two readings of one ticket.

use super::ticket_model::{self as model, Device, Plain};
use super::{Checked, same, seed_of};
use weir_proto::ids::{ActivityId, Nonce, SkuId, UserId};
use weir_proto::ticket::{
    Claims, DeviceClaim, KeyRing, MintError, NonceClaim, TicketKey, authenticate, mint_compact,
    mint_jws, path_id,
};

const KID: &[u8] = b"k1";
const SECRET: [u8; 32] = *b"a secret that everybody may know";
const HEADER: &[u8] = br#"{"alg":"HS256","kid":"k1"}"#;

fn ring() -> KeyRing {
    let key = TicketKey::new(KID, &SECRET).expect("32 bytes");
    KeyRing::new(key, None).expect("one key")
}

/// Checks `data`: 0 a token as it is, 1 a header and claims to sign, 2 claims to seal, 3 claims to mint.
pub fn check(data: &[u8]) -> Checked {
    let Some((&mode, rest)) = data.split_first() else {
        return agree(b"");
    };
    match mode % 4 {
        0 => agree(rest),
        1 => agree(&signed(rest)),
        2 => agree(&sealed(rest)),
        _ => minted(rest),
    }
}

/// weir and the model say the same of a token.
fn agree(token: &[u8]) -> Checked {
    let ring = ring();
    let ours = authenticate(token, &ring).map(|claims| plain(&claims));
    same("ticket", &ours, &model::read(token, &ring, &SECRET))
}

fn plain(claims: &Claims) -> Plain {
    Plain {
        numbers: [
            claims.activity.0,
            claims.sku.0,
            claims.user.0,
            claims.activity_version,
            claims.not_before_ms,
            claims.expires_at_ms,
        ],
        path: claims.path_id.as_str().to_owned(),
        nonce: claims.nonce().as_str().to_owned(),
        device: match claims.device {
            DeviceClaim::Unbound => Device::None,
            DeviceClaim::Hash(hash) => Device::Hash(hash),
            DeviceClaim::Foreign => Device::Foreign,
        },
    }
}

/// A JWS of two texts with a zero byte between them, or of one text as claims, with a good MAC.
fn signed(texts: &[u8]) -> Vec<u8> {
    let (header, claims) = match texts.iter().position(|&byte| byte == 0) {
        Some(at) => (&texts[..at], &texts[at + 1..]),
        None => (HEADER, texts),
    };
    let mut token = format!("{}.{}", model::encode(header), model::encode(claims)).into_bytes();
    let mac = ring().signing().hs256(&token);
    token.extend(format!(".{}", model::encode(&mac)).bytes());
    token
}

/// A compact ticket of any 96 bytes with a good MAC.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut claims = [0; 96];
    let count = bytes.len().min(96);
    claims[..count].copy_from_slice(&bytes[..count]);
    let mac = model::compact_mac(KID, &claims, &SECRET);
    format!("w1.k1.{}", model::encode(&[&claims[..], &mac].concat())).into_bytes()
}

type Mint = fn(&Claims, &TicketKey, &mut Vec<u8>) -> Result<(), MintError>;

/// What weir mints is read back as it was, by weir and by the model; changed by one byte it is refused.
fn minted(bytes: &[u8]) -> Checked {
    let Some(claims) = claims(bytes) else {
        return Ok(());
    };
    let ring = ring();
    let sound = model::sound(plain(&claims)).is_some();
    for (mint, is_compact) in [(mint_jws as Mint, false), (mint_compact, true)] {
        let mut token = Vec::new();
        let written = mint(&claims, ring.signing(), &mut token);
        let fits = claims.device != DeviceClaim::Foreign
            && (!is_compact
                || (claims.path_id.as_bytes().len() <= 8 && claims.nonce.raw().is_some()));
        same("may be minted", &written.is_ok(), &(sound && fits))?;
        if written.is_err() {
            continue;
        }
        same("read back", &authenticate(&token, &ring), &Ok(claims))?;
        agree(&token)?;
        let seed = seed_of(bytes);
        let (at, change) = (seed as usize % token.len(), (seed >> 32) as u8);
        token[at] ^= change.max(1);
        if let Ok(forged) = authenticate(&token, &ring) {
            return Err(format!("changed at {at}, still read: {forged:?}"));
        }
        agree(&token)?;
        token[at] ^= change.max(1);
        other_spellings(&mut token, &ring)?;
    }
    Ok(())
}

/// The last letter has bits that no byte needs: no other letter may stand for it.
fn other_spellings(token: &mut [u8], ring: &KeyRing) -> Checked {
    let last = token.len() - 1;
    let good = token[last];
    for letter in model::ALPHABET.bytes().filter(|letter| *letter != good) {
        token[last] = letter;
        if authenticate(token, ring).is_ok() {
            return Err(format!(
                "a ticket has two spellings: {good} and {letter} at its end"
            ));
        }
    }
    Ok(())
}

/// Claims of 6 numbers, 1 byte of device kind, 16 of device, 1 of nonce kind, 16 of nonce, the rest is the path.
fn claims(bytes: &[u8]) -> Option<Claims> {
    let (numbers, rest) = bytes.split_at_checked(48)?;
    let (device, rest) = rest.split_at_checked(17)?;
    let (nonce, path) = rest.split_at_checked(17)?;
    let number = |at: usize| {
        numbers[at * 8..at * 8 + 8]
            .iter()
            .fold(0, |n, &b| n << 8 | u64::from(b))
    };
    Some(Claims {
        activity: ActivityId(number(0)),
        sku: SkuId(number(1)),
        user: UserId(number(2)),
        activity_version: number(3),
        not_before_ms: number(4),
        expires_at_ms: number(5),
        device: match device[0] % 4 {
            0 => DeviceClaim::Unbound,
            1 => DeviceClaim::Foreign,
            _ => DeviceClaim::from_bytes(device[1..].try_into().ok()?),
        },
        nonce: match nonce[0] % 2 {
            0 => NonceClaim::Raw(nonce[1..].try_into().ok()?),
            _ => NonceClaim::Text(Nonce::new(nonce[1..].split(|&b| b == 0).next()?)?),
        },
        path_id: path_id(path)?,
    })
}
