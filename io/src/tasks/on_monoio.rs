//! monoio: on its io_uring driver, and on its epoll driver, which runs where io_uring is refused.
//!
//! Receives and sends are monoio's own operations. Accepting and connecting wait for readiness through monoio and make the
//! call themselves: monoio's accept does not close the socket on exec, its connect does not choose the local address.

use super::gate::within;
use super::{Lent, Runtime, drive, memory_needed, until};
use crate::drain::DrainSwitch;
use crate::driver::{DriverConfig, Prepared, Shared};
use crate::error::DriverError;
use crate::post::PostOffice;
use crate::stats::DriverStats;
use crate::sys;
use crate::uring;
use monoio::buf::IoBuf;
use monoio::io::{AsyncReadRent, AsyncWriteRent, OwnedReadHalf, OwnedWriteHalf, Splitable};
use monoio::time::TimeDriver;
use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};
use std::io;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use weir_core::port::Handler;
use weir_core::time::Mono;

/// One of monoio's own drivers.
pub(crate) trait Kind: 'static {
    /// Its name in messages.
    const NAME: &'static str;
    /// Whether its operations want sockets that block: io_uring waits by itself for a socket that blocks, and answers
    /// EAGAIN for another; epoll is the other way round.
    const BLOCKING: bool;
}

/// io_uring.
pub(crate) enum OnUring {}
/// epoll.
pub(crate) enum OnEpoll {}

impl Kind for OnUring {
    const NAME: &'static str = "monoio on io_uring";
    const BLOCKING: bool = true;
}

impl Kind for OnEpoll {
    const NAME: &'static str = "monoio on epoll";
    const BLOCKING: bool = false;
}

type Stream = monoio::net::TcpStream;
type Halves = (OwnedReadHalf<Stream>, OwnedWriteHalf<Stream>);

/// monoio with one of its drivers.
pub(crate) struct Monoio<K>(PhantomData<K>);

impl<K: Kind> Monoio<K> {
    fn split(stream: Stream) -> (RawFd, OwnedReadHalf<Stream>, OwnedWriteHalf<Stream>) {
        let fd = stream.as_raw_fd();
        let (reader, writer): Halves = stream.into_split();
        (fd, reader, writer)
    }
}

impl<K: Kind> Runtime for Monoio<K> {
    const NAME: &'static str = K::NAME;
    type Reader = OwnedReadHalf<Stream>;
    type Writer = OwnedWriteHalf<Stream>;
    type Watch = Stream;

    fn spawn(task: impl Future<Output = ()> + 'static) {
        drop(monoio::spawn(task)); // the handle only: the task goes on
    }

    async fn sleep(time: Duration) {
        monoio::time::sleep(time).await;
    }

    async fn give_way() {
        // Not by waking ourselves: monoio runs a task that did so before all others, and none of them would get a turn
        // while this one is busy (scheduler.rs, yield_now).
        monoio::spawn(async {}).await;
    }

    fn open(socket: TcpStream) -> io::Result<(RawFd, Self::Reader, Self::Writer)> {
        if !K::BLOCKING {
            socket.set_nonblocking(true)?;
        }
        Ok(Self::split(Stream::from_std(socket)?))
    }

    fn close(reader: Self::Reader, writer: Self::Writer) {
        // Together: a writing half that is dropped alone ends the sending side first.
        drop(reader.reunite(writer));
    }

    async fn connect(
        socket: TcpStream,
        to: SocketAddr,
        deadline: Mono,
    ) -> io::Result<(RawFd, Self::Reader, Self::Writer)> {
        socket.set_nonblocking(true)?;
        match sys::socket::connect(socket.as_raw_fd(), to) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        let stream = Stream::from_std(socket)?;
        let fd = stream.as_raw_fd();
        let writable = within(stream.writable(false), until::<Self>(deadline)).await;
        writable.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)))?;
        sys::socket::pending_error(fd)?;
        sys::socket::set_blocking(fd, K::BLOCKING)?;
        Ok(Self::split(stream))
    }

    async fn recv(reader: &mut Self::Reader, buffer: Vec<u8>) -> Lent {
        reader.read(buffer).await
    }

    async fn send(writer: &mut Self::Writer, bytes: Vec<u8>, from: usize) -> Lent {
        let (result, slice) = writer.write(bytes.slice(from..)).await;
        (result, slice.into_inner())
    }

    fn watch(fd: OwnedFd) -> io::Result<Stream> {
        Stream::from_std(TcpStream::from(fd)) // only its readiness is asked for
    }

    async fn readable(watch: &Stream) -> io::Result<()> {
        watch.readable(false).await
    }
}

/// Which of monoio's drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// io_uring.
    Uring,
    /// epoll: runs on every Linux, whatever a seccomp filter says about io_uring.
    Epoll,
}

/// Bytes that a driver of this configuration needs, with either.
pub fn memory_needed_by(config: &DriverConfig) -> usize {
    memory_needed::<Monoio<OnEpoll>>(config)
}

fn on_uring(entries: u32) -> Result<monoio::Runtime<TimeDriver<IoUringDriver>>, DriverError> {
    RuntimeBuilder::<TimeDriver<IoUringDriver>>::new()
        .with_entries(entries)
        .build()
        .map_err(|error| DriverError::runtime(OnUring::NAME, error))
}

fn on_epoll(entries: u32) -> Result<monoio::Runtime<TimeDriver<LegacyDriver>>, DriverError> {
    RuntimeBuilder::<TimeDriver<LegacyDriver>>::new()
        .with_entries(entries)
        .build()
        .map_err(|error| DriverError::runtime(OnEpoll::NAME, error))
}

/// Sets the runtime up, and takes it down.
///
/// # Errors
/// [`DriverError::Runtime`]: the kernel has not what it needs, or forbids it.
pub fn try_out(on: On) -> Result<(), DriverError> {
    match on {
        On::Uring => uring::is_allowed().and_then(|()| on_uring(0).map(drop)),
        On::Epoll => on_epoll(0).map(drop),
    }
}

/// Runs `handler` on the calling thread until it stops; gives it back.
///
/// # Errors
/// [`DriverError`]: a value out of range, no box, no such core, the runtime cannot be set up.
pub fn run(
    on: On,
    config: DriverConfig,
    handler: Box<dyn Handler>,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
) -> Result<Box<dyn Handler>, DriverError> {
    let prepared = Prepared::new(&config, handler, Shared { post, drain, stats })?;
    let entries = config.ring_entries;
    // The turns are a task like the others: the runtime would poll its main future again without doing I/O in between.
    match on {
        On::Uring => on_uring(entries)?
            .block_on(async { monoio::spawn(drive::<Monoio<OnUring>>(prepared, config)).await }),
        On::Epoll => on_epoll(entries)?
            .block_on(async { monoio::spawn(drive::<Monoio<OnEpoll>>(prepared, config)).await }),
    }
}
