//! A backend whose operations are the tasks of an async runtime of one thread: monoio, on its io_uring or its epoll
//! driver, and glommio.
//!
//! A slot has two tasks, started when it is first used: one receives, one sends; each gets its work through a gate and
//! puts what became of it into one queue, which wakes the task that runs the turns. So nothing is spawned per request.
//! Between two turns the runtime does its I/O; in a turn nothing of it runs, so the order of design §3 holds.
//! [`Runtime`] is all that differs from one runtime to the other.

mod backend;
mod gate;
#[cfg(feature = "glommio")]
pub mod on_glommio;
pub mod on_monoio;

use self::backend::Tasks;
use self::gate::within;
use crate::clock;
use crate::driver::{self, DriverConfig, Prepared, Wait};
use crate::error::DriverError;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;
use weir_core::port::Handler;
use weir_core::time::Mono;

/// A buffer that was lent to an operation, and what became of it.
type Lent = (io::Result<usize>, Vec<u8>);

/// What a driver needs of an async runtime. Called on the runtime's thread only.
pub(crate) trait Runtime: 'static {
    /// Its name in messages.
    const NAME: &'static str;
    /// The receiving half of a socket.
    type Reader: 'static;
    /// The sending half.
    type Writer: 'static;
    /// A descriptor whose readiness can be waited for.
    type Watch: 'static;

    /// Starts a task.
    fn spawn(task: impl Future<Output = ()> + 'static);
    /// Sleeps for `time` or a little longer.
    fn sleep(time: Duration) -> impl Future<Output = ()>;
    /// Lets the other tasks and the kernel go first.
    fn give_way() -> impl Future<Output = ()>;
    /// Takes a connected socket; its descriptor.
    fn open(socket: TcpStream) -> io::Result<(RawFd, Self::Reader, Self::Writer)>;
    /// Closes a socket.
    fn close(reader: Self::Reader, writer: Self::Writer);
    /// Connects a socket until `deadline`, `ETIMEDOUT` then; its halves are closed by the caller.
    fn connect(
        socket: TcpStream,
        to: SocketAddr,
        deadline: Mono,
    ) -> impl Future<Output = io::Result<(RawFd, Self::Reader, Self::Writer)>>;
    /// Receives into `buffer`, from its start, as much as it holds at most.
    fn recv(reader: &mut Self::Reader, buffer: Vec<u8>) -> impl Future<Output = Lent>;
    /// Sends what `bytes` has from `from` on, or its beginning.
    fn send(writer: &mut Self::Writer, bytes: Vec<u8>, from: usize) -> impl Future<Output = Lent>;
    /// Takes a descriptor to wait for. It need not be a stream's.
    fn watch(fd: OwnedFd) -> io::Result<Self::Watch>;
    /// Waits until it has something to read; when in doubt it returns.
    ///
    /// # Errors
    /// The system has no room for the wait.
    fn readable(watch: &Self::Watch) -> impl Future<Output = io::Result<()>>;
}

/// Bytes that a driver of this configuration needs: the slots' tasks and receive buffers, and what every driver has.
pub(crate) fn memory_needed<R: Runtime>(config: &DriverConfig) -> usize {
    Tasks::<R>::memory_needed(config) + driver::memory_needed(config)
}

/// Runs the turns until the handler stops; gives it back.
async fn drive<R: Runtime>(
    prepared: Prepared,
    config: DriverConfig,
) -> Result<Box<dyn Handler>, DriverError> {
    let tasks = Tasks::<R>::new(config, prepared.bell())
        .map_err(|error| DriverError::runtime(R::NAME, error))?;
    let mut driver = prepared.with(tasks);
    driver.start()?;
    while !driver.is_done() {
        let wait = driver.may_sleep();
        sleep(&driver.backend, wait).await;
        driver.turn()?;
    }
    driver.ring_bell();
    driver.backend.leave().await;
    Ok(driver.into_handler())
}

/// Lets the runtime work until something is done, but no longer than allowed.
async fn sleep<R: Runtime>(tasks: &Tasks<R>, wait: Wait) {
    match wait {
        Wait::No => R::give_way().await,
        Wait::ForEver => tasks.wait().await,
        Wait::AtMost(time) => {
            within(tasks.wait(), R::sleep(time)).await;
        }
    }
}

/// Sleeps until `deadline`, never less.
async fn until<R: Runtime>(deadline: Mono) {
    while let left @ 1.. = deadline.since(clock::read().mono) {
        R::sleep(Duration::from_nanos(left)).await;
    }
}
