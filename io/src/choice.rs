//! Which driver carries a part with sockets: chosen by value, at start.

use crate::drain::DrainSwitch;
use crate::driver::DriverConfig;
use crate::error::DriverError;
use crate::post::PostOffice;
use crate::stats::DriverStats;
#[cfg(feature = "glommio")]
use crate::tasks::on_glommio;
use crate::tasks::on_monoio::{self, On};
use crate::uring;
use std::sync::Arc;
use weir_core::port::Handler;

/// The drivers that can carry a part with sockets. Each runs the same handlers with the same promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// Our own loop on io_uring: the fastest.
    Uring,
    /// monoio's epoll driver: runs on every Linux, whatever a seccomp filter says about io_uring.
    Epoll,
    /// monoio's io_uring driver.
    Monoio,
    /// glommio, on io_uring; only in a build with the cargo feature `glommio`.
    Glommio,
}

/// Whether this build has glommio.
pub const HAS_GLOMMIO: bool = cfg!(feature = "glommio");

impl DriverKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Uring, Self::Epoll, Self::Monoio, Self::Glommio];

    /// Its name on the command line, in the configuration and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
            Self::Monoio => "monoio",
            Self::Glommio => "glommio",
        }
    }

    /// Bytes that one driver of this kind and configuration needs.
    pub fn memory_needed(self, config: &DriverConfig) -> usize {
        match self {
            Self::Uring => uring::memory_needed(config),
            Self::Epoll | Self::Monoio => on_monoio::memory_needed_by(config),
            #[cfg(feature = "glommio")]
            Self::Glommio => on_glommio::memory_needed_by(config),
            #[cfg(not(feature = "glommio"))]
            Self::Glommio => 0,
        }
    }

    /// Tries whether it can run here, on a thread of its own: sets it up and takes it down.
    ///
    /// # Errors
    /// [`DriverError`]: what is missing or forbidden.
    pub fn try_out(self) -> Result<(), DriverError> {
        let tried = std::thread::spawn(move || match self {
            Self::Uring => uring::try_out(),
            Self::Epoll => on_monoio::try_out(On::Epoll),
            Self::Monoio => on_monoio::try_out(On::Uring),
            #[cfg(feature = "glommio")]
            Self::Glommio => on_glommio::try_out(),
            #[cfg(not(feature = "glommio"))]
            Self::Glommio => Err(DriverError::NotBuilt("glommio")),
        });
        tried
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Runs `handler` on the calling thread, carried by `kind`, until it stops; gives it back.
///
/// # Errors
/// [`DriverError`]: a value out of range, no box, no such core, the driver is missing or forbidden here.
pub fn run(
    kind: DriverKind,
    config: DriverConfig,
    handler: Box<dyn Handler>,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
) -> Result<Box<dyn Handler>, DriverError> {
    match kind {
        DriverKind::Uring => uring::run(config, handler, post, drain, stats),
        DriverKind::Epoll => on_monoio::run(On::Epoll, config, handler, post, drain, stats),
        DriverKind::Monoio => on_monoio::run(On::Uring, config, handler, post, drain, stats),
        #[cfg(feature = "glommio")]
        DriverKind::Glommio => on_glommio::run(config, handler, post, drain, stats),
        #[cfg(not(feature = "glommio"))]
        DriverKind::Glommio => Err(DriverError::NotBuilt("glommio")),
    }
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// uring, and epoll where the kernel refuses it.
    Auto,
    /// This one or none.
    Only(DriverKind),
}

/// Which driver runs, and why it is not the best one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The driver; it was tried out.
    pub kind: DriverKind,
    /// Whether it takes clients as direct descriptors; only where that was asked for.
    pub direct: bool,
    /// For the operator, one line; `None`: it is what was asked for.
    pub note: Option<String>,
}

impl Wanted {
    /// All words for it, on the command line and in the configuration.
    pub const NAMES: [&str; 5] = ["auto", "uring", "epoll", "monoio", "glommio"];

    /// What `name` asks for; `None` when it is not one of [`Self::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        if name == "auto" {
            return Some(Self::Auto);
        }
        let mut all = DriverKind::ALL.into_iter();
        all.find(|kind| kind.name() == name).map(Self::Only)
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Only(kind) => kind.name(),
        }
    }

    /// Tries out what is asked for, before any part runs. `direct`: with direct descriptors, where they can be had.
    ///
    /// # Errors
    /// The one that was asked for, and why it cannot run here.
    pub fn choose(self, direct: bool) -> Result<Chosen, (DriverKind, DriverError)> {
        let mut chosen = self.choose_kind()?;
        if direct {
            match (chosen.kind, uring::try_out_direct()) {
                (DriverKind::Uring, Ok(())) => chosen.direct = true,
                (DriverKind::Uring, Err(refusal)) => {
                    chosen.note = Some(format!("runs without direct descriptors: {refusal}"));
                }
                _ => {} // the note says why it is not uring, or nobody asked for uring
            }
        }
        Ok(chosen)
    }

    fn choose_kind(self) -> Result<Chosen, (DriverKind, DriverError)> {
        let kind = match self {
            Self::Auto => DriverKind::Uring,
            Self::Only(kind) => kind,
        };
        let epoll = DriverKind::Epoll;
        match kind.try_out() {
            Ok(()) => Ok(Chosen {
                kind,
                direct: false,
                note: None,
            }),
            Err(refusal) if self == Self::Auto => match epoll.try_out() {
                Ok(()) => Ok(Chosen {
                    kind: epoll,
                    direct: false,
                    note: Some(format!("runs on epoll, not on uring: {refusal}")),
                }),
                Err(error) => Err((epoll, error)),
            },
            Err(error) => Err((kind, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_descriptors_are_had_where_they_are_asked_for() {
        for direct in [false, true] {
            let chosen = Wanted::Only(DriverKind::Uring).choose(direct).unwrap();
            let has_them = uring::try_out_direct().is_ok(); // since Linux 6.13
            assert_eq!(chosen.direct, direct && has_them);
            assert_eq!(chosen.note.is_some(), direct && !has_them);
        }
    }

    #[test]
    fn every_driver_has_its_word_and_one_that_was_not_built_names_its_feature() {
        for name in Wanted::NAMES {
            assert_eq!(Wanted::named(name).map(Wanted::name), Some(name));
        }
        assert_eq!(Wanted::named("kqueue"), None);
        assert_eq!(
            Wanted::Only(DriverKind::Epoll).choose(true).unwrap(),
            Chosen {
                kind: DriverKind::Epoll,
                direct: false,
                note: None
            }
        );
        if !HAS_GLOMMIO {
            let (kind, error) = Wanted::Only(DriverKind::Glommio).choose(false).unwrap_err();
            assert_eq!(kind, DriverKind::Glommio);
            assert!(error.to_string().contains("--features glommio"));
        }
    }
}
