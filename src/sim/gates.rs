//! What only some worlds have: deny-lists, quick bans, signed submits (A6, B8), much time to pay.
//!
//! Drawn from what the plan is already, not from its seed's sequence: worlds without them stay what they were.

use super::plan::Plan;
use std::sync::Arc;
use weir_core::limit::bans::BanPolicy;
use weir_core::limit::deny::{DenyList, DenySubject};
use weir_core::limit::gcra::{Policy, Rate};
use weir_core::limit::rule::Rule;
use weir_core::limits::TOMBSTONE_TTL_MS;
use weir_core::rng::Rng;
use weir_core::sale::Sale;
use weir_core::shard::config::{BanLimits, KeyedLimit, RequestSignatures};
use weir_core::time::WallMs;
use weir_proto::addr::Cidr;
use weir_proto::ids::UserId;
use weir_proto::signature::{SignatureKey, SignatureKeys, Signed, sign_request};
use weir_proto::ticket::DeviceClaim;

const SIGNATURE_SECRET: &[u8] = b"simulated signatures, 32 bytes or more";
/// How far a submit's time may be from a shard's.
const SKEW_MS: u64 = 30_000;
/// Of so many users, one is denied; of so many signing users, one each forges in one of the five ways.
const ONE_OF: u64 = 16;

/// What is wrong with a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgery {
    Missing,
    Shapeless,
    UnknownKey,
    Stale,
    OtherBody,
}

const FORGERIES: [Forgery; 5] = [
    Forgery::Missing,
    Forgery::Shapeless,
    Forgery::UnknownKey,
    Forgery::Stale,
    Forgery::OtherBody,
];

/// Gives the gates to a plan that has none.
pub(super) fn draw(plan: &mut Plan) {
    let mut rng = Rng::new(plan.load_ms << 40 | plan.burst_ms << 20 | plan.buyers_count);
    if rng.chance(1, 6) {
        plan.shard.bans = quick_bans(&mut rng);
        if plan.crowds.addresses_count > plan.buyers_count as u32 {
            plan.shard.ip = slow(); // everybody has an address: only who is hasty meets this
        }
    }
    if rng.chance(1, 6) {
        plan.shard.deny = Arc::new(deny_list(plan, &mut rng));
    }
    if rng.chance(1, 6) {
        let keys = SignatureKeys::new(key(b"s1"), None).expect("one key");
        plan.shard.signature = Some(RequestSignatures {
            keys: Arc::new(keys),
            skew_ms: SKEW_MS,
        });
    }
    if rng.chance(1, 64) {
        give_time(plan);
    }
}

/// A limit that tells waits long enough for coming back too soon.
fn slow() -> KeyedLimit {
    let policy = Policy::new(Rate::per_second(2), 2).expect("a small rate and capacity");
    KeyedLimit {
        rule: Rule::gcra(policy),
        shadow: None,
        overflow: policy,
        slots: 256,
    }
}

/// So much time to pay that the world outlives the ledger's tombstones.
fn give_time(plan: &mut Plan) {
    let mut sale = Sale::clone(&plan.sale);
    for sku in sale.activities.iter_mut().flat_map(|found| &mut found.skus) {
        sku.unpaid_timeout_ms = TOMBSTONE_TTL_MS + 5_000;
    }
    plan.sale = Arc::new(sale);
    plan.shard.sale = Arc::clone(&plan.sale);
}

fn key(kid: &[u8]) -> SignatureKey {
    SignatureKey::new(kid, SIGNATURE_SECRET).expect("the secret is long enough")
}

/// Who comes back too soon even once or twice is out, but not for long.
fn quick_bans(rng: &mut Rng) -> BanLimits {
    let mut quick = || BanPolicy {
        strikes: 1 + rng.below(2) as u16,
        window_ms: 30_000,
        first_ms: 200 + rng.below(400),
        max_ms: 1_500,
        forget_ms: 5_000,
    };
    BanLimits {
        user: quick(),
        ip: quick(),
        slots: 256,
    }
}

fn deny_list(plan: &Plan, rng: &mut Rng) -> DenyList {
    let (which, numbers) = (rng.below(ONE_OF), 0..plan.buyers_count);
    let users = numbers.map(|number| UserId(number + 1));
    let denied = users.filter(|user| user.0 % ONE_OF == which);
    let mut subjects: Vec<DenySubject> = denied.clone().map(DenySubject::User).collect();
    // The devices of some of those who are not denied themselves, in every sale.
    let others = denied.map(|user| UserId(user.0 + 1));
    for device in others.filter_map(|user| plan.device(user)) {
        let name = super::crowd::device_name(device);
        for activity in &plan.sale.activities {
            let claim = DeviceClaim::of_device(&activity.device_salt, name.as_bytes());
            if let Some(DeviceClaim::Hash(hash)) = claim {
                subjects.push(DenySubject::Device(hash));
            }
        }
    }
    let address = plan
        .address(rng.below(plan.buyers_count) as u32)
        .to_string();
    let network = Cidr::parse(&address).expect("an address is a network of one");
    subjects.push(DenySubject::Network(network));
    DenyList::build(subjects.into_iter())
}

impl Plan {
    /// The longest time that an order waits for its payment.
    pub fn unpaid_ms_max(&self) -> u64 {
        let skus = self.sale.activities.iter().flat_map(|found| &found.skus);
        skus.map(|sku| sku.unpaid_timeout_ms).max().unwrap_or(0)
    }

    /// True when nothing that comes from this buyer's address may be done.
    pub fn denies_address(&self, buyer: u32) -> bool {
        self.shard.deny.denies_address(self.address(buyer).into())
    }

    /// True when nobody may sell to this user, whatever its ticket.
    pub fn bars(&self, user: UserId) -> bool {
        let hash_key = &self.shard.user_hash_key;
        self.shard.deny.denies_user(user, hash_key) || self.forgery(user).is_some()
    }

    /// True when clients may be refused for what they are or did before.
    pub fn has_gates(&self) -> bool {
        self.shard.bans.user.first_ms < 1_000 || self.shard.deny != Arc::default()
    }

    fn forgery(&self, user: UserId) -> Option<Forgery> {
        self.shard.signature.as_ref()?;
        FORGERIES.get((user.0 % ONE_OF) as usize).copied()
    }

    /// Appends the signature's header line of a submit by `user`, if this world asks for one.
    pub fn put_signature(&self, user: UserId, signed: Signed<'_>, wall: WallMs, out: &mut Vec<u8>) {
        if self.shard.signature.is_none() {
            return;
        }
        let forgery = self.forgery(user);
        let body = match forgery {
            Some(Forgery::Missing) => return,
            Some(Forgery::OtherBody) => b"{}".as_slice(),
            _ => signed.body,
        };
        let kid = match forgery {
            Some(Forgery::UnknownKey) => b"s9",
            _ => b"s1",
        };
        let time_ms = match forgery {
            Some(Forgery::Stale) => wall.0 - 2 * SKEW_MS,
            _ => wall.0,
        };
        out.extend_from_slice(b"X-Weir-Signature: ");
        if forgery == Some(Forgery::Shapeless) {
            out.extend_from_slice(b"signed, sincerely");
        } else {
            sign_request(Signed { body, ..signed }, &key(kid), time_ms, out);
        }
        out.extend_from_slice(b"\r\n");
    }
}
