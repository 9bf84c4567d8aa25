//! Pins a thread to a core: sched_setaffinity(2).

use std::io;

/// Lets the calling thread run on `cpu` only.
///
/// # Errors
/// `EINVAL` when there is no such core or the process may not use it.
pub fn pin_this_thread(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: cpu_set_t is plain bits, for which all zero is a value; CPU_SET stays inside it (checked above);
    // pid 0 is this thread; the kernel only reads the set.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The cores that the calling thread may use: sched_getaffinity(2).
///
/// # Errors
/// `EINVAL` on a machine with more cores than a `cpu_set_t` names.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: cpu_set_t is plain bits, for which all zero is a value; the kernel writes at most the size that is given.
    let (done, set) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let done = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (done, set)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every index is below CPU_SETSIZE, so CPU_ISSET stays inside the set.
    Ok((0..libc::CPU_SETSIZE as usize)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}
