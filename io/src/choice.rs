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
