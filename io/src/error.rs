//! Why a driver could not start or had to end: messages for an operator (what, where, remedy).

use crate::post::TakeError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use weir_core::mail::Addr;

/// Why a driver ended without its handler.
#[derive(Debug)]
pub enum DriverError {
    /// io_uring, or a feature of it, is missing or not allowed here.
    Ring {
        /// What was asked for, and from which kernel on it exists.
        feature: &'static str,
        /// The kernel that runs here.
        kernel: String,
        /// What it said.
        error: io::Error,
    },
    /// This build has no such driver; the cargo feature that brings it has the same name.
    NotBuilt(&'static str),
    /// An async runtime could not be set up.
    Runtime {
        /// Its name.
        name: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// A value of the configuration is outside its range.
    Config {
        /// Its name in `DriverConfig`.
        key: &'static str,
        /// What it was.
        value: u64,
        /// What it may be.
        allowed: &'static str,
    },
    /// A ring's table of direct descriptors may not be so large.
    Table {
        /// Places: one per connection, and some for the accepts under way.
        places: u32,
    },
    /// The post office has no box for this part.
    NoMailbox(Addr),
    /// Another driver already empties this part's box.
    MailboxTaken(Addr),
    /// The thread could not be given its core.
    Pin {
        /// The core asked for.
        cpu: usize,
        /// What the system said.
        error: io::Error,
    },
    /// The kernel refused to go on; not expected.
    Enter(io::Error),
}

impl DriverError {
    pub(crate) fn ring(feature: &'static str, error: io::Error) -> Self {
        Self::Ring {
            feature,
            kernel: crate::sys::kernel::release(),
            error,
        }
    }

    pub(crate) fn runtime(name: &'static str, error: io::Error) -> Self {
        Self::Runtime { name, error }
    }

    pub(crate) fn from_take(addr: Addr, error: TakeError) -> Self {
        match error {
            TakeError::Unknown => Self::NoMailbox(addr),
            TakeError::Taken => Self::MailboxTaken(addr),
        }
    }
}

/// The remedy when none is left.
const NO_DESCRIPTOR: &str = "No descriptor is free: raise the limit of open files (`ulimit -Hn`, LimitNOFILE= in systemd) or lower \
                             server.conns_max";

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring {
                feature,
                kernel,
                error,
            } => {
                write!(
                    f,
                    "io_uring: {feature}: {error} (this kernel is {kernel}). "
                )?;
                match error.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => f.write_str(
                        "io_uring is forbidden here: allow it in the container's seccomp profile and set \
                         kernel.io_uring_disabled=0 (sysctl)",
                    ),
                    Some(libc::ENOMEM) => f.write_str(
                        "Not enough memory for the ring: raise RLIMIT_MEMLOCK (ulimit -l) or lower ring_entries",
                    ),
                    Some(libc::EMFILE | libc::ENFILE) => f.write_str(NO_DESCRIPTOR),
                    _ => f.write_str("weir needs io_uring of Linux 6.1 or later: use a newer kernel"),
                }
            }
            Self::NotBuilt(name) => write!(
                f,
                "this weir was built without {name}: build it with `cargo build --release --features {name}`, or choose another driver"
            ),
            Self::Runtime { name, error } => {
                write!(f, "{name} cannot be set up: {error}. ")?;
                f.write_str(match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => NO_DESCRIPTOR,
                    Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
                        "The kernel or a seccomp filter forbids it: allow what deploy/seccomp.json allows, or choose another driver"
                    }
                    _ => "Choose another driver: \"auto\" takes one that runs here",
                })
            }
            Self::Config {
                key,
                value,
                allowed,
            } => write!(f, "{key} = {value} is not possible; allowed: {allowed}"),
            Self::Table { places } => write!(
                f,
                "a ring's table of {places} direct descriptors is larger than the kernel allows: raise the limit of open files \
                 (`ulimit -Hn`, LimitNOFILE= in systemd), which bounds it, lower server.conns_max, or use more shards"
            ),
            Self::NoMailbox(addr) => write!(f, "{addr:?} has no box in the post office"),
            Self::MailboxTaken(addr) => {
                write!(
                    f,
                    "the box of {addr:?} is already emptied by another thread"
                )
            }
            Self::Pin { cpu, error } => write!(
                f,
                "cannot run on core {cpu}: {error}. Allowed cores are listed by `taskset -p $$`; choose fewer \
                 shards or other cores"
            ),
            Self::Enter(error) => write!(f, "io_uring_enter failed: {error}"),
        }
    }
}

impl std::error::Error for DriverError {}

/// Why an address could not be listened on.
#[derive(Debug)]
pub struct ListenError {
    /// The address.
    pub addr: SocketAddr,
    /// What the system said.
    pub error: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: ", self.addr)?;
        match self.error.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "another program listens there. Stop it (`ss -ltnp 'sport = :{}'` names it) or choose another port",
                self.addr.port()
            ),
            io::ErrorKind::PermissionDenied => f.write_str(
                "not permitted. Ports below 1024 need CAP_NET_BIND_SERVICE; choose a port from 1024 up",
            ),
            io::ErrorKind::AddrNotAvailable => f.write_str(
                "this machine has no such address. `ip addr` lists those that it has; 0.0.0.0 means all",
            ),
            _ => write!(f, "{}", self.error),
        }
    }
}

impl std::error::Error for ListenError {}

impl From<io::Error> for DriverError {
    fn from(error: io::Error) -> Self {
        Self::Enter(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_ring_names_the_cause_and_the_remedy() {
        let error = |errno| {
            DriverError::Ring {
                feature: "SINGLE_ISSUER and DEFER_TASKRUN (Linux 6.1)",
                kernel: "5.10.0".to_owned(),
                error: io::Error::from_raw_os_error(errno),
            }
            .to_string()
        };
        let forbidden = error(libc::EPERM);
        assert!(forbidden.contains("seccomp") && forbidden.contains("kernel.io_uring_disabled=0"));
        let old = error(libc::EINVAL);
        assert!(
            old.contains("Linux 6.1") && old.contains("5.10.0") && old.contains("newer kernel")
        );
        assert!(error(libc::ENOMEM).contains("ulimit -l"));
        let full = error(libc::EMFILE);
        assert!(
            full.contains("LimitNOFILE") && !full.contains("newer kernel"),
            "{full}"
        );
    }

    #[test]
    fn a_runtime_that_cannot_be_set_up_names_itself_and_the_remedy() {
        for (errno, remedy) in [
            (libc::EMFILE, "LimitNOFILE"),
            (libc::EPERM, "deploy/seccomp.json"),
            (libc::ENOMEM, "another driver"),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            let text = DriverError::runtime("monoio on epoll", error).to_string();
            assert!(
                text.starts_with("monoio on epoll ") && text.contains(remedy),
                "{text}"
            );
        }
    }
}
