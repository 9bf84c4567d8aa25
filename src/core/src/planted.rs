//! Faults put in on purpose, to prove that the checkers find them (design §12.16).
//!
//! Only in builds with `--cfg weir_planted`; chosen at run time; never in a build without debug assertions.

#[cfg(not(debug_assertions))]
compile_error!(
    "weir_planted is for test builds: build with debug assertions, or drop --cfg weir_planted"
);

/// Which fault is live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// The owner answers when a batch is sealed, before its commit.
    AnswerBeforeCommit,
    /// A second release of the same reservation gives its units back again.
    ReleaseTwice,
}
