//! Waits for signals in a thread instead of in a handler: pthread_sigmask(3), sigwait(3).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The set {SIGTERM, SIGINT}.
fn stop_set() -> libc::sigset_t {
    // SAFETY: sigset_t is plain bits; sigemptyset initialises it before use; both signals exist.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        set
    }
}

/// Blocks SIGTERM and SIGINT in this thread and in those that it starts later.
///
/// # Errors
/// Whatever pthread_sigmask says.
pub fn block_stop_signals() -> io::Result<()> {
    let set = stop_set();
    // SAFETY: `set` is initialised; the old mask is not asked for.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(failed))
    }
}

/// Waits for one of them; its number.
pub fn wait_for_stop_signal() -> i32 {
    let set = stop_set();
    let mut signal = 0;
    loop {
        // SAFETY: `set` is initialised and `signal` valid for writing.
        if unsafe { libc::sigwait(&set, &mut signal) } == 0 {
            return signal;
        }
    }
}

/// Sends `signal` to a process.
///
/// # Errors
/// ESRCH when there is none, EPERM when it is another user's; EINVAL for an id that names a group or everybody.
pub fn send(pid: u32, signal: libc::c_int) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|&pid| pid > 1);
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: kill(2) takes two numbers and touches no memory of ours; `pid` names one process, not us all (0, -1).
    if unsafe { libc::kill(pid, signal) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes the child of `command` die (SIGKILL) with the thread that starts it.
pub fn die_with_this_thread(command: &mut Command) {
    let before_exec = || {
        // SAFETY: prctl(2) with this command takes numbers.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec only prctl(2) is called and errno read; nothing allocates or locks.
    unsafe { command.pre_exec(before_exec) };
}
