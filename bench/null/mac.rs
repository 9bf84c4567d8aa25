//! The bare MAC of a JWS ticket: HMAC-SHA256 with proto's key over the signing input of fresh tickets, nothing else.
//!
//! Each round walks other tickets than the one before, in the order in which they lie in memory, as a server meets
//! them. CPU time of this thread, so that a neighbour on the core does not count.

use weir_bench::mix::TicketForm;
use weir_bench::{TicketMint, own_cpu_ns};
use weir_proto::ids::{ActivityId, SkuId};
use weir_proto::ticket::{TicketKey, path_id};

/// Most tickets of a round: 330 MB of them.
const COUNT_MAX: u64 = 1_000_000;
/// Most rounds: a minute.
const ROUNDS_MAX: u64 = 100;
/// The first user: ids of 19 digits, as the load generator's.
const FIRST_USER: u64 = 1 << 60;

/// Prints `{"mac_ns":[…],"ticket_bytes":…}`, one number per round.
///
/// # Errors
/// Counts out of range.
pub fn run(count: u64, rounds: u64) -> Result<(), String> {
    if !(1..=COUNT_MAX).contains(&count) || !(1..=ROUNDS_MAX).contains(&rounds) {
        return Err(format!(
            "--count must be 1..={COUNT_MAX}, --rounds 1..={ROUNDS_MAX}"
        ));
    }
    let key = TicketKey::new(b"ticket-1", &[7; 32]).map_err(|error| error.to_string())?;
    let path_id = path_id(b"k3Jx0aQz").ok_or("the path id of this bench is one")?;
    let mut shown = Vec::new();
    let (mut bytes, mut ticket_bytes) = (Vec::new(), 0);
    for round in 0..rounds {
        let mint = TicketMint {
            key: key.clone(),
            form: TicketForm::Jws,
            activity: ActivityId(1),
            sku: SkuId(1),
            activity_version: 1,
            path_id,
            not_before_ms: 1_800_000_000_000,
            expires_at_ms: 1_800_003_600_000,
            first_user: FIRST_USER + round * count,
            nonce_seed: round,
        };
        bytes.clear();
        for n in 0..count {
            mint.mint(n, &mut bytes)
                .map_err(|error| error.to_string())?;
        }
        ticket_bytes = bytes.len() / count as usize;
        // RFC 7515 §5.1: the signing input ends before the last dot; 43 characters of base64url follow it.
        let inputs: Vec<&[u8]> = bytes
            .chunks_exact(ticket_bytes)
            .map(|ticket| &ticket[..ticket_bytes - 44])
            .collect();
        let before = own_cpu_ns();
        let mut seen = 0_u8;
        for input in &inputs {
            seen ^= key.hs256(input)[0];
        }
        let used = own_cpu_ns().saturating_sub(before);
        std::hint::black_box(seen);
        let tenths = used * 10 / count;
        shown.push(format!("{}.{}", tenths / 10, tenths % 10));
    }
    println!(
        "{{\"mac_ns\":[{}],\"ticket_bytes\":{ticket_bytes},\"count\":{count}}}",
        shown.join(",")
    );
    Ok(())
}
