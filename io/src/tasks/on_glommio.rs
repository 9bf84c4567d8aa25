//! glommio, on io_uring: for those who run it elsewhere and want one kind of loop. A cargo feature.

use super::gate::within;
use super::{Lent, Runtime, drive, memory_needed, until};
use crate::drain::DrainSwitch;
use crate::driver::{DriverConfig, Prepared, Shared};
use crate::error::DriverError;
use crate::post::PostOffice;
use crate::stats::DriverStats;
use crate::sys;
use crate::uring;
use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream as Stream;
use glommio::{GlommioError, LocalExecutor, LocalExecutorBuilder, Placement};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_core::port::Handler;
use weir_core::time::Mono;

/// Memory that glommio keeps for reading files, its least: this driver reads none.
const FILE_BYTES: usize = 64 * 1024;

/// A socket, shared by the task that receives and the one that sends; borrowed only while one of them is polled.
type Half = Rc<RefCell<Stream>>;

/// See the module.
pub(crate) struct Glommio;

fn share(socket: TcpStream) -> (RawFd, Half, Half) {
    let fd = socket.as_raw_fd();
    let half = Rc::new(RefCell::new(sys::adopt::glommio_stream(socket)));
    (fd, Rc::clone(&half), half)
}

async fn write(half: &Half, bytes: &[u8]) -> io::Result<usize> {
    poll_fn(|cx| Pin::new(&mut *half.borrow_mut()).poll_write(cx, bytes)).await
}

impl Runtime for Glommio {
    const NAME: &'static str = "glommio";
    type Reader = Half;
    type Writer = Half;
    type Watch = OwnedFd;

    fn spawn(task: impl Future<Output = ()> + 'static) {
        drop(glommio::spawn_local(task).detach()); // the handle only: the task goes on
    }

    async fn sleep(time: Duration) {
        glommio::timer::sleep(time).await;
    }

    async fn give_way() {
        glommio::executor().yield_task_queue_now().await;
    }

    fn open(socket: TcpStream) -> io::Result<(RawFd, Half, Half)> {
        Ok(share(socket))
    }

    fn close(reader: Half, writer: Half) {
        drop((reader, writer));
    }

    async fn connect(
        socket: TcpStream,
        to: SocketAddr,
        deadline: Mono,
    ) -> io::Result<(RawFd, Half, Half)> {
        socket.set_nonblocking(true)?;
        match sys::socket::connect(socket.as_raw_fd(), to) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        let (fd, reader, writer) = share(socket);
        // Sending nothing takes as long as connecting does, and fails as it fails.
        let connected = within(write(&writer, &[]), until::<Self>(deadline)).await;
        connected.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)))?;
        Ok((fd, reader, writer))
    }

    async fn recv(reader: &mut Half, mut buffer: Vec<u8>) -> Lent {
        let bytes = poll_fn(|cx| {
            let mut stream = reader.borrow_mut();
            Pin::new(&mut *stream).poll_read(cx, &mut buffer)
        });
        (bytes.await, buffer)
    }

    async fn send(writer: &mut Half, bytes: Vec<u8>, from: usize) -> Lent {
        (write(writer, &bytes[from..]).await, bytes)
    }

    fn watch(fd: OwnedFd) -> io::Result<OwnedFd> {
        Ok(fd)
    }

    /// glommio waits for descriptors inside its streams only: one that is new waits before its first receive, whatever
    /// the descriptor is, and what that receive says does not matter.
    async fn readable(watch: &OwnedFd) -> io::Result<()> {
        let mut stream = sys::adopt::glommio_stream(TcpStream::from(watch.try_clone()?));
        let mut byte = [0];
        let _ = poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut byte)).await;
        Ok(())
    }
}

/// Bytes that a driver of this configuration needs.
pub fn memory_needed_by(config: &DriverConfig) -> usize {
    memory_needed::<Glommio>(config) + FILE_BYTES
}

fn executor(entries: u32) -> Result<LocalExecutor, DriverError> {
    LocalExecutorBuilder::new(Placement::Unbound)
        .io_memory(FILE_BYTES)
        .ring_depth(entries.max(128) as usize)
        .make()
        .map_err(|error: GlommioError<()>| {
            DriverError::runtime(Glommio::NAME, io::Error::other(error.to_string()))
        })
}

/// Sets the runtime up, and takes it down.
///
/// # Errors
/// [`DriverError::Runtime`]: the kernel has not what it needs, or forbids it.
pub fn try_out() -> Result<(), DriverError> {
    uring::is_allowed()?;
    executor(0).map(drop)
}

/// Runs `handler` on the calling thread until it stops; gives it back.
///
/// # Errors
/// [`DriverError`]: a value out of range, no box, no such core, the runtime cannot be set up.
pub fn run(
    config: DriverConfig,
    handler: Box<dyn Handler>,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
) -> Result<Box<dyn Handler>, DriverError> {
    let prepared = Prepared::new(&config, handler, Shared { post, drain, stats })?;
    executor(config.ring_entries)?.run(drive::<Glommio>(prepared, config))
}
