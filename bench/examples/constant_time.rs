//! Does the time of a refusal tell how much of a MAC was right? Two classes of forged tickets, the first byte of the MAC
//! wrong or only the last one, in random order, and Welch's t of their times (the method of dudect, Reparaz et al. 2017).
//!
//! `cargo run --release -p weir-bench --example constant_time -- [measurements]`
//!
//! |t| above 4.5 is a leak that such an instrument sees. The control is the same check with a comparison that stops at the
//! first difference: it must be seen, or the instrument is blind on this machine. Nothing else should run meanwhile. A
//! bench with a figure and no test: time on a shared machine proves nothing by itself.

use std::hint::black_box;
use std::time::Instant;
use weir_core::rng::Rng;
use weir_proto::ids::{ActivityId, SkuId, UserId};
use weir_proto::signature::{SignatureKey, SignatureKeys, Signed, sign_request, verify_request};
use weir_proto::ticket::{
    Claims, DeviceClaim, KeyRing, MAC_BYTES, NonceClaim, TicketKey, authenticate, base64url,
    mint_compact, mint_jws, path_id,
};

const SEED: u64 = 0x5eed;
/// Tickets per class: more than a branch predictor remembers.
const TICKETS: usize = 512;
/// Times above these shares of all times are left out, one result each: interrupts are far longer than what is looked for.
const CROPS: [f64; 4] = [1.0, 0.99, 0.9, 0.5];
/// dudect's bound.
const T_MAX: f64 = 4.5;
const NOW_MS: u64 = 1_796_040_000_000;
const BODY: &[u8] =
    br#"{"request_id":"req_0001","activity_id":1,"sku_id":2,"user_id":3,"quantity":1}"#;

/// What is presented and refused.
type Forged = Vec<u8>;

/// One way of refusing: forged things of both classes, and the check.
struct Subject<'a> {
    name: &'static str,
    forged: [Vec<Forged>; 2],
    check: &'a dyn Fn(&[u8]) -> bool,
}

fn claims(n: u64, rng: &mut Rng) -> Claims {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
    nonce[8..].copy_from_slice(&rng.next_u64().to_be_bytes());
    Claims {
        activity: ActivityId(1),
        sku: SkuId(2),
        user: UserId(n + 1),
        activity_version: 1,
        path_id: path_id(b"p_7vKh2P").expect("plain"),
        nonce: NonceClaim::Raw(nonce),
        device: DeviceClaim::Unbound,
        not_before_ms: NOW_MS,
        expires_at_ms: NOW_MS + 30_000,
    }
}

/// Spoils one byte of the MAC that ends `sealed` bytes of base64url at the end of a token.
fn spoil(token: &mut Vec<u8>, sealed_bytes: usize, class: usize, rng: &mut Rng) {
    let start = token.len() - base64url::encoded_len(sealed_bytes);
    let mut sealed = vec![0; sealed_bytes];
    base64url::decode(&token[start..], &mut sealed).expect("minted here");
    let at = sealed_bytes - if class == 0 { MAC_BYTES } else { 1 };
    sealed[at] ^= 1 + rng.below(255) as u8;
    token.truncate(start);
    base64url::append(&sealed, token);
}

fn forged(rng: &mut Rng, mut make: impl FnMut(u64, usize, &mut Rng) -> Forged) -> [Vec<Forged>; 2] {
    [0, 1].map(|class| (0..TICKETS as u64).map(|n| make(n, class, rng)).collect())
}

/// Times of both classes in random order, nanoseconds.
fn measure(subject: &Subject<'_>, measurements: usize, rng: &mut Rng) -> [Vec<u32>; 2] {
    let mut times = [const { Vec::new() }; 2];
    let longest = subject
        .forged
        .iter()
        .flatten()
        .map(Vec::len)
        .max()
        .unwrap_or(0);
    // Both classes are read from the same place: an address must not be what differs.
    let mut place = vec![0; longest];
    for _ in 0..measurements {
        let class = rng.below(2) as usize;
        let chosen = &subject.forged[class][rng.below(TICKETS as u64) as usize];
        let presented = &mut place[..chosen.len()];
        presented.copy_from_slice(chosen);
        let started = Instant::now();
        let accepted = black_box((subject.check)(black_box(presented)));
        let took_ns = started.elapsed().as_nanos();
        assert!(!accepted, "{}: a forgery was accepted", subject.name);
        times[class].push(u32::try_from(took_ns).unwrap_or(u32::MAX));
    }
    times
}

/// Mean, variance and count of the times up to `limit_ns`.
fn moments(times: &[u32], limit_ns: u32) -> (f64, f64, f64) {
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for &time in times.iter().filter(|&&time| time <= limit_ns) {
        let time = f64::from(time);
        count += 1.0;
        let off = time - mean;
        mean += off / count;
        squares += off * (time - mean);
    }
    (mean, squares / (count - 1.0), count)
}

/// The greatest |t| over the crops, and the medians of both classes.
fn welch(times: &mut [Vec<u32>; 2]) -> (f64, [u32; 2]) {
    let mut all: Vec<u32> = times.iter().flatten().copied().collect();
    all.sort_unstable();
    let mut worst = 0.0_f64;
    for crop in CROPS {
        let limit_ns = all[((all.len() - 1) as f64 * crop) as usize];
        let [(mean_a, var_a, n_a), (mean_b, var_b, n_b)] =
            [0, 1].map(|class| moments(&times[class], limit_ns));
        let t = (mean_a - mean_b) / (var_a / n_a + var_b / n_b).sqrt();
        if t.abs() > worst.abs() {
            worst = t;
        }
    }
    let medians = [0, 1].map(|class| {
        times[class].sort_unstable();
        times[class][times[class].len() / 2]
    });
    (worst, medians)
}

/// Both forms of ticket, both classes.
fn forged_tickets(key: &TicketKey, rng: &mut Rng) -> [[Vec<Forged>; 2]; 2] {
    let jws = forged(rng, |n, class, rng| {
        let mut token = Vec::new();
        mint_jws(&claims(n, rng), key, &mut token).expect("sound");
        spoil(&mut token, MAC_BYTES, class, rng);
        token
    });
    let compact = forged(rng, |n, class, rng| {
        let mut token = Vec::new();
        mint_compact(&claims(n, rng), key, &mut token).expect("sound");
        spoil(&mut token, 96 + MAC_BYTES, class, rng);
        token
    });
    [jws, compact]
}

/// Measures one subject and says what was seen.
fn report(subject: &Subject<'_>, measurements: usize, rng: &mut Rng) {
    measure(subject, measurements / 10, rng); // warm caches, clock and predictor
    let (t, [first_ns, last_ns]) = welch(&mut measure(subject, measurements, rng));
    let verdict = if t.abs() > T_MAX {
        "differs"
    } else {
        "no difference seen"
    };
    println!(
        "{}: {measurements} refusals, median {first_ns} ns (first byte wrong) and {last_ns} ns (last byte wrong), t = {t:+.2}: {verdict}",
        subject.name
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let measurements = words
        .first()
        .and_then(|word| word.parse().ok())
        .unwrap_or(2_000_000);
    let mut rng = Rng::new(SEED);
    let key = TicketKey::new(b"k1", &[7; 32]).expect("32 bytes");
    let ring = KeyRing::new(key.clone(), None).expect("one key");
    let [jws, compact] = forged_tickets(&key, &mut rng);
    let signer = SignatureKey::new(b"app-1", &[8; 32]).expect("32 bytes");
    let signers = SignatureKeys::new(signer.clone(), None).expect("one key");
    let signed = Signed {
        method: b"POST",
        target: b"/v1/seckill/p_7vKh2P",
        body: BODY,
    };
    let signatures = forged(&mut rng, |n, class, rng| {
        let mut header = Vec::new();
        sign_request(signed, &signer, NOW_MS + n, &mut header);
        let at = header.len() - if class == 0 { 2 * MAC_BYTES } else { 1 };
        let good = header[at];
        while header[at] == good {
            header[at] = b"0123456789abcdef"[rng.below(16) as usize];
        }
        header
    });
    let by_ring = |token: &[u8]| authenticate(token, &ring).is_ok();
    let by_signers =
        |header: &[u8]| verify_request(signed, Some(header), &signers, NOW_MS, 30_000).is_ok();
    let early_exit = |token: &[u8]| {
        let start = token.len() - base64url::encoded_len(MAC_BYTES);
        let mut theirs = [0; MAC_BYTES];
        base64url::decode(&token[start..], &mut theirs).expect("made here");
        let ours = key.hs256(&token[..start - 1]);
        ours.iter()
            .zip(&theirs)
            .all(|(ours, theirs)| black_box(ours) == theirs)
    };
    let subjects = [
        Subject {
            name: "jws ticket",
            forged: jws.clone(),
            check: &by_ring,
        },
        Subject {
            name: "compact ticket",
            forged: compact,
            check: &by_ring,
        },
        Subject {
            name: "request signature",
            forged: signatures,
            check: &by_signers,
        },
        Subject {
            name: "control (early exit)",
            forged: jws,
            check: &early_exit,
        },
    ];
    for subject in &subjects {
        report(subject, measurements, &mut rng);
    }
}
