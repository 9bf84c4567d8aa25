//! Setting one io_uring up, closed before it is opened: it can do what this driver asks for, and nothing else.
//!
//! Called by `ring` once per ring. The ring starts disabled; its index, receive buffers and the list of permitted operations
//! are registered, then it is enabled. From there on the kernel refuses every other operation, flag and registration with
//! EACCES (io_uring_register(2), IORING_REGISTER_RESTRICTIONS), so that a fault of ours that lets a client choose an
//! entry's bytes cannot open a file or write one. No kernel thread polls the ring (SQPOLL).

use super::buffers::Buffers;
use super::sockets;
use super::tag::{DIRECT_KINDS, KINDS, Kind};
use crate::driver::DriverConfig;
use crate::error::DriverError;
use crate::limits::CQ_PER_SQ;
use crate::sys;
use crate::sys::enter::RingName;
use io_uring::register::Restriction;
use io_uring::types::Fixed;
use io_uring::{IoUring, opcode, squeue};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The one group of provided buffers.
pub const GROUP: u16 = 0;

/// io_uring_register(2): IORING_REGISTER_ENABLE_RINGS, the one registration that comes after the restrictions. Done
/// twice it is refused (EBADFD), so permitting it permits nothing.
const REGISTER_ENABLE_RINGS: u8 = 12;

/// The kinds of operation that a ring is for.
fn kinds(direct: bool) -> &'static [Kind] {
    let last = if direct { 0 } else { DIRECT_KINDS };
    &KINDS[..KINDS.len() - last]
}

/// Flags of entries: a connect is linked to its deadline, a receive takes a provided buffer.
const FLAGS: squeue::Flags = squeue::Flags::IO_LINK.union(squeue::Flags::BUFFER_SELECT);

/// The operation behind each kind of completion: with it the list of permitted ones is neither short nor long.
fn operation(kind: Kind) -> u8 {
    match kind {
        Kind::Accept => opcode::Accept::CODE,
        Kind::AcceptStop | Kind::RecvStop | Kind::Cancel => opcode::AsyncCancel::CODE,
        Kind::Recv => opcode::RecvMulti::CODE,
        Kind::Send => opcode::Send::CODE,
        Kind::Connect => opcode::Connect::CODE,
        Kind::ConnectDeadline => opcode::LinkTimeout::CODE,
        Kind::Bell => opcode::Read::CODE,
        Kind::Close => opcode::Close::CODE,
        Kind::Shutdown => opcode::Shutdown::CODE,
    }
}

/// A ring that is ready.
pub struct Ready {
    /// The ring.
    pub uring: IoUring,
    /// How the calling thread names it.
    pub name: RingName,
    /// False: the kernel has no restrictions, and the ring does whatever it is asked to.
    pub restricted: bool,
}

/// Sets a ring up for the calling thread, with `buffers` for it to receive into; they must outlive it.
///
/// # Errors
/// [`DriverError::Ring`] names the missing feature.
pub fn set_up(config: &DriverConfig, buffers: &Buffers) -> Result<Ready, DriverError> {
    let missing = |feature, error| DriverError::Ring {
        feature,
        kernel: sys::kernel::release(),
        error,
    };
    let uring = build(config).map_err(|(feature, error)| missing(feature, error))?;
    if !uring.params().is_feature_nodrop() || !uring.params().is_feature_ext_arg() {
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        return Err(missing(
            "completions that are never dropped, timed waits (Linux 5.11)",
            error,
        ));
    }
    // SAFETY: the entries are page-aligned, `count` long, and outlive the ring: that is the contract above.
    unsafe {
        uring.submitter().register_buf_ring_with_flags(
            buffers.entries_addr(),
            buffers.count(),
            GROUP,
            0,
        )
    }
    .map_err(|error| missing("provided-buffer rings (Linux 5.19)", error))?;
    if config.direct {
        register_table(&uring, config)?;
    }
    let name = sys::enter::register(uring.as_raw_fd()); // before the restrictions, which refuse it
    let restricted = restrict(&uring, config.direct)
        .map_err(|error| missing("IORING_REGISTER_RESTRICTIONS (Linux 5.10)", error))?;
    uring
        .submitter()
        .register_enable_rings()
        .map_err(|error| missing("IORING_REGISTER_ENABLE_RINGS (Linux 5.10)", error))?;
    Ok(Ready {
        uring,
        name,
        restricted,
    })
}

fn build(config: &DriverConfig) -> Result<IoUring, (&'static str, io::Error)> {
    let mut builder = IoUring::builder();
    builder
        .setup_cqsize(config.ring_entries.next_power_of_two() * CQ_PER_SQ)
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_r_disabled();
    let mut best = builder.clone();
    best.setup_no_sqarray();
    match best.build(config.ring_entries) {
        Ok(uring) => Ok(uring),
        // Linux 6.6 brought NO_SQARRAY: it saves a little, and is done without.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => builder
            .build(config.ring_entries)
            .map_err(|error| ("SINGLE_ISSUER and DEFER_TASKRUN (Linux 6.1)", error)),
        Err(error) => Err(("io_uring_setup", error)),
    }
}

/// Looks whether the kernel closes a direct socket at once, though another one is in use.
///
/// # Errors
/// [`DriverError::Ring`]: it has no direct descriptors, or, before Linux 6.13, keeps a closed one until everything that
/// was under way then has ended (io_uring/rsrc.c, io_queue_rsrc_removal): one idle client would keep all later ones open.
pub fn try_out_direct() -> Result<(), DriverError> {
    let failed = |error| DriverError::ring("direct descriptors (Linux 5.19)", error);
    let mut uring = IoUring::new(8).map_err(|error| DriverError::ring("io_uring_setup", error))?;
    let (idle, _idle_peer) = UnixStream::pair().map_err(failed)?;
    let (closed, mut closed_peer) = UnixStream::pair().map_err(failed)?;
    closed_peer.set_nonblocking(true).map_err(failed)?;
    let submitter = uring.submitter();
    submitter.register_files_sparse(2).map_err(failed)?;
    let sockets = [idle.as_raw_fd(), closed.as_raw_fd()];
    submitter
        .register_files_update(0, &sockets)
        .map_err(failed)?;
    drop(closed);
    let entries = [
        opcode::PollAdd::new(Fixed(0), libc::POLLIN as u32).build(),
        opcode::Close::new(Fixed(1)).build(),
    ];
    // SAFETY: the entries point at no memory.
    unsafe { uring.submission().push_multiple(&entries) }.expect("eight entries hold two");
    uring.submit_and_wait(1).map_err(failed)?;
    match closed_peer.read(&mut [0]) {
        Ok(0) => Ok(()),
        _ => Err(DriverError::ring(
            "direct descriptors that are closed at once (Linux 6.13)",
            io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        )),
    }
}

/// Registers the empty table of direct sockets.
fn register_table(uring: &IoUring, config: &DriverConfig) -> Result<(), DriverError> {
    let places = sockets::places(config.conns_max);
    let registered = uring.submitter().register_files_sparse(places);
    registered.map_err(|error| match error.raw_os_error() {
        // io_uring/rsrc.c, io_sqe_files_register: more places than RLIMIT_NOFILE or 2^20.
        Some(libc::EMFILE) => DriverError::Table { places },
        _ => DriverError::ring("direct descriptors (Linux 5.19)", error),
    })
}

/// Registers what is permitted. False: this kernel does not know how.
fn restrict(uring: &IoUring, direct: bool) -> io::Result<bool> {
    let mut flags = FLAGS;
    flags.set(squeue::Flags::FIXED_FILE, direct);
    flags.set(squeue::Flags::SKIP_SUCCESS, direct); // closes and cancels
    let mut permitted = vec![
        Restriction::register_op(REGISTER_ENABLE_RINGS),
        Restriction::sqe_flags_allowed(flags.bits()),
    ];
    permitted.extend(
        kinds(direct)
            .iter()
            .map(|kind| Restriction::sqe_op(operation(*kind))),
    );
    match uring.submitter().register_restrictions(&mut permitted) {
        Ok(()) => Ok(true),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::types::Fd;
    use weir_core::mail::Addr;

    fn ready(direct: bool) -> (Ready, Buffers) {
        let config = DriverConfig {
            ring_entries: 8,
            direct,
            ..DriverConfig::new(Addr::Ops)
        };
        let buffers = Buffers::new(2, 64);
        let ready = set_up(&config, &buffers).unwrap();
        (ready, buffers)
    }

    /// What the kernel says to `entry`.
    fn result(uring: &mut IoUring, entry: &squeue::Entry) -> i32 {
        // SAFETY: the entries of these tests point at no memory, or are refused before it is looked at.
        unsafe { uring.submission().push(entry).unwrap() };
        uring.submit_and_wait(1).unwrap();
        uring.completion().next().unwrap().result()
    }

    /// An entry of operation `code` with nothing else in it but a descriptor that is none.
    fn bare(code: u8) -> squeue::Entry {
        let entry = opcode::Send::new(Fd(-1), std::ptr::null(), 0).build();
        let mut bytes = [0_u8; size_of::<squeue::Entry>()];
        // SAFETY: both are 64 bytes; the first byte of an entry is its operation (io_uring_enter(2)), which takes any
        // value.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const entry).cast(), bytes.as_mut_ptr(), 64);
            bytes[0] = code;
            std::mem::transmute::<[u8; 64], squeue::Entry>(bytes)
        }
    }

    /// Operations that a ring refuses.
    fn refused(direct: bool) -> Vec<u8> {
        let (
            Ready {
                mut uring,
                restricted,
                ..
            },
            _buffers,
        ) = ready(direct);
        assert!(
            restricted,
            "this kernel has no restrictions: Linux 5.10 brought them"
        );
        assert!(!uring.params().is_setup_sqpoll());
        let used: Vec<u8> = kinds(direct).iter().map(|kind| operation(*kind)).collect();
        let mut refused = Vec::new();
        for code in 0..=u8::MAX {
            let said = if used.contains(&code) {
                continue;
            } else {
                -result(&mut uring, &bare(code))
            };
            // EINVAL: this kernel has no such operation.
            assert!(
                said == libc::EACCES || said == libc::EINVAL,
                "{code}: {said}"
            );
            refused.extend((said == libc::EACCES).then_some(code));
        }
        refused
    }

    #[test]
    fn every_operation_that_the_driver_does_not_use_is_refused_by_the_kernel() {
        let plain = refused(false);
        assert!(
            plain.len() >= 40,
            "Linux 6.1 has 48 operations, seven are used; {plain:?} were refused"
        );
        let direct = refused(true);
        let more: Vec<u8> = plain
            .into_iter()
            .filter(|code| !direct.contains(code))
            .collect();
        assert_eq!(more, [opcode::Close::CODE, opcode::Shutdown::CODE]);
    }

    #[test]
    fn every_operation_that_the_driver_uses_is_looked_at() {
        for direct in [false, true] {
            let (Ready { mut uring, .. }, _buffers) = ready(direct);
            for kind in kinds(direct) {
                let said = -result(&mut uring, &bare(operation(*kind)));
                assert_ne!(said, libc::EACCES, "{kind:?} is not permitted");
            }
        }
    }

    #[test]
    fn only_a_ring_with_direct_sockets_has_a_table_for_them_and_it_has_a_bound() {
        for (direct, said) in [(false, libc::EACCES), (true, libc::EBADF)] {
            let (Ready { mut uring, .. }, _buffers) = ready(direct);
            let send = opcode::Send::new(Fixed(0), std::ptr::null(), 0).build();
            assert_eq!(result(&mut uring, &send), -said, "no socket is there yet");
        }
        let config = DriverConfig {
            conns_max: 1 << 20,
            direct: true,
            ..DriverConfig::new(Addr::Ops)
        };
        let error = set_up(&config, &Buffers::new(2, 64)).err().unwrap();
        let text = error.to_string();
        assert!(
            text.contains("1048640") && text.contains("LimitNOFILE"),
            "{text}"
        );
    }

    #[test]
    fn a_write_that_would_do_harm_is_refused_and_so_are_other_flags_and_registrations() {
        let (Ready { mut uring, .. }, _buffers) = ready(false);
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = Fd(std::os::fd::AsRawFd::as_raw_fd(&file));
        let bytes = *b"harm";
        let write = opcode::Write::new(fd, bytes.as_ptr(), 4).build();
        assert_eq!(result(&mut uring, &write), -libc::EACCES);
        let send = opcode::Send::new(fd, bytes.as_ptr(), 4).build();
        assert_eq!(
            result(&mut uring, &send),
            -libc::ENOTSOCK,
            "a send gets through"
        );
        let drained = opcode::Send::new(fd, bytes.as_ptr(), 4)
            .build()
            .flags(squeue::Flags::ASYNC);
        assert_eq!(result(&mut uring, &drained), -libc::EACCES);
        let submitter = uring.submitter();
        for registered in [
            submitter.register_files(&[-1]),
            submitter.register_personality().map(drop),
            submitter.register_enable_rings(),
            submitter.register_restrictions(&mut []),
        ] {
            let errno = registered.unwrap_err().raw_os_error().unwrap();
            assert!(
                [libc::EACCES, libc::EBADFD].contains(&errno),
                "errno {errno}"
            );
        }
    }
}
