//! io_uring_enter(2) by the index of a registered ring: saves a look-up of the descriptor per call (Linux 5.18).
//!
//! Ours because the io-uring crate remembers the index only in a value that borrows the ring.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// io_uring_register(2): IORING_REGISTER_RING_FDS.
const REGISTER_RING_FDS: libc::c_uint = 20;
/// io_uring_enter(2): IORING_ENTER_GETEVENTS, _EXT_ARG, _REGISTERED_RING.
const GETEVENTS: libc::c_uint = 1;
const EXT_ARG: libc::c_uint = 1 << 3;
const REGISTERED_RING: libc::c_uint = 1 << 4;

/// struct io_uring_rsrc_update of linux/io_uring.h.
#[repr(C)]
struct RsrcUpdate {
    offset: u32,
    resv: u32,
    data: u64,
}

/// struct io_uring_getevents_arg of linux/io_uring.h.
#[repr(C)]
struct GeteventsArg {
    sigmask: u64,
    sigmask_bytes: u32,
    min_wait_us: u32,
    timespec: u64,
}

/// struct __kernel_timespec.
#[repr(C)]
struct KernelTimespec {
    s: i64,
    ns: i64,
}

/// How a ring is named in [`enter`].
#[derive(Clone, Copy, Debug)]
pub enum RingName {
    /// By its index among this thread's registered rings.
    Registered(u32),
    /// By its descriptor.
    Fd(RawFd),
}

/// Registers `ring` with the calling thread, where the kernel can.
pub fn register(ring: RawFd) -> RingName {
    let mut update = RsrcUpdate {
        offset: u32::MAX, // any index
        resv: 0,
        data: u64::try_from(ring).unwrap_or_default(),
    };
    // SAFETY: one update, valid for reading and writing.
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            REGISTER_RING_FDS,
            &raw mut update,
            1,
        )
    };
    if done == 1 {
        RingName::Registered(update.offset)
    } else {
        RingName::Fd(ring)
    }
}

/// Submits `ready` entries, runs deferred work, and waits for `want` completions, at most for `limit`.
///
/// # Errors
/// Whatever io_uring_enter says; `ETIME` when `limit` passed.
pub fn enter(ring: RingName, ready: u32, want: u32, limit: Option<Duration>) -> io::Result<()> {
    let time = limit.map(|limit| KernelTimespec {
        s: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        ns: limit.subsec_nanos().into(),
    });
    let arg = GeteventsArg {
        sigmask: 0,
        sigmask_bytes: 0,
        min_wait_us: 0,
        timespec: time
            .as_ref()
            .map_or(0, |time| std::ptr::from_ref(time) as u64),
    };
    let (name, registered) = match ring {
        RingName::Registered(index) => (index, REGISTERED_RING),
        RingName::Fd(fd) => (fd.cast_unsigned(), 0),
    };
    let flags = GETEVENTS | EXT_ARG | registered;
    // SAFETY: `arg` and the time that it points at live until the call returns; no signal mask is given. What the
    // entries themselves point at is the ring's duty (uring/ring.rs).
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            name,
            ready,
            want,
            flags,
            &raw const arg,
            size_of::<GeteventsArg>(),
        )
    };
    if done >= 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
