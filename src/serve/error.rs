//! Why a server does not start, or ends: what, where, remedy.

use crate::ops::{AuditError, TokenNeeded};
use crate::orders::schema::OpenError;
use crate::store::StoreError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use weir_io::error::{DriverError, ListenError};

/// See the module.
#[derive(Debug)]
pub enum ServeError {
    /// The ledger's store.
    Ledger(StoreError),
    /// The order store.
    Orders(OpenError),
    /// The audit log.
    Audit(AuditError),
    /// The operator's listener.
    Ops(TokenNeeded),
    /// A socket.
    Listen(ListenError),
    /// The admission log's file.
    Log(PathBuf, io::Error),
    /// A part ended; without an error when it simply stopped.
    Part(String, Option<DriverError>),
    /// The parts run, but do not serve.
    NotReady(String),
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

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ledger(error) => error.fmt(f),
            Self::Orders(error) => error.fmt(f),
            Self::Audit(error) => error.fmt(f),
            Self::Ops(error) => error.fmt(f),
            Self::Listen(error) => error.fmt(f),
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
            Self::NotReady(missing) => write!(f, "not ready within a minute: {missing}"),
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
    TokenNeeded => Ops,
    ListenError => Listen,
}
