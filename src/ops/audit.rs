//! The audit log: one JSON line before and one after each step of an operator, on disk before anything goes on (K3).
//!
//! Append-only, mode 0600. No step without its line: when a write or sync fails nothing is retried (field bug R55: a
//! second fsync may lie) and no step is taken until a restart. Lines hold no secret: the token has no name here.

use super::page::mode_text;
use super::route::Action;
use serde::Serialize;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_core::ask::{Books, Mode};
use weir_core::time::WallMs;
use weir_proto::answer::rfc3339_ms;
use weir_proto::ids::{RequestId, SkuKey};

/// Why an audit log cannot be used.
#[derive(Debug)]
pub enum AuditError {
    /// It cannot be opened, read or synced.
    Io(PathBuf, io::Error),
    /// Others than its owner may read or write it; its mode.
    Mode(PathBuf, u32),
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(
                f,
                "audit log {}: {error}; the directory must exist and be writable",
                path.display()
            ),
            Self::Mode(path, mode) => write!(
                f,
                "audit log {} has mode {mode:04o}; only its owner may read and write it: chmod 600 it",
                path.display()
            ),
        }
    }
}

impl std::error::Error for AuditError {}

/// The open file.
#[derive(Debug)]
pub struct AuditLog {
    file: File,
    failed: bool,
}

/// A step for the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub action: Action,
    pub sku: SkuKey,
    pub request_id: RequestId,
    pub mode: Option<Mode>,
    pub units: Option<u64>,
    pub peer: SocketAddr,
    pub actor: Option<weir_proto::text::Text<{ super::limits::ACTOR_BYTES_MAX }>>,
}

/// An act at the gates for the log: no raw user id.
#[derive(Clone, Debug)]
pub(super) struct Act {
    pub action: &'static str,
    pub subject: Option<String>,
    pub ttl_s: Option<u64>,
    pub peer: SocketAddr,
    pub actor: Option<weir_proto::text::Text<{ super::limits::ACTOR_BYTES_MAX }>>,
    pub result: &'static str,
}

#[derive(Serialize)]
struct ActLine<'a> {
    time: &'a str,
    event: &'static str,
    actor: Option<&'a str>,
    peer: SocketAddr,
    action: &'static str,
    /// Kind and value; none: everybody.
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_s: Option<u64>,
    result: &'static str,
}

#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    event: &'static str,
    actor: Option<&'a str>,
    peer: SocketAddr,
    action: &'static str,
    activity_id: u64,
    sku_id: u64,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    units: Option<u64>,
    result: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    books: Option<BooksLine>,
}

/// Books as JSON.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct BooksLine {
    pub total: u64,
    pub free: u64,
    pub held: u64,
    pub sold: u64,
    pub quarantined: u64,
}

impl From<Books> for BooksLine {
    fn from(books: Books) -> Self {
        let Books {
            total,
            free,
            held,
            sold,
            quarantined,
        } = books;
        Self {
            total,
            free,
            held,
            sold,
            quarantined,
        }
    }
}

impl AuditLog {
    /// Opens or makes the log at `path`.
    ///
    /// # Errors
    /// `Io`; `Mode` when others may read or write it.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let io_error = |error| AuditError::Io(path.to_owned(), error);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(path).map_err(io_error)?;
        let mode = file.metadata().map_err(io_error)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(AuditError::Mode(path.to_owned(), mode));
        }
        end_torn_line(&mut file).map_err(io_error)?;
        if let Some(directory) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            // A new file's name is durable only with its directory.
            File::open(directory)
                .and_then(|directory| directory.sync_all())
                .map_err(io_error)?;
        }
        Ok(Self::over(file))
    }

    /// A log over a file that is open already.
    pub fn over(file: File) -> Self {
        Self {
            file,
            failed: false,
        }
    }

    /// Writes and syncs one line. False: it may not be on disk, and nothing will be any more.
    pub(super) fn write(
        &mut self,
        at: WallMs,
        step: &Step,
        result: &str,
        books: Option<Books>,
    ) -> bool {
        let time = rfc3339_ms(at.0);
        self.append(&Line {
            time: std::str::from_utf8(&time).expect("digits and letters"),
            event: "weir_ops",
            actor: step.actor.as_ref().map(|actor| actor.as_str()),
            peer: step.peer,
            action: step.action.as_str(),
            activity_id: step.sku.activity.0,
            sku_id: step.sku.sku.0,
            request_id: step.request_id.as_str(),
            mode: step.mode.map(mode_text),
            units: step.units,
            result,
            books: books.map(BooksLine::from),
        })
    }

    /// The same for an act at the gates.
    pub(super) fn write_act(&mut self, at: WallMs, act: &Act) -> bool {
        let time = rfc3339_ms(at.0);
        self.append(&ActLine {
            time: std::str::from_utf8(&time).expect("digits and letters"),
            event: "weir_ops",
            actor: act.actor.as_ref().map(|actor| actor.as_str()),
            peer: act.peer,
            action: act.action,
            subject: act.subject.as_deref(),
            ttl_s: act.ttl_s,
            result: act.result,
        })
    }

    fn append(&mut self, line: &impl Serialize) -> bool {
        if self.failed {
            return false;
        }
        let mut bytes = serde_json::to_vec(line).expect("our own lines have text keys only");
        bytes.push(b'\n');
        // One write per line: readers of the file see whole lines.
        let written = self
            .file
            .write_all(&bytes)
            .and_then(|()| self.file.sync_data());
        self.failed = written.is_err();
        !self.failed
    }
}

/// A crash may have cut the last line: the next one starts on a line of its own.
fn end_torn_line(file: &mut File) -> io::Result<()> {
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}
