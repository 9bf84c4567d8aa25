//! A small disk that only a child sees: a tmpfs(5) in a mount namespace of its own, gone when nobody holds it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Makes the child of `command` see a file system of `bytes` at `dir`, which nobody else sees. The child dies with the
/// thread that starts it.
///
/// # Errors
/// A path with a zero byte. That the system refuses is said by the start of the command.
pub fn give(command: &mut Command, dir: &Path, bytes: u64) -> io::Result<()> {
    let dir = CString::new(dir.as_os_str().as_bytes())?;
    let options = CString::new(format!("size={bytes},mode=0700"))?;
    // SAFETY: both calls take nothing and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let map = |id| CString::new(format!("{id} {id} 1"));
    let maps = [
        (c"/proc/self/setgroups", c"deny".to_owned()),
        (c"/proc/self/uid_map", map(uid)?),
        (c"/proc/self/gid_map", map(gid)?),
    ];
    let before_exec = move || {
        // SAFETY: prctl(2) with this command takes numbers.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
        // SAFETY: unshare(2) takes flags.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            // Without the privilege: a user namespace grants it inside of itself.
            // SAFETY: as above.
            check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) })?;
            for (path, text) in &maps {
                write_all(path, text)?;
            }
        }
        let (none, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
        // SAFETY: every pointer is null where mount(2) allows it, or a string that ends in zero and outlives the call.
        check(unsafe { libc::mount(none, c"/".as_ptr(), none, private, none.cast()) })?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let name = c"tmpfs".as_ptr();
        // SAFETY: as above.
        check(unsafe { libc::mount(name, dir.as_ptr(), name, flags, options.as_ptr().cast()) })
    };
    // SAFETY: between fork and exec the closure only makes system calls: it takes no lock and no memory.
    unsafe { command.pre_exec(before_exec) };
    Ok(())
}

fn check(done: libc::c_int) -> io::Result<()> {
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn write_all(path: &CStr, text: &CStr) -> io::Result<()> {
    let bytes = text.to_bytes();
    // SAFETY: `path` ends in zero; `bytes` is valid for its length; the descriptor is ours and closed once.
    let written = unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        let written = libc::write(file, bytes.as_ptr().cast(), bytes.len());
        libc::close(file);
        written
    };
    if usize::try_from(written) == Ok(bytes.len()) {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
