//! Threads of the parts: each runs its handler on its driver, and says when it ends.
//!
//! Called by [`super::start`]. Threads of one [`Stage`] end together.

use super::ServeError;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use weir_core::mail::Addr;
use weir_core::port::Handler;
use weir_io::choice::{self, DriverKind};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::error::DriverError;
use weir_io::mailbox::{MailboxConfig, run_mailbox};
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;

/// What a thread says when it ends.
pub(super) type Ended = (Addr, Result<(), DriverError>);

/// Something that the waiting main thread hears of.
pub(super) enum News {
    Ended(Ended),
    Signal,
}

/// Threads that end together.
pub(super) struct Stage {
    pub drain: Arc<DrainSwitch>,
    pub threads: Vec<JoinHandle<()>>,
}

/// What every part's thread needs.
pub(super) struct Hall {
    pub post: Arc<PostOffice>,
    pub news: Sender<News>,
    /// Of the parts without a core of their own, which share one.
    pub stats: Arc<DriverStats>,
    /// Of each shard its own, so that no shard writes to another's cache lines.
    pub shard_stats: Vec<Arc<DriverStats>>,
    /// What carries the parts with sockets.
    pub kind: DriverKind,
}

impl Hall {
    pub fn stage(&self) -> Stage {
        Stage {
            drain: Arc::new(DrainSwitch::new(Arc::clone(&self.post))),
            threads: Vec::new(),
        }
    }

    /// Runs a part that has only mail.
    pub fn mailbox(
        &self,
        stage: &mut Stage,
        addr: Addr,
        handler: Box<dyn Handler>,
    ) -> Result<(), ServeError> {
        let (post, drain, stats) = (
            Arc::clone(&self.post),
            Arc::clone(&stage.drain),
            Arc::clone(&self.stats),
        );
        self.spawn(stage, addr, move || {
            run_mailbox(
                MailboxConfig { addr, cpu: None },
                handler,
                post,
                drain,
                stats,
            )
        })
    }

    /// Runs a part that has sockets.
    pub fn sockets(
        &self,
        stage: &mut Stage,
        config: DriverConfig,
        handler: Box<dyn Handler>,
    ) -> Result<(), ServeError> {
        let stats = match config.addr {
            Addr::Shard(shard) => &self.shard_stats[usize::from(shard.0)],
            _ => &self.stats,
        };
        let (post, drain, stats) = (
            Arc::clone(&self.post),
            Arc::clone(&stage.drain),
            Arc::clone(stats),
        );
        let kind = self.kind;
        self.spawn(stage, config.addr, move || {
            choice::run(kind, config, handler, post, drain, stats)
        })
    }

    fn spawn(
        &self,
        stage: &mut Stage,
        addr: Addr,
        run: impl FnOnce() -> Result<Box<dyn Handler>, DriverError> + Send + 'static,
    ) -> Result<(), ServeError> {
        let news = self.news.clone();
        let body = move || {
            let result = run().map(drop);
            // The main thread hears it, unless it has gone: then nobody needs to.
            let _ = news.send(News::Ended((addr, result)));
        };
        let thread = std::thread::Builder::new()
            .name(name_of(addr))
            .spawn(body)
            .map_err(ServeError::Thread)?;
        stage.threads.push(thread);
        Ok(())
    }
}

pub(super) fn name_of(addr: Addr) -> String {
    match addr {
        Addr::Shard(shard) => format!("weir-shard-{}", shard.0),
        other => format!("weir-{}", format!("{other:?}").to_lowercase()),
    }
}
