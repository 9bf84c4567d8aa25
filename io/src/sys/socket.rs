//! Sockets with options that must be set before bind(2) and connect(2).

use std::io;
use std::net::{Shutdown, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An address as the kernel reads it.
#[derive(Clone, Copy)]
pub struct RawAddr {
    storage: libc::sockaddr_storage,
    bytes: libc::socklen_t,
}

impl RawAddr {
    /// Where it is, for a call that reads it.
    pub fn as_ptr(&self) -> *const libc::sockaddr {
        std::ptr::from_ref(&self.storage).cast()
    }

    /// How long it is.
    pub fn bytes(&self) -> libc::socklen_t {
        self.bytes
    }
}

impl From<SocketAddr> for RawAddr {
    fn from(addr: SocketAddr) -> Self {
        // SAFETY: sockaddr_storage is plain data, for which all zero is a value (family AF_UNSPEC).
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let at = std::ptr::from_mut(&mut storage);
        let bytes = match addr {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is larger than, and aligned for, every socket address.
                unsafe { at.cast::<libc::sockaddr_in>().write(raw) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { at.cast::<libc::sockaddr_in6>().write(raw) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self {
            storage,
            bytes: bytes as libc::socklen_t,
        }
    }
}

/// Room for the address of a peer, which the kernel writes.
#[derive(Debug)]
pub struct PeerAddr {
    storage: libc::sockaddr_storage,
    bytes: libc::socklen_t,
}

impl PeerAddr {
    /// Nothing in it.
    pub fn new() -> Self {
        Self {
            // SAFETY: sockaddr_storage is plain data, for which all zero is a value (family AF_UNSPEC).
            storage: unsafe { std::mem::zeroed() },
            bytes: size_of::<libc::sockaddr_storage>() as libc::socklen_t,
        }
    }

    /// Makes it ready to be written.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Where the kernel writes the address, and where its length; the latter also says how much room there is.
    pub fn as_mut_ptrs(&mut self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        ((&raw mut self.storage).cast(), &raw mut self.bytes)
    }

    /// What was written; `None`: no internet address.
    pub fn get(&self) -> Option<SocketAddr> {
        let at = &raw const self.storage;
        match libc::c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: sockaddr_storage is larger than, and aligned for, every socket address; every bit pattern is one.
                let raw = unsafe { at.cast::<libc::sockaddr_in>().read() };
                let ip = raw.sin_addr.s_addr.to_ne_bytes();
                Some(SocketAddr::from((ip, u16::from_be(raw.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let raw = unsafe { at.cast::<libc::sockaddr_in6>().read() };
                let (ip, port) = (raw.sin6_addr.s6_addr.into(), u16::from_be(raw.sin6_port));
                let (flow, scope) = (raw.sin6_flowinfo, raw.sin6_scope_id);
                Some(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }
}

/// A TCP socket of the family of `addr`. Blocking on purpose: the ring polls for a blocking socket and answers
/// EAGAIN for another.
///
/// # Errors
/// No descriptor left.
pub fn tcp_socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is open, fresh, and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Switches a yes/no option of `socket` on.
fn switch_on(socket: &OwnedFd, level: i32, option: i32) -> io::Result<()> {
    set(socket, level, option, 1)
}

/// Gives an option of `socket` its value.
fn set(socket: &OwnedFd, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one int at `value`, alive here.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets `socket` bind to a port whose former connections are in TIME_WAIT.
///
/// # Errors
/// Whatever setsockopt says; so below.
pub fn reuse_addr(socket: &OwnedFd) -> io::Result<()> {
    switch_on(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR)
}

/// Lets several listeners of this user share a port; the kernel spreads connections over them.
pub fn reuse_port(socket: &OwnedFd) -> io::Result<()> {
    switch_on(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT)
}

/// Sends small segments at once; accepted sockets inherit it.
pub fn no_delay(socket: &OwnedFd) -> io::Result<()> {
    switch_on(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY)
}

/// Gives up what `socket` has sent and the peer's kernel has not acknowledged for `ms`, also after a close: what was
/// written to a connection that is gone does not arrive long afterwards.
pub fn user_timeout_ms(socket: &OwnedFd, ms: i32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ms)
}

/// Bounds what the kernel holds of each accepted socket, both ways (it takes twice `bytes`, for its bookkeeping); without
/// it a client that does not read makes the kernel hold megabytes (net.ipv4.tcp_wmem). Before listen(2), so that the
/// window that is offered fits; accepted sockets inherit it.
pub fn buffer_bytes(socket: &OwnedFd, bytes: i32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)?;
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

/// Chooses the local port at connect(2), not at bind(2), so that one local address can hold a connection per peer on
/// each port.
pub fn port_at_connect(socket: &OwnedFd) -> io::Result<()> {
    switch_on(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
}

/// Gives `socket` its local address.
pub fn bind(socket: &OwnedFd, addr: SocketAddr) -> io::Result<()> {
    let raw = RawAddr::from(addr);
    // SAFETY: the address is valid for its length and alive here.
    if unsafe { libc::bind(socket.as_raw_fd(), raw.as_ptr(), raw.bytes()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Starts listening with room for `backlog` connections that are not accepted yet.
pub fn listen(socket: &OwnedFd, backlog: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    if unsafe { libc::listen(socket.as_raw_fd(), backlog) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Starts connecting; on a socket that does not block the answer is `EINPROGRESS`, and more is known once it is writable.
pub fn connect(socket: RawFd, to: SocketAddr) -> io::Result<()> {
    let raw = RawAddr::from(to);
    // SAFETY: the address is valid for its length and alive here.
    if unsafe { libc::connect(socket, raw.as_ptr(), raw.bytes()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Fails with the error that waits on a socket, and clears it.
pub fn pending_error(socket: RawFd) -> io::Result<()> {
    let mut errno: libc::c_int = 0;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes at `errno`, and their number at `bytes`; both live here.
    let done = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut errno).cast(),
            &raw mut bytes,
        )
    };
    match (done, errno) {
        (0, 0) => Ok(()),
        (0, errno) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Says whether calls on `socket` wait.
pub fn set_blocking(socket: RawFd, on: bool) -> io::Result<()> {
    let mut not_blocking = libc::c_int::from(!on);
    // SAFETY: the kernel reads one int at `not_blocking`, alive here.
    if unsafe { libc::ioctl(socket, libc::FIONBIO, &raw mut not_blocking) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The kernel's number for `how`.
pub fn shutdown_number(how: Shutdown) -> libc::c_int {
    match how {
        Shutdown::Read => libc::SHUT_RD,
        Shutdown::Write => libc::SHUT_WR,
        Shutdown::Both => libc::SHUT_RDWR,
    }
}

/// Ends one or both sides of a connection, whoever else has the descriptor.
pub fn shutdown(socket: RawFd, how: Shutdown) -> io::Result<()> {
    // SAFETY: no memory is passed.
    if unsafe { libc::shutdown(socket, shutdown_number(how)) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_was_written() {
        for text in [
            "127.3.2.1:65535",
            "[2001:db8::7]:1",
            "[::ffff:127.0.0.1]:80",
        ] {
            let addr: SocketAddr = text.parse().expect("an address");
            let raw = RawAddr::from(addr);
            let peer = PeerAddr {
                storage: raw.storage,
                bytes: raw.bytes,
            };
            assert_eq!(peer.get(), Some(addr));
        }
        assert_eq!(PeerAddr::new().get(), None);
    }
}
