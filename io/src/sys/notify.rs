//! Asks a parent about some system calls of a child: seccomp(2) with a user notification, seccomp_unotify(2).
//!
//! Only for programs that this process starts itself: the filter is set in the child between fork and exec.

use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// seccomp_unotify(2): the task executes the call itself after all.
const GO_ON: u32 = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
/// The length of an eventfd's write, with which parts ring each other's doorbells.
const DOORBELL_BYTES: u32 = 8;

/// The calls that change names and lengths and syncs of files, whatever their arguments.
const ALWAYS: &[libc::c_long] = &[
    libc::SYS_pwrite64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

/// One call of the child that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct RawCall {
    /// The kernel's name for it.
    pub id: u64,
    /// The thread.
    pub task: u32,
    /// The call's number.
    pub number: libc::c_long,
    /// Its arguments.
    pub args: [u64; 6],
}

const fn stmt(code: u32, k: u32) -> libc::sock_filter {
    jump(code, k, 0, 0)
}

const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// Loads the low half of argument `index`.
fn load_arg(index: usize) -> libc::sock_filter {
    let low = if cfg!(target_endian = "big") { 4 } else { 0 };
    let at = offset_of!(libc::seccomp_data, args) + 8 * index + low;
    stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32)
}

/// The filter: asks about writes to files, syncs, and what makes, cuts, removes or renames files.
fn program() -> Vec<libc::sock_filter> {
    const ASK: libc::sock_filter = stmt(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF);
    const ALLOW: libc::sock_filter = stmt(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW);
    const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let number_at = offset_of!(libc::seccomp_data, nr) as u32;
    let mut all = vec![stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number_at)];
    // write(2): neither the standard streams nor doorbells.
    all.extend([
        jump(IS, libc::SYS_write as u32, 0, 7),
        load_arg(0),
        jump(ABOVE, libc::STDERR_FILENO as u32, 1, 0),
        ALLOW,
        load_arg(2),
        jump(IS, DOORBELL_BYTES, 0, 1),
        ALLOW,
        ASK,
    ]);
    // openat(2): only when it may make or empty a file; programs are loaded without asking.
    all.extend([
        jump(IS, libc::SYS_openat as u32, 0, 4),
        load_arg(2),
        jump(HAS, (libc::O_CREAT | libc::O_TRUNC) as u32, 0, 1),
        ASK,
        ALLOW,
    ]);
    for number in ALWAYS {
        all.extend([jump(IS, *number as u32, 0, 1), ASK]);
    }
    all.push(ALLOW);
    all
}

/// Makes the child of `command` ask; the descriptor to hear it comes out of the returned socket once it was started.
/// The child dies with the thread that starts it.
///
/// # Errors
/// No descriptors left. That the kernel refuses the filter is said by the start of the command.
pub fn ask_parent(command: &mut Command) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut filter = program();
    let before_exec = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: prctl(2) with these commands takes numbers; seccomp(2) reads `program`, alive here with its filter.
        let listener = unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            {
                return Err(io::Error::last_os_error());
            }
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                std::ptr::from_ref(&program),
            )
        };
        if listener < 0 {
            return Err(io::Error::last_os_error());
        }
        send_descriptor(theirs.as_raw_fd(), listener as RawFd)
    };
    // SAFETY: between fork and exec the closure only makes system calls: it takes no lock and no memory.
    unsafe { command.pre_exec(before_exec) };
    Ok(ours)
}

/// Space for one descriptor in a control message, aligned as cmsg(3) wants it.
#[repr(align(8))]
struct Control([u8; 64]);

/// Calls `act` with a message of one byte and room for one descriptor.
fn with_message<T>(act: impl FnOnce(&mut libc::msghdr) -> T) -> T {
    let (mut byte, mut control) = ([0_u8], Control([0; 64]));
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // SAFETY: msghdr is plain data, for which all zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE computes with its argument; the space of one descriptor is 24 of our 64 bytes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    act(&mut message)
}

fn send_descriptor(socket: RawFd, descriptor: RawFd) -> io::Result<()> {
    with_message(|message| {
        // SAFETY: `message` points at live buffers with room for one header and one descriptor; sendmsg(2) reads them.
        let sent = unsafe {
            let header = libc::CMSG_FIRSTHDR(message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(header)
                .cast::<RawFd>()
                .write_unaligned(descriptor);
            libc::sendmsg(socket, message, 0)
        };
        if sent == 1 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    })
}

/// Takes the descriptor that the started child sent.
///
/// # Errors
/// The child sent none.
pub fn receive_listener(socket: &UnixStream) -> io::Result<OwnedFd> {
    with_message(|message| {
        // SAFETY: `message` points at live buffers of the sizes that it names; recvmsg(2) writes within them.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel filled `message`; the macro gives null when there is no header.
        let header = unsafe { libc::CMSG_FIRSTHDR(message) };
        if header.is_null() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the only message that the child sends carries one descriptor, which is ours from here on.
        Ok(unsafe {
            OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())
        })
    })
}

/// What there is to hear.
pub enum Heard {
    /// A call that waits.
    Call(RawCall),
    /// Nothing for now.
    Quiet,
    /// No task with the filter is left.
    Over,
}

/// Waits up to `wait_ms` for the next call.
///
/// # Errors
/// Whatever the kernel says; not expected.
pub fn receive(listener: &OwnedFd, wait_ms: i32) -> io::Result<Heard> {
    let mut poll = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, valid for the call.
    let ready = unsafe { libc::poll(&mut poll, 1, wait_ms) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(Heard::Quiet),
            _ => Err(error),
        };
    }
    if ready == 0 {
        return Ok(Heard::Quiet);
    }
    if poll.revents & libc::POLLIN == 0 {
        return Ok(Heard::Over);
    }
    // SAFETY: plain data, for which all zero is a value; the kernel wants it zeroed and writes within it.
    let mut found: libc::seccomp_notif = unsafe { zeroed() };
    let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
    // SAFETY: `found` is valid for writing and of the size that the request encodes.
    if unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut found) } != 0 {
        let error = io::Error::last_os_error();
        // ENOENT: the task was killed meanwhile.
        return match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => Ok(Heard::Quiet),
            _ => Err(error),
        };
    }
    Ok(Heard::Call(RawCall {
        id: found.id,
        task: found.pid,
        number: libc::c_long::from(found.data.nr),
        args: found.data.args,
    }))
}

/// Lets the call `id` happen.
pub fn go_on(listener: &OwnedFd, id: u64) {
    respond(listener, id, 0, 0, GO_ON);
}

/// Answers the call `id` in the kernel's place: `Ok(value)`, or an error number.
pub fn answer(listener: &OwnedFd, id: u64, result: Result<i64, i32>) {
    let (value, error) = result.map_or_else(|error| (0, -error), |value| (value, 0));
    respond(listener, id, value, error, 0);
}

fn respond(listener: &OwnedFd, id: u64, val: i64, error: i32, flags: u32) {
    let mut response = libc::seccomp_notif_resp {
        id,
        val,
        error,
        flags,
    };
    let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // Fails only when the task has died: then nobody waits for it.
    // SAFETY: `response` is valid and of the size that the request encodes.
    let _ = unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut response) };
}
