//! SIGTERM and SIGINT as a value that a thread waits for; no code ever runs inside a signal handler.
//!
//! The program calls [`block`] first in `main`, then one thread loops over [`wait`]: the first signal switches
//! [`crate::drain::DrainSwitch`], the second ends the process.

use crate::sys;
use std::io;

/// Blocks both signals in this thread and in all that it starts later; call before any thread is started.
///
/// # Errors
/// Whatever the system says; not expected.
pub fn block() -> io::Result<()> {
    sys::signal::block_stop_signals()
}

/// Waits for the next of the two signals; its number.
pub fn wait() -> i32 {
    sys::signal::wait_for_stop_signal()
}

/// What a child process is told. Only for a child that was not waited for yet: then its id is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: end in order.
    Terminate,
    /// SIGKILL: end at once.
    Kill,
    /// SIGSTOP: stand still.
    Pause,
    /// SIGCONT: go on.
    Resume,
}

/// Sends `signal` to the child `pid`.
///
/// # Errors
/// Whatever the system says; no such process.
pub fn send(pid: u32, signal: Signal) -> io::Result<()> {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
        Signal::Pause => libc::SIGSTOP,
        Signal::Resume => libc::SIGCONT,
    };
    sys::signal::send(pid, number)
}

/// Makes the child of `command` die with the thread that starts it: a parent that is killed leaves nobody behind
/// (prctl(2), PR_SET_PDEATHSIG). That thread must live as long as the child is wanted.
pub fn die_with_this_thread(command: &mut std::process::Command) {
    sys::signal::die_with_this_thread(command);
}
