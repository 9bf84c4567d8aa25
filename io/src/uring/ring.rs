//! One io_uring with everything the kernel may touch: send buffers, addresses, receive buffers, the doorbell's word.
//!
//! Safe to call: memory given to the kernel is owned here until the completion that gives it back, and is leaked
//! rather than freed should the ring be dropped with operations outstanding (field bug R61).

use super::buffers::Buffers;
use super::setup::{self, GROUP, Ready};
use super::sockets::{self, Accepts, Client, Socket};
use super::tag::{self, Kind, NO_CONN};
use crate::driver::{Backend, Completion, DriverConfig, SendProgress, Wait, empty};
use crate::error::DriverError;
use crate::limits::{COMPLETIONS_PER_TURN_MAX, CQ_PER_SQ, SEND_KEEP_BYTES_MAX};
use crate::net::ListenSocket;
use crate::sys;
use crate::sys::eventfd::EventFd;
use crate::sys::socket::RawAddr;
use io_uring::types::{CancelBuilder, DestinationSlot, Fd, Fixed, TimeoutFlags, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::io;
use std::mem::ManuallyDrop;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use weir_core::port::ConnId;
use weir_core::time::{Mono, NS_PER_S};

/// What one slot has lent to the kernel.
#[derive(Default)]
struct Lent {
    socket: Option<Socket>,
    send: Vec<u8>,
    sent_bytes: usize,
    connect: Option<Box<(RawAddr, Timespec)>>,
}

struct Memory {
    buffers: Buffers,
    lent: Box<[Lent]>,
    listener: Option<ListenSocket>,
    accepts: Accepts,
    /// Accepted sockets are direct.
    direct: bool,
    bell_word: Box<u64>,
}

impl Memory {
    /// How an entry names the socket of a conn that is open or connects.
    fn target(&self, conn: ConnId) -> (Fd, squeue::Flags) {
        let socket = self.lent[conn.slot as usize].socket.as_ref();
        socket.expect("a conn in use has its socket").target()
    }

    fn listener(&self) -> Fd {
        let listener = self.listener.as_ref();
        Fd(listener
            .expect("a driver without a listener never accepts")
            .raw())
    }
}

/// Bytes of one place of a table of direct descriptors: a pointer and a bit (io_uring/rsrc.h, io_file_table), and what is
/// behind it while it is used (io_rsrc_node).
const TABLE_PLACE_BYTES: usize = 48;

/// See the module.
pub struct Ring {
    name: sys::enter::RingName,
    uring: ManuallyDrop<IoUring>,
    memory: ManuallyDrop<Memory>,
    /// The doorbell, which outlives the ring.
    bell: RawFd,
    outstanding: usize,
    /// Operations put in since the last look, for the counters.
    pushed: u64,
    restricted: bool,
    /// Why an operation could not be put in where nobody waits for the answer; told at the next enter.
    failed: Option<io::Error>,
}

impl Ring {
    /// Sets the ring up for the calling thread, which alone may use it; `bell` outlives it.
    ///
    /// # Errors
    /// [`DriverError::Ring`] names the missing feature.
    pub fn new(config: DriverConfig, bell: &EventFd) -> Result<Self, DriverError> {
        let buffers = Buffers::new(config.recv_buffers, config.recv_buffer_bytes);
        let Ready {
            uring,
            name,
            restricted,
        } = setup::set_up(&config, &buffers)?;
        let mut lent = Vec::new();
        lent.resize_with(config.conns_max as usize, Lent::default);
        Ok(Self {
            name,
            uring: ManuallyDrop::new(uring),
            memory: ManuallyDrop::new(Memory {
                buffers,
                lent: lent.into_boxed_slice(),
                listener: config.listen,
                accepts: Accepts::new(),
                direct: config.direct,
                bell_word: Box::new(0),
            }),
            bell: bell.raw(),
            outstanding: 0,
            pushed: 0,
            restricted,
            failed: None,
        })
    }

    /// True when the kernel refuses what this driver does not use.
    pub fn is_restricted(&self) -> bool {
        self.restricted
    }

    /// Bytes that a ring of this configuration allocates or has the kernel allocate.
    pub fn memory_needed(config: &DriverConfig) -> usize {
        let sq = config.ring_entries.next_power_of_two() as usize;
        let cq = sq * CQ_PER_SQ as usize;
        sq * size_of::<squeue::Entry>()
            + cq * size_of::<cqueue::Entry>()
            + usize::from(config.recv_buffers) * (config.recv_buffer_bytes as usize + 16)
            + config.conns_max as usize * size_of::<Lent>()
            + match config.direct {
                true => sockets::places(config.conns_max) as usize * TABLE_PLACE_BYTES,
                false => 0,
            }
    }

    fn push(&mut self, sqe: squeue::Entry, kind: Kind, conn: ConnId) -> io::Result<()> {
        self.push_all(&[sqe.user_data(tag::pack(kind, conn))])
    }

    /// Puts operations in; all together, since a link must not be cut in two.
    fn push_all(&mut self, sqes: &[squeue::Entry]) -> io::Result<()> {
        // SAFETY: every entry points only at descriptors and at memory in `self.memory`, which stays in place and
        // unchanged until its completion: that is the contract of the callers above.
        while unsafe { self.uring.submission().push_multiple(sqes) }.is_err() {
            self.submit()?; // full: the kernel takes what is there, and makes room
        }
        self.outstanding += sqes.len();
        self.pushed += sqes.len() as u64;
        Ok(())
    }

    /// For operations whose caller cannot take an error.
    fn push_unasked(&mut self, sqe: squeue::Entry, kind: Kind, conn: ConnId) {
        if let Err(error) = self.push(sqe, kind, conn) {
            self.failed = Some(error);
        }
    }

    /// For operations that nobody waits for: done, they say nothing, and so wake nobody. They have no memory and count as
    /// over at once.
    fn push_silent(&mut self, sqe: squeue::Entry, kind: Kind, conn: ConnId) {
        debug_assert!(tag::is_silent(kind), "its completion is not counted");
        let before = self.outstanding;
        self.push_unasked(sqe.flags(squeue::Flags::SKIP_SUCCESS), kind, conn);
        self.outstanding = before;
    }

    /// Ends an operation that nobody else waits for.
    fn cancel(&mut self, kind: Kind, conn: ConnId) {
        let sqe = opcode::AsyncCancel::new(tag::pack(kind, conn)).build();
        self.push_silent(sqe, Kind::Cancel, conn);
    }

    fn close(&mut self, socket: Socket) {
        match socket {
            Socket::Open(socket) => drop(socket),
            Socket::Direct(place) => {
                self.push_silent(opcode::Close::new(place).build(), Kind::Close, NO_CONN);
            }
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        match self.uring.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Submits everything, lets the kernel complete what is ready, and waits.
    pub fn enter(&mut self, wait: Wait) -> io::Result<()> {
        assert!(
            self.memory.buffers.all_back(),
            "a turn keeps no receive buffer"
        );
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (want, limit) = match wait {
            Wait::No => (0, None),
            Wait::ForEver => (1, None),
            Wait::AtMost(time) => (1, Some(time)),
        };
        let ready = self.uring.submission().len() as u32;
        match sys::enter::enter(self.name, ready, want, limit) {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Gets every operation back from the kernel, so that their memory can go. After the last turn these are the accept,
    /// which was stopped, and the doorbell, which was rung.
    pub fn leave(&mut self) -> io::Result<()> {
        let mut too_late = Vec::new(); // a client who comes now sees a reset
        while self.outstanding > 0 {
            self.enter(Wait::ForEver)?;
            self.completions(&mut too_late);
            too_late.clear();
        }
        Ok(())
    }
}

/// What became of an entry, as the driver reads it; `None`: the operation that it ended says how it ended.
fn completion(memory: &mut Memory, cqe: &cqueue::Entry, more: bool) -> Option<Completion<Client>> {
    let (kind, conn) = tag::unpack(cqe.user_data());
    let count = usize::try_from(cqe.result()).map_err(|_| -cqe.result());
    match kind {
        Kind::Recv => Some(Completion::Recv {
            conn,
            bytes: count,
            buffer: cqueue::buffer_select(cqe.flags()).map(u32::from),
            more,
        }),
        Kind::Send => Some(Completion::Send { conn, bytes: count }),
        Kind::Accept => {
            let peer = memory.accepts.end(conn.slot);
            let socket = count.map(|_| {
                let socket = if memory.direct {
                    Socket::Direct(Fixed(cqe.result().cast_unsigned()))
                } else {
                    // SAFETY: the kernel opened this descriptor for this entry, which is read once: nobody else owns it.
                    let fd = unsafe { OwnedFd::from_raw_fd(cqe.result()) };
                    Socket::Open(fd.into())
                };
                Client { socket, peer }
            });
            let more = memory.accepts.under_way() > 0;
            Some(Completion::Accept { socket, more })
        }
        Kind::Connect => Some(Completion::Connect {
            conn,
            result: count.map(drop),
        }),
        Kind::RecvStop | Kind::Shutdown => Some(Completion::Ended(conn)),
        Kind::Bell => Some(Completion::Bell),
        Kind::AcceptStop | Kind::ConnectDeadline | Kind::Close | Kind::Cancel => None,
    }
}

impl Backend for Ring {
    type Socket = Client;

    fn accept(&mut self, room: usize) -> io::Result<()> {
        let listener = self.memory.listener();
        let (place, flags) = match self.memory.direct {
            true => (Some(DestinationSlot::auto_target()), 0), // only a descriptor can be closed on exec
            false => (None, libc::SOCK_CLOEXEC),
        };
        while self.memory.accepts.under_way() < room
            && let Some((number, peer)) = self.memory.accepts.begin()
        {
            let (addr, bytes) = peer.as_mut_ptrs();
            let sqe = opcode::Accept::new(listener, addr, bytes)
                .file_index(place)
                .flags(flags)
                .build();
            let conn = ConnId {
                slot: number,
                ..NO_CONN
            };
            self.push(sqe, Kind::Accept, conn)?;
        }
        Ok(())
    }

    fn accept_goes_on(&mut self, room: usize) -> io::Result<()> {
        self.accept(room)
    }

    fn accept_stop(&mut self) -> io::Result<()> {
        let every = CancelBuilder::fd(self.memory.listener()).all();
        let sqe = opcode::AsyncCancel2::new(every).build();
        self.push(sqe, Kind::AcceptStop, NO_CONN)
    }

    fn peer(&self, client: &Client) -> Option<SocketAddr> {
        client.peer
    }

    fn open(&mut self, conn: ConnId, client: Client) -> io::Result<()> {
        self.memory.lent[conn.slot as usize].socket = Some(client.socket);
        Ok(())
    }

    fn discard(&mut self, client: Client) {
        self.close(client.socket);
    }

    fn connect(
        &mut self,
        conn: ConnId,
        socket: TcpStream,
        to: SocketAddr,
        deadline: Mono,
    ) -> io::Result<()> {
        let at = Timespec::new()
            .sec(deadline.0 / NS_PER_S)
            .nsec((deadline.0 % NS_PER_S) as u32);
        let lent = &mut self.memory.lent[conn.slot as usize];
        lent.socket = Some(Socket::Open(socket));
        let (to, at) = &**lent.connect.insert(Box::new((to.into(), at)));
        let (to, bytes, at) = (to.as_ptr(), to.bytes(), std::ptr::from_ref(at));
        let (fd, flags) = self.memory.target(conn);
        let connect = opcode::Connect::new(fd, to, bytes)
            .build()
            .flags(flags | squeue::Flags::IO_LINK)
            .user_data(tag::pack(Kind::Connect, conn));
        let deadline = opcode::LinkTimeout::new(at)
            .flags(TimeoutFlags::ABS)
            .build()
            .user_data(tag::pack(Kind::ConnectDeadline, conn));
        self.push_all(&[connect, deadline])
    }

    fn shutdown(&mut self, conn: ConnId, how: Shutdown) -> bool {
        let place = match &self.memory.lent[conn.slot as usize].socket {
            Some(Socket::Open(socket)) => {
                let _ = socket.shutdown(how); // fails when the peer has reset: then all has ended, and the receive says so
                return false;
            }
            Some(Socket::Direct(place)) => *place,
            None => return false,
        };
        if how == Shutdown::Both {
            // Both sides end with the close that follows the last operation. Each is looked up by its tag: by the socket
            // the kernel would look at every operation of the ring (io_uring/poll.c, io_poll_file_find). Nobody waits for
            // these: the tags of a conn are not used again after it, so that a late one finds nothing.
            self.cancel(Kind::Recv, conn);
            if !self.memory.lent[conn.slot as usize].send.is_empty() {
                self.cancel(Kind::Send, conn);
            }
            return false;
        }
        // On a thread of the kernel (io_uring/net.c, io_shutdown_prep), which looks the place up when it comes to it:
        // by then it must not be another's.
        let how = sys::socket::shutdown_number(how);
        let sqe = opcode::Shutdown::new(place, how).build();
        self.push_unasked(sqe, Kind::Shutdown, conn);
        true
    }

    fn release(&mut self, conn: ConnId) {
        let lent = &mut self.memory.lent[conn.slot as usize];
        lent.connect = None;
        if let Some(socket) = lent.socket.take() {
            self.close(socket);
        }
    }

    fn recv(&mut self, conn: ConnId) -> io::Result<()> {
        let (fd, flags) = self.memory.target(conn);
        let sqe = opcode::RecvMulti::new(fd, GROUP).build().flags(flags);
        self.push(sqe, Kind::Recv, conn)
    }

    fn recv_stop(&mut self, conn: ConnId) -> io::Result<()> {
        let sqe = opcode::AsyncCancel::new(tag::pack(Kind::Recv, conn)).build();
        self.push(sqe, Kind::RecvStop, conn)
    }

    fn received(&self, buffer: u32, bytes: usize) -> &[u8] {
        self.memory.buffers.bytes(buffer as u16, bytes)
    }

    fn buffer_back(&mut self, buffer: u32) {
        self.memory.buffers.give_back(buffer as u16);
    }

    fn send(&mut self, conn: ConnId, bytes: Vec<u8>) -> io::Result<()> {
        let lent = &mut self.memory.lent[conn.slot as usize];
        assert!(lent.send.is_empty(), "one send per conn at a time");
        lent.send = bytes;
        lent.sent_bytes = 0;
        self.send_rest(conn)
    }

    fn sent(&mut self, conn: ConnId, bytes: usize) -> SendProgress {
        let lent = &mut self.memory.lent[conn.slot as usize];
        lent.sent_bytes += bytes;
        if lent.sent_bytes < lent.send.len() {
            SendProgress::Short
        } else {
            SendProgress::Done(self.send_over(conn))
        }
    }

    fn send_rest(&mut self, conn: ConnId) -> io::Result<()> {
        let lent = &self.memory.lent[conn.slot as usize];
        let rest = &lent.send[lent.sent_bytes..];
        // A send of more than 4 GiB is short, like any other.
        let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        // The pointer stays good: `send` is not touched until the completion (one send per conn).
        let (fd, flags) = self.memory.target(conn);
        let sqe = opcode::Send::new(fd, rest.as_ptr(), len)
            .flags(libc::MSG_NOSIGNAL)
            .build()
            .flags(flags);
        self.push(sqe, Kind::Send, conn)
    }

    fn send_over(&mut self, conn: ConnId) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.memory.lent[conn.slot as usize].send);
        empty(bytes, SEND_KEEP_BYTES_MAX)
    }

    fn bell(&mut self) -> io::Result<()> {
        let word: *mut u64 = &mut *self.memory.bell_word;
        let sqe = opcode::Read::new(Fd(self.bell), word.cast(), size_of::<u64>() as u32).build();
        self.push(sqe, Kind::Bell, NO_CONN)
    }

    fn completions(&mut self, into: &mut Vec<Completion<Client>>) -> bool {
        let memory = &mut self.memory;
        let mut queue = self.uring.completion();
        while into.len() < COMPLETIONS_PER_TURN_MAX
            && let Some(cqe) = queue.next()
        {
            if let Some(id) = cqueue::buffer_select(cqe.flags()) {
                memory.buffers.taken(id);
            }
            let more = cqueue::more(cqe.flags());
            let counted = !more && !tag::is_silent(tag::unpack(cqe.user_data()).0);
            self.outstanding -= usize::from(counted);
            into.extend(completion(memory, &cqe, more));
        }
        !queue.is_empty()
    }

    fn take_pushed(&mut self) -> u64 {
        std::mem::take(&mut self.pushed)
    }

    fn overflowed(&mut self) -> bool {
        self.uring.submission().cq_overflow()
    }
}

/// Errors of io_uring_enter that only mean "look at the completions and come again".
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
    )
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: neither is used after this.
        unsafe {
            ManuallyDrop::drop(&mut self.uring); // first: the kernel forgets the memory
            if self.outstanding == 0 {
                ManuallyDrop::drop(&mut self.memory);
            } // else the kernel ends the operations in its own time and may still write: leaked on purpose
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::mail::Addr;

    fn ring(ring_entries: u32) -> Result<Ring, DriverError> {
        let config = DriverConfig {
            ring_entries,
            recv_buffers: 2,
            conns_max: 0,
            ..DriverConfig::new(Addr::Ops)
        };
        config.check()?;
        Ring::new(config, &EventFd::new().unwrap())
    }

    #[test]
    fn a_restricted_ring_is_entered_by_its_index() {
        let ring = ring(8).unwrap();
        assert!(ring.is_restricted());
        assert!(
            matches!(ring.name, sys::enter::RingName::Registered(_)),
            "Linux 5.18 and later can: {:?}",
            ring.name
        );
    }

    #[test]
    fn a_table_is_full_only_for_more_clients_than_it_was_made_for_and_then_says_so() {
        let listen = ListenSocket::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let to = listen.local_addr();
        let config = DriverConfig {
            listen: Some(listen),
            recv_buffers: 2,
            conns_max: 2,
            direct: true,
            ..DriverConfig::new(Addr::Ops)
        };
        let places = sockets::places(config.conns_max) as usize;
        let mut ring = Ring::new(config, &EventFd::new().unwrap()).unwrap();
        let clients: Vec<TcpStream> = (0..=places)
            .map(|_| TcpStream::connect(to).unwrap())
            .collect();
        let (mut came, mut held, mut full) = (Vec::new(), Vec::new(), 0);
        while held.len() + full < clients.len() {
            ring.accept(places + 1 - held.len()).unwrap();
            ring.enter(Wait::ForEver).unwrap();
            ring.completions(&mut came);
            for completion in came.drain(..) {
                let Completion::Accept { socket, .. } = completion else {
                    panic!("{completion:?}")
                };
                match socket {
                    Ok(client) => held.push(client),
                    Err(errno) => {
                        assert_eq!(errno, libc::ENFILE);
                        full += 1;
                    }
                }
            }
        }
        assert_eq!((held.len(), full), (places, 1));
        let mut peers: Vec<_> = held.iter().map(|client| client.peer.unwrap()).collect();
        let mut locals: Vec<_> = clients.iter().map(|c| c.local_addr().unwrap()).collect();
        peers.sort_unstable();
        locals.sort_unstable();
        locals.retain(|local| peers.contains(local));
        assert_eq!(peers, locals, "each has the address of its own client");
        held.into_iter().for_each(|client| ring.discard(client));
        ring.accept_stop().unwrap();
        ring.leave().unwrap();
    }

    #[test]
    fn every_length_of_queue_that_is_allowed_can_be_had() {
        let allowed = (0..=16).map(|power| 1 << power).filter(|&entries| {
            let wrong = ring(entries).err();
            assert!(
                matches!(wrong, None | Some(DriverError::Config { .. })),
                "{entries}: {wrong:?}"
            );
            wrong.is_none()
        });
        assert_eq!(allowed.max(), Some(1 << 14));
    }
}
