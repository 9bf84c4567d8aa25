//! The same work by others: httparse, jsonwebtoken, governor. Each gets what favours it, as its scenario says.
//!
//! A peer's name is its crate's, a slash, and the name of the scenario of ours that it stands beside.

use crate::limiter::key_number;
use crate::requests::{Form, submit, ticket_key, ticket_of};
use crate::shard_kit::SECRET;
use crate::{Scenario, Work};
use governor::clock::{Clock, FakeRelativeClock};
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Validation, decode};
use serde::Deserialize;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use weir_proto::ticket::TicketKey;

/// The user whose ticket and request are read, as in `pieces`.
const USER: u64 = 4_711;

macro_rules! limits {
    ($($keys:literal $text:literal),* $(,)?) => {
        [$(
            Scenario::new(concat!("governor/limiter-hit-admit-", $text), 1,
                || Hit::boxed($keys, FakeRelativeClock::default(), true)),
            Scenario::new(concat!("governor/limiter-hit-deny-", $text), 0,
                || Hit::boxed($keys, FakeRelativeClock::default(), false)),
            Scenario::new(concat!("governor/limiter-miss-admit-", $text), 1,
                || Box::new(Miss::new($keys))).in_chunks_of($keys),
            Scenario::new(concat!("governor/limiter-batch-16-hit-admit-", $text), 16,
                || Box::new(Batch::<16>(Hit::boxed($keys, FakeRelativeClock::default(), true)))).of_many(16),
            Scenario::new(concat!("governor/limiter-batch-64-hit-admit-", $text), 64,
                || Box::new(Batch::<64>(Hit::boxed($keys, FakeRelativeClock::default(), true)))).of_many(64),
        )*]
    };
}

pub fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        Scenario::new("httparse/parse-jws", 1, || parse(Form::Jws)),
        Scenario::new("httparse/parse-compact", 1, || parse(Form::Compact)),
        Scenario::new("jsonwebtoken/ticket-jws", 1, || Box::new(Ticket::new())),
    ];
    all.extend(limits! { 1_000 "1K", 100_000 "100K", 1_000_000 "1M", 10_000_000 "10M" });
    all
}

/// The head only, into an array that is not even cleared: no check of Host, framing, target, sizes or body.
struct Parse(Vec<u8>);

fn parse(form: Form) -> Box<dyn Work> {
    Box::new(Parse(submit(USER, &ticket_of(USER, form))))
}

impl Work for Parse {
    fn once(&mut self) -> u64 {
        let mut fields = [const { MaybeUninit::uninit() }; 16];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(black_box(&self.0), &mut fields);
        let done = matches!(parsed, Ok(httparse::Status::Complete(_)));
        black_box(&request);
        u64::from(done)
    }
}

/// HMAC by the same crates as ours, with the key absorbed beforehand, so that both sides pay the same for the MAC.
static MAC_KEY: OnceLock<TicketKey> = OnceLock::new();
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

struct SameMac;

impl signature::Verifier<Vec<u8>> for SameMac {
    fn verify(
        &self,
        message: &[u8],
        signature: &Vec<u8>,
    ) -> std::result::Result<(), signature::Error> {
        let key = MAC_KEY.get().ok_or_else(signature::Error::new)?;
        if key.hs256(message)[..] == signature[..] {
            Ok(())
        } else {
            Err(signature::Error::new())
        }
    }
}

impl JwtVerifier for SameMac {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

fn verifier(_: &Algorithm, _: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    Ok(Box::new(SameMac))
}

/// The claims as a shop would read them with serde; texts borrow nothing, as the crate gives owned data.
#[derive(Deserialize)]
struct Claims {
    version: u64,
    activity_id: u64,
    sku_id: u64,
    user_id: u64,
    activity_version: u64,
    device_hash: String,
    path_id: String,
    nonce: String,
    not_before_ms: u64,
    expires_at_ms: u64,
}

struct Ticket {
    token: String,
    key: DecodingKey,
    validation: Validation,
}

impl Ticket {
    fn new() -> Self {
        MAC_KEY.get_or_init(ticket_key);
        PROVIDER.install_default().ok(); // the second ticket of a process finds it there
        let mut validation = Validation::new(Algorithm::HS256);
        validation.validate_exp = false; // our claims count in milliseconds under other names
        validation.required_spec_claims.clear();
        Self {
            token: String::from_utf8(ticket_of(USER, Form::Jws)).expect("tickets are ASCII"),
            key: DecodingKey::from_secret(SECRET).expect("a secret"),
            validation,
        }
    }
}

impl Work for Ticket {
    fn once(&mut self) -> u64 {
        let Ok(data) = decode::<Claims>(black_box(&self.token), &self.key, &self.validation) else {
            return 0;
        };
        let claims = black_box(data).claims;
        let fits = claims.version == 1
            && claims.activity_id == 10_001
            && claims.sku_id == 90_001
            && claims.user_id == USER
            && claims.activity_version == 8
            && claims.path_id == "p_7vKh2P"
            && claims.device_hash == "none"
            && !claims.nonce.is_empty()
            && claims.not_before_ms < claims.expires_at_ms;
        u64::from(fits)
    }
}

type Limiter<C> = RateLimiter<
    u64,
    DashMapStateStore<u64>,
    C,
    governor::middleware::NoOpMiddleware<<C as Clock>::Instant>,
>;

/// Keyed by number with the crate's default map and hasher, and a clock that stands still, which costs it one load.
fn limiter<C: Clock>(clock: C, admit: bool) -> Limiter<C> {
    let burst = NonZeroU32::new(if admit { 1 << 30 } else { 1 }).expect("above 0");
    let each = std::time::Duration::from_secs(1);
    let quota = Quota::with_period(each).expect("above 0");
    RateLimiter::dashmap_with_clock(quota.allow_burst(burst), clock)
}

struct Hit<C: Clock> {
    limiter: Limiter<C>,
    number: u64,
    keys: u64,
}

impl<C: Clock + 'static> Hit<C> {
    fn boxed(keys: u64, clock: C, admit: bool) -> Box<dyn Work> {
        let hit = Self {
            limiter: limiter(clock, admit),
            number: 0,
            keys,
        };
        for number in 0..keys {
            hit.limiter.check_key(&key_number(number)).ok();
        }
        Box::new(hit)
    }
}

impl<C: Clock> Work for Hit<C> {
    fn once(&mut self) -> u64 {
        self.number = (self.number + 1) % self.keys;
        let key = black_box(key_number(self.number));
        u64::from(self.limiter.check_key(&key).is_ok())
    }
}

/// It has no call for many keys at once, so it is asked one by one.
struct Batch<const COUNT: usize>(Box<dyn Work>);

impl<const COUNT: usize> Work for Batch<COUNT> {
    fn once(&mut self) -> u64 {
        (0..COUNT).map(|_| self.0.once()).sum()
    }

    fn refill(&mut self) {
        self.0.refill();
    }
}

/// Newcomers to a map that already holds `keys`; it forgets nothing by itself, so it is made anew between chunks.
struct Miss {
    limiter: Limiter<FakeRelativeClock>,
    number: u64,
    keys: u64,
}

impl Miss {
    fn new(keys: u64) -> Self {
        let miss = Self {
            limiter: limiter(FakeRelativeClock::default(), false),
            number: keys,
            keys,
        };
        for number in 0..keys {
            miss.limiter.check_key(&key_number(number)).ok();
        }
        miss
    }
}

impl Work for Miss {
    fn once(&mut self) -> u64 {
        self.number += 1;
        let key = black_box(key_number(self.number));
        u64::from(self.limiter.check_key(&key).is_ok())
    }

    fn refill(&mut self) {
        *self = Self::new(self.keys);
    }
}
