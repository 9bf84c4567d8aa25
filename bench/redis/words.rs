//! The sale that is measured, and one of its reserves as words for redis-benchmark.
//!
//! The words are taken from the frame that the desk itself would send: keys, arguments and their lengths are the same.

use weir_core::ask::{LedgerOp, Reserve};
use weir_core::limits::RESERVATIONS_MAX;
use weir_core::order::contract::Money;
use weir_core::redis::link::greeting::HomeId;
use weir_core::redis::step::{SkuSteps, StepPlan};
use weir_core::time::WallMs;
use weir_proto::ids::{ActivityId, Nonce, RequestId, SkuId, SkuKey, UserId};
use weir_proto::resp::{Value, read};

/// What is sold.
pub const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
/// What redis-benchmark replaces by twelve random digits, each time that it stands in a command.
const DRAWN: &str = "__rand_int__";
/// Twelve digits in the place of a user that is to be drawn.
const SOME_USER: u64 = 987_654_321_012;
/// Users of ours are numbers of twelve digits from here on.
const FIRST_USER: u64 = 100_000_000_000;
/// Ids of ours: so many letters, then the user's twelve digits.
const ID_HEAD: usize = 12;

/// The plan of the sale's steps.
pub const fn plan() -> StepPlan {
    StepPlan {
        sku: SKU,
        reservations_max: RESERVATIONS_MAX as u32,
        unit_price: Money {
            minor: 1_990,
            currency: *b"CNY",
        },
        keep_until: WallMs(4_000_000_000_000), // a hundred years ahead: nothing expires while it is measured
        policy: 1,
        ids_above: 0,
    }
}

/// The reserve number `n` of a run; every one has a user, a request id and a nonce of its own.
pub fn reserve(n: u64) -> LedgerOp {
    let user = FIRST_USER + n;
    let mut digits = [b'0'; 12];
    let mut rest = user;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    reserve_of(user, &digits)
}

fn reserve_of(user: u64, digits: &[u8; 12]) -> LedgerOp {
    let id = |head: &[u8; ID_HEAD]| {
        let mut id = [0; ID_HEAD + 12];
        id[..ID_HEAD].copy_from_slice(head);
        id[ID_HEAD..].copy_from_slice(digits);
        id
    };
    LedgerOp::Reserve(Reserve {
        sku: SKU,
        user: UserId(user),
        request_id: RequestId::new(&id(b"request-id-:")).expect("24 visible letters"),
        nonce: Nonce::new(&id(b"the-nonce--:")).expect("24 visible letters"),
        nonce_until: WallMs(0),
        quantity: 1,
    })
}

/// A reserve at the server of that name as redis-benchmark takes it, with `__rand_int__` for what is drawn anew each time.
pub fn of_a_reserve(home: &HomeId) -> Vec<String> {
    let mut frame = Vec::new();
    let drawn = DRAWN.as_bytes().try_into().expect("it has twelve letters");
    SkuSteps::new(plan()).push(&reserve_of(SOME_USER, drawn), home, &mut frame);
    let Value::Array(parts) = read(&frame) else {
        unreachable!("a frame is an array");
    };
    let texts = parts.map(|part| part.text().map(String::from_utf8_lossy).map(String::from));
    texts
        .map(|text| {
            let text = text.expect("a frame has strings only");
            text.replace(&SOME_USER.to_string(), DRAWN)
        })
        .collect()
}

/// The words as a JSON list; none of ours needs an escape.
pub fn json(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!("[{}]", quoted.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::redis::script::Script;

    fn some_home() -> HomeId {
        HomeId::new(&[b'a'; 81]).expect("81 visible letters")
    }

    fn frame_bytes(op: &LedgerOp) -> usize {
        let mut out = Vec::new();
        SkuSteps::new(plan()).push(op, &some_home(), &mut out);
        out.len()
    }

    #[test]
    fn a_peers_reserve_is_as_long_as_ours_and_draws_what_ours_counts() {
        let words = of_a_reserve(&some_home());
        assert_eq!(words[0], "EVALSHA");
        assert_eq!(words[1].as_bytes(), Script::Reserve.sha1());
        let drawn = words.iter().filter(|word| word.contains(DRAWN)).count();
        assert_eq!(drawn, 4, "tombstone, user, request id, nonce: {words:?}");
        assert_eq!(words.len(), 3 + 9 + 10);
        // `*22\r\n`, then `$length\r\nword\r\n`.
        let framed: usize = words
            .iter()
            .map(|word| 1 + word.len().to_string().len() + 2 + word.len() + 2)
            .sum();
        assert_eq!(5 + framed, frame_bytes(&reserve(0)));
        assert_eq!(frame_bytes(&reserve(0)), frame_bytes(&reserve(4_000_000)));
        assert!(json(&words).is_ascii() && !words.concat().contains(['"', '\\']));
    }

    #[test]
    fn reserves_share_nothing() {
        let of = |n| match reserve(n) {
            LedgerOp::Reserve(reserve) => reserve,
            other => panic!("{other:?}"),
        };
        let (one, other) = (of(1), of(2));
        assert_ne!(one.user, other.user);
        assert_ne!(one.request_id.as_bytes(), other.request_id.as_bytes());
        assert_ne!(one.nonce.as_bytes(), other.nonce.as_bytes());
    }
}
