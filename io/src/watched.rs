//! A child whose file operations its parent hears of, may refuse, and may be killed in: what `weir torture` does to
//! its servers.
//!
//! The kernel stops each such call of the child until the parent answers (`sys/notify.rs`); the child itself is any
//! program, unchanged, and nothing in it can be switched on to be watched. Not seen: mmap, io_uring, writev; SQLite
//! with `mmap_size = 0` uses none of them except for -shm files, which are rebuilt after a crash.

use crate::sys::notify::{self, Heard, RawCall};
use crate::sys::own_disk;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest path that the kernel takes (PATH_MAX).
const PATH_BYTES_MAX: usize = 4096;

/// A command whose child will be watched.
pub struct Watch(UnixStream);

impl Watch {
    /// Prepares `command`: its child stops at each file operation until it is answered, and dies with the thread that
    /// starts it.
    ///
    /// # Errors
    /// No descriptors left. A kernel that refuses says so when the command is started.
    pub fn of(command: &mut Command) -> io::Result<Self> {
        notify::ask_parent(command).map(Self)
    }

    /// Hears the child; after the command was started.
    ///
    /// # Errors
    /// The child did not get so far.
    pub fn listen(self) -> io::Result<Calls> {
        notify::receive_listener(&self.0).map(Calls)
    }
}

/// Gives the child of `command` a file system of `bytes` in memory at `dir`, which nobody else sees.
///
/// # Errors
/// A path with a zero byte. A system that refuses says so when the command is started.
pub fn own_disk(command: &mut Command, dir: &Path, bytes: u64) -> io::Result<()> {
    own_disk::give(command, dir, bytes)
}

/// The file operations of one child.
pub struct Calls(OwnedFd);

/// What was heard.
#[derive(Debug)]
pub enum Next {
    /// A call that waits for its answer.
    Call(Call),
    /// Nothing within the time.
    Quiet,
    /// The child has ended.
    Over,
}

/// What a call would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Writes bytes at an offset.
    Write {
        /// Which file.
        path: PathBuf,
        /// Where.
        at: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Syncs a file or a directory.
    Sync {
        /// Which.
        path: PathBuf,
    },
    /// Cuts or grows a file.
    CutTo {
        /// Which.
        path: PathBuf,
        /// To so many bytes.
        len: u64,
    },
    /// Opens a file, making it when it does not exist.
    Make {
        /// Which.
        path: PathBuf,
        /// It is emptied.
        empties: bool,
    },
    /// Removes a name.
    Unlink {
        /// Which.
        path: PathBuf,
    },
    /// Gives a file another name.
    Rename {
        /// The old one.
        from: PathBuf,
        /// The new one.
        to: PathBuf,
    },
    /// Something that has no file behind it.
    Other,
}

/// What a call is answered in the kernel's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// EIO.
    Io,
    /// ENOSPC.
    Full,
}

/// One call of the child, waiting.
#[derive(Debug)]
pub struct Call {
    raw: RawCall,
    /// What it would do.
    pub act: Act,
}

impl Calls {
    /// The next call, waited for up to `wait_ms`.
    ///
    /// # Errors
    /// Whatever the kernel says; not expected.
    pub fn next(&self, wait_ms: i32) -> io::Result<Next> {
        Ok(match notify::receive(&self.0, wait_ms)? {
            Heard::Quiet => Next::Quiet,
            Heard::Over => Next::Over,
            // What cannot be read belongs to a task that has died meanwhile.
            Heard::Call(raw) => Next::Call(Call {
                act: act_of(&raw).unwrap_or(Act::Other),
                raw,
            }),
        })
    }

    /// Lets the kernel carry it out.
    pub fn go_on(&self, call: &Call) {
        notify::go_on(&self.0, call.raw.id);
    }

    /// Refuses it.
    pub fn refuse(&self, call: &Call, error: DiskError) {
        let number = match error {
            DiskError::Io => libc::EIO,
            DiskError::Full => libc::ENOSPC,
        };
        notify::answer(&self.0, call.raw.id, Err(number));
    }

    /// Says that it is done: for a sync that the parent has carried out itself.
    pub fn done(&self, call: &Call) {
        notify::answer(&self.0, call.raw.id, Ok(0));
    }
}

impl Call {
    /// Carries out a sync in the child's place, so that its end is known before the child knows it.
    ///
    /// # Errors
    /// The file cannot be opened, or the disk's own error.
    pub fn sync(&self) -> io::Result<()> {
        File::open(descriptor(&self.raw))?.sync_all()
    }
}

/// The descriptor of the call's first argument, as a path.
fn descriptor(raw: &RawCall) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", raw.task, raw.args[0] as u32))
}

fn act_of(raw: &RawCall) -> io::Result<Act> {
    let args = raw.args;
    let path = || fs::read_link(descriptor(raw));
    let named = |at: u64| path_at(raw.task, at);
    Ok(match raw.number {
        libc::SYS_write => Act::Write {
            path: path()?,
            at: position(raw)?,
            bytes: memory(raw.task, args[1], args[2] as usize)?,
        },
        libc::SYS_pwrite64 => Act::Write {
            path: path()?,
            at: args[3],
            bytes: memory(raw.task, args[1], args[2] as usize)?,
        },
        libc::SYS_fsync | libc::SYS_fdatasync => Act::Sync { path: path()? },
        libc::SYS_ftruncate => Act::CutTo {
            path: path()?,
            len: args[1],
        },
        libc::SYS_openat => Act::Make {
            path: named(args[1])?,
            empties: args[2] as i32 & libc::O_TRUNC != 0,
        },
        libc::SYS_unlinkat => Act::Unlink {
            path: named(args[1])?,
        },
        libc::SYS_renameat | libc::SYS_renameat2 => Act::Rename {
            from: named(args[1])?,
            to: named(args[3])?,
        },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => Act::Unlink {
            path: named(args[0])?,
        },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => Act::Rename {
            from: named(args[0])?,
            to: named(args[1])?,
        },
        _ => Act::Other,
    })
}

/// `count` bytes of the task's memory. The count was given to the kernel for bytes that exist, and a write of ours is
/// at most a batch; more than that is read in part and written by the kernel alone.
fn memory(task: u32, at: u64, count: usize) -> io::Result<Vec<u8>> {
    const BYTES_MAX: usize = 64 * 1024 * 1024;
    let mut bytes = vec![0; count.min(BYTES_MAX)];
    File::open(format!("/proc/{task}/mem"))?.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// The path at `at` in the task's memory; a relative one is taken from its working directory.
fn path_at(task: u32, at: u64) -> io::Result<PathBuf> {
    let mut bytes = vec![0; PATH_BYTES_MAX];
    let file = File::open(format!("/proc/{task}/mem"))?;
    // The string may end right before memory that cannot be read.
    let mut count = 0;
    while count < bytes.len() && !bytes[..count].contains(&0) {
        let page_end = PATH_BYTES_MAX - (at as usize + count) % PATH_BYTES_MAX;
        let end = bytes.len().min(count + page_end);
        file.read_exact_at(&mut bytes[count..end], at + count as u64)?;
        count = end;
    }
    let length = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(length.ok_or(io::ErrorKind::InvalidInput)?);
    let path = PathBuf::from(OsString::from_vec(bytes));
    if path.is_absolute() {
        return Ok(path);
    }
    Ok(fs::read_link(format!("/proc/{task}/cwd"))?.join(path))
}

/// Where the descriptor's next write goes: its position, or its end when it appends.
fn position(raw: &RawCall) -> io::Result<u64> {
    let info = fs::read_to_string(format!("/proc/{}/fdinfo/{}", raw.task, raw.args[0] as u32))?;
    let word = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim).unwrap_or_default().to_owned()
    };
    let flags = i32::from_str_radix(&word("flags:"), 8).unwrap_or(0);
    if flags & libc::O_APPEND != 0 {
        return Ok(fs::metadata(descriptor(raw))?.len());
    }
    word("pos:")
        .parse()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}
