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

const MUTANTS: &[Mutant] = &[];

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
