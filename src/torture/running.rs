//! A server under torture: a child that serves, whoever hears its file operations, and its ends.

use super::watch::{Live, Recording};
use super::{Children, Result, TortureError};
use crate::demo::server::Server;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_io::signals::{self, Signal};

/// A server that serves, and whoever hears its file operations.
pub struct Running {
    /// The process.
    pub server: Server,
    /// What its watcher sees and says.
    pub live: Arc<Live>,
    /// Ends with the server, and has its record then.
    pub watcher: std::thread::JoinHandle<std::io::Result<Recording>>,
    /// Where its files lie.
    pub data: PathBuf,
    /// Where it is listed while it lives.
    pub children: Arc<Children>,
}

/// What became of a start.
pub enum Started {
    /// It serves.
    Serving(Running),
    /// It died as planned.
    Died(Recording),
    /// It said no, in its own words.
    Refused(String),
}

impl Running {
    /// SIGKILL.
    ///
    /// # Errors
    /// Whatever the system says; not expected.
    pub fn kill(&self) -> Result<()> {
        signals::send(self.server.pid(), Signal::Kill).map_err(TortureError::of)
    }

    /// Waits for its end; the record of its life.
    ///
    /// # Errors
    /// The kernel stopped telling what it did.
    pub fn end(mut self) -> Result<Recording> {
        self.children.gone(self.server.pid());
        self.server.wait().map_err(TortureError::of)?;
        self.recording()
    }

    /// SIGTERM; what was wrong with its end.
    ///
    /// # Errors
    /// As `end`.
    pub fn stop(self) -> Result<(Recording, Option<String>)> {
        let Self {
            server,
            watcher,
            children,
            data,
            ..
        } = self;
        let pid = server.pid();
        let problem = server.stop();
        children.gone(pid);
        Ok((join(watcher, &data)?, problem))
    }

    fn recording(self) -> Result<Recording> {
        join(self.watcher, &self.data)
    }
}

fn join(
    watcher: std::thread::JoinHandle<std::io::Result<Recording>>,
    data: &Path,
) -> Result<Recording> {
    let lost = || TortureError(format!("the watch over {} panicked", data.display()));
    let recording = watcher.join().map_err(|_| lost())?;
    recording.map_err(|error| TortureError::at(data, &error))
}
