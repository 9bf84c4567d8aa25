//! What an error reply says about its ask: not executed, to be sent elsewhere, or open.
//!
//! Redis's own words (`src/server.c`, `src/cluster.c`, `src/script.c` name them): each is given before the first write
//! of a script, or in the place of it.

use weir_proto::resp::ErrorReply;

/// What an error reply means for what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The script is not loaded there.
    NoScript,
    /// Another node owns the slot, or has the key for this once.
    Elsewhere,
    /// Not executed; the node is none that takes writes: a replica, or one that still loads.
    NotHere,
    /// Not executed: overload, no memory, too few replicas, a part of the cluster is down, no permission.
    NotNow,
    /// Nobody knows how far the script came.
    Open,
}

/// Words of error replies that are counted by themselves; the last one is for all others. What an operator does about each
/// is in README.
pub const ERROR_WORDS: [&str; 11] = [
    "OOM",
    "NOPERM",
    "NOAUTH",
    "WRONGTYPE",
    "WEIRBOOKS",
    "WEIRARGS",
    "NOREPLICAS",
    "MISCONF",
    "READONLY",
    "BUSY",
    "other",
];

/// The place of WEIRBOOKS: also of books that cannot be read.
pub(super) const OUR_BOOKS: usize = 4;

/// The place of an error's word in [`ERROR_WORDS`]: of what a script met, where Redis wraps it.
pub(super) fn word_of(error: &ErrorReply<'_>) -> usize {
    let place = |code: &[u8]| ERROR_WORDS.iter().position(|word| word.as_bytes() == code);
    let found = place(error.code).or_else(|| place(error.cause()));
    found.unwrap_or(ERROR_WORDS.len() - 1)
}

pub(super) fn meaning(error: &ErrorReply<'_>) -> Meaning {
    match error.code {
        b"NOSCRIPT" => Meaning::NoScript,
        b"MOVED" | b"ASK" => Meaning::Elsewhere,
        word if is_not_here(word) => Meaning::NotHere,
        // CROSSSLOT is found before execution: keys of one ask are of one slot, so a proxy in between has another mind.
        b"BUSY" | b"OOM" | b"NOREPLICAS" | b"MISCONF" | b"CLUSTERDOWN" | b"TRYAGAIN"
        | b"CROSSSLOT" | b"NOAUTH" => Meaning::NotNow,
        _ => Meaning::Open,
    }
}

/// True when an error of a script that ran shows that the node takes no writes, in the words that Redis before 7.0 wraps
/// it in: how far the script came is open, but nothing more goes there (field bug R24).
pub(super) fn hides_a_demotion(error: &ErrorReply<'_>) -> bool {
    is_not_here(error.cause())
}

fn is_not_here(word: &[u8]) -> bool {
    matches!(word, b"READONLY" | b"LOADING" | b"MASTERDOWN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_at_their_places() {
        let word = |code: &'static [u8], text: &'static [u8]| {
            ERROR_WORDS[word_of(&ErrorReply { code, text })]
        };
        assert_eq!(ERROR_WORDS[OUR_BOOKS], "WEIRBOOKS");
        assert_eq!(word(b"OOM", b"OOM command not allowed"), "OOM");
        assert_eq!(word(b"SOMETHING", b"SOMETHING else"), "other");
    }
}
