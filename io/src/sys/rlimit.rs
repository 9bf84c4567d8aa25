//! Limits of the process: getrlimit(2), setrlimit(2).

use std::io;

/// Soft and hard value of `resource`; `u64::MAX` is "no limit".
///
/// # Errors
/// Whatever getrlimit says.
fn read(resource: libc::__rlimit_resource_t) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for writing.
    if unsafe { libc::getrlimit(resource, &mut limit) } == 0 {
        Ok((limit.rlim_cur, limit.rlim_max))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Soft and hard limit of open descriptors.
///
/// # Errors
/// Whatever getrlimit says.
pub fn open_files() -> io::Result<(u64, u64)> {
    read(libc::RLIMIT_NOFILE)
}

/// Soft and hard limit of locked memory, bytes.
///
/// # Errors
/// Whatever getrlimit says.
pub fn locked_bytes() -> io::Result<(u64, u64)> {
    read(libc::RLIMIT_MEMLOCK)
}

/// Sets the soft limit of open descriptors.
///
/// # Errors
/// `EPERM` or `EINVAL` above the hard limit.
pub fn set_open_files(soft: u64) -> io::Result<()> {
    let (_, hard) = open_files()?;
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: the kernel only reads `limit`.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
