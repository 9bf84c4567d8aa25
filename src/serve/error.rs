//! Why a server does not start, or ends: what, where, remedy.

use super::redis::RedisError;
use crate::deny::DenyError;
use crate::ops::{AuditError, TokenNeeded};
use crate::orders::schema::OpenError;
use crate::store::StoreError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use weir_core::ledger::RecoverError;
use weir_io::choice::DriverKind;
use weir_io::error::{DriverError, ListenError};

/// See the module.
#[derive(Debug)]
pub enum ServeError {
    /// The driver that was asked for cannot run here.
    Driver(DriverKind, DriverError),
    /// The ledger's store.
    Ledger(StoreError),
    /// The order store.
    Orders(OpenError),
    /// The audit log.
    Audit(AuditError),
    /// The deny-list's file.
    Deny(DenyError),
    /// The operator's listener.
    Ops(TokenNeeded),
    /// The ledger and the order store of this directory belong to different sales.
    Mixed(PathBuf),
    /// The order store that this ledger was used with is gone.
    OrdersGone(PathBuf),
    /// The ledger's journal cannot be replayed.
    Replay(PathBuf, RecoverError),
    /// Redis cannot hold the ledger as it is.
    Redis(RedisError),
    /// A socket; the key that names its address.
    Listen(&'static str, ListenError),
    /// The admission log's file.
    Log(PathBuf, io::Error),
    /// A part ended; without an error when it simply stopped.
    Part(String, Option<DriverError>),
    /// The parts run, but do not serve, and waiting does not help.
    NotReady(String),
    /// The parts run, but do not serve yet.
    NotYet(String),
    /// The limit of open files cannot be read.
    Limits(io::Error),
    /// No descriptor for a doorbell.
    Doorbell(io::Error),
    /// No thread.
    Thread(io::Error),
    /// The system's entropy.
    Entropy(io::Error),
    /// The list of cores.
    Cpus(io::Error),
}

impl ServeError {
    /// True when something that this server needs is away, which may pass.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::NotYet(_) => true,
            Self::Redis(error) => error.is_away(),
            _ => false,
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(kind, error) => write!(
                f,
                "driver {} cannot run here: {error}. With `--driver auto` weir runs on epoll where io_uring is refused",
                kind.name()
            ),
            Self::Ledger(error) => error.fmt(f),
            Self::Orders(error) => error.fmt(f),
            Self::Audit(error) => error.fmt(f),
            Self::Deny(error) => error.fmt(f),
            Self::Ops(error) => error.fmt(f),
            Self::Mixed(dir) => write!(
                f,
                "ledger.sqlite and orders.sqlite in {} belong to different sales. Put back the two that belong together (from a backup of one moment), or choose another directory",
                dir.display()
            ),
            Self::OrdersGone(path) => write!(
                f,
                "{} is missing or new, but its ledger.sqlite has been in use. Restore it from a backup (then run `weir reconcile`), or start a new sale in another directory",
                path.display()
            ),
            Self::Replay(path, error) => write!(
                f,
                "{} cannot be replayed: {error}. weir does not guess around it. Copy the whole directory first, then restore the ledger from a backup",
                path.display()
            ),
            Self::Redis(error) => error.fmt(f),
            Self::Listen(key, error) => write!(f, "{key}: {error}"),
            Self::Log(path, error) => write!(
                f,
                "admission log {}: {error}; set [log] path to a file that can be written, \"-\" or \"off\"",
                path.display()
            ),
            Self::Part(name, Some(error)) => write!(f, "{name} cannot run: {error}"),
            Self::Part(name, None) => write!(
                f,
                "{name} ended by itself; this is a bug of weir: please report it"
            ),
            Self::NotReady(missing) | Self::NotYet(missing) => {
                write!(f, "the server does not get ready: {missing}")
            }
            Self::Limits(error) => write!(f, "the limit of open files cannot be read: {error}"),
            Self::Doorbell(error) => write!(
                f,
                "no descriptor for a mailbox: {error}; raise the limit of open files (ulimit -n)"
            ),
            Self::Thread(error) => write!(
                f,
                "no thread could be started: {error}; raise the limit of processes (ulimit -u)"
            ),
            Self::Entropy(error) => write!(f, "the system gives no random bytes: {error}"),
            Self::Cpus(error) => write!(
                f,
                "the cores that this process may use cannot be read: {error}"
            ),
        }
    }
}

impl std::error::Error for ServeError {}

macro_rules! from {
    ($($error:ty => $variant:ident,)*) => {$(
        impl From<$error> for ServeError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}

from! {
    StoreError => Ledger,
    OpenError => Orders,
    AuditError => Audit,
    DenyError => Deny,
    TokenNeeded => Ops,
    RedisError => Redis,
}
