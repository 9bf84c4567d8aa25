//! The planted faults of the shipped scripts (design §12.16): the text that a server loads, with one place changed.
//!
//! Called by the engine when it compiles. In every build without `--cfg weir_planted` no fault is live, and a text is what
//! it is.

use std::borrow::Cow;
use weir_core::planted::{self, Planted};
use weir_core::redis::script::Script;

/// A fault: which script, what stands there, what stands there instead.
struct Mutant {
    fault: Planted,
    script: Script,
    right: &'static str,
    wrong: &'static str,
}

const MUTANTS: &[Mutant] = &[
    // The desk does not look where the books are, and neither does the script behind it.
    Mutant {
        fault: Planted::HomeUnchecked,
        script: Script::Reserve,
        right: " or (sku[18] or '') ~= home then",
        wrong: " then",
    },
    Mutant {
        fault: Planted::ScriptReleasesTwice,
        script: Script::Release,
        right: "if state ~= '0' and state ~= '1' then",
        wrong: "if false then",
    },
    Mutant {
        fault: Planted::ScriptForgetsTombstone,
        script: Script::Reserve,
        right: "redis.call('EXISTS', tomb_key) == 1",
        wrong: "redis.call('EXISTS', tomb_key) == 2",
    },
    Mutant {
        fault: Planted::ScriptTombstoneShort,
        script: Script::Lookup,
        right: "'PX', ARGV[3])",
        wrong: "'PX', 1)",
    },
    Mutant {
        fault: Planted::ScriptForgetsRequest,
        script: Script::Reserve,
        right: "local known = redis.call('HGET', req_key, name)",
        wrong: "local known = false",
    },
    Mutant {
        fault: Planted::ScriptForgetsNonce,
        script: Script::Reserve,
        right: "if redis.call('HGET', nonce_key, nonce) then",
        wrong: "if false then",
    },
    Mutant {
        fault: Planted::ScriptForgetsUser,
        script: Script::Reserve,
        right: "local other = redis.call('HGET', user_key, user)",
        wrong: "local other = false",
    },
    Mutant {
        fault: Planted::ScriptSellsOneTooMany,
        script: Script::Reserve,
        right: "if free < quantity then",
        wrong: "if free + 1 < quantity then",
    },
    Mutant {
        fault: Planted::ScriptIgnoresMode,
        script: Script::Reserve,
        right: "if mode >= 2 then",
        wrong: "if mode >= 9 then",
    },
    Mutant {
        fault: Planted::ScriptRestocksTwice,
        script: Script::Restock,
        right: "if log[1] then",
        wrong: "if false then",
    },
    Mutant {
        fault: Planted::ScriptEpochStays,
        script: Script::Reopen,
        right: "local epoch, version = sku[5] + 1,",
        wrong: "local epoch, version = sku[5] + 0,",
    },
    Mutant {
        fault: Planted::ScriptLateSaleTwice,
        script: Script::PaidLate,
        right: "local sells = not holds and",
        wrong: "local sells =",
    },
    Mutant {
        fault: Planted::ScriptOfferForgetsLateSale,
        script: Script::Offer,
        right: "local buys = to == 2 and (state == 3 or state == 4)",
        wrong: "local buys = false",
    },
    Mutant {
        fault: Planted::ScriptClockRunsBack,
        script: Script::Reserve,
        right: "local now = math.max(tonumber(sku[1]), ",
        wrong: "local now = math.max(0, ",
    },
    Mutant {
        fault: Planted::ScriptLeaseNotDeducted,
        script: Script::LeaseDraw,
        right: "'units', units - tokens * UNITS_PER_TOKEN,",
        wrong: "'units', units,",
    },
    Mutant {
        fault: Planted::ScriptBucketFull,
        script: Script::LeasePolicy,
        right: "local units, opened_us, answer = 0, now_us, 1",
        wrong: "local units, opened_us, answer = burst * UNITS_PER_TOKEN, now_us, 1",
    },
];

/// The fault that is live in the script of this name, by its place in the table.
pub(super) fn live(sha1: &str) -> Option<usize> {
    let is_it = |mutant: &Mutant| {
        planted::is(mutant.fault) && mutant.script.sha1().as_slice() == sha1.as_bytes()
    };
    MUTANTS.iter().position(is_it)
}

/// The text that is run.
///
/// # Panics
/// When the place of a fault is not in its script any more.
pub(super) fn text(live: Option<usize>, source: &[u8]) -> Cow<'_, [u8]> {
    let Some(mutant) = live.and_then(|place| MUTANTS.get(place)) else {
        return Cow::Borrowed(source);
    };
    let text = String::from_utf8_lossy(source);
    assert!(
        text.matches(mutant.right).count() == 1,
        "{} is once in {}.lua",
        mutant.right,
        mutant.script.name()
    );
    Cow::Owned(text.replace(mutant.right, mutant.wrong).into_bytes())
}
