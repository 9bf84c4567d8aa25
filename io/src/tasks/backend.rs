//! The backend: slots, their tasks, and the queue of what the tasks have done.

use super::Runtime;
use super::gate::{Done, Gate, Position, Switch, within};
use crate::driver::{Backend, Completion, DriverConfig, SendProgress, empty};
use crate::limits::{ACCEPT_RETRY_MS, ACCEPTS_MAX, COMPLETIONS_PER_TURN_MAX, SEND_KEEP_BYTES_MAX};
use crate::sys;
use crate::sys::eventfd::EventFd;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;
use weir_core::port::ConnId;
use weir_core::time::Mono;

/// A receive: what the task gets, and gives back.
struct RecvWork<R: Runtime> {
    conn: ConnId,
    reader: R::Reader,
    buffer: Vec<u8>,
}

/// A send.
struct SendWork<R: Runtime> {
    conn: ConnId,
    writer: R::Writer,
    bytes: Vec<u8>,
    from: usize,
}

/// What a task has done.
enum Outcome<R: Runtime> {
    Recv(RecvWork<R>, io::Result<usize>),
    Send(SendWork<R>, io::Result<usize>),
    Accept(Result<TcpStream, i32>, bool),
    Connect(ConnId, io::Result<(RawFd, R::Reader, R::Writer)>),
}

/// The gates of a slot's tasks.
struct Gates<R: Runtime> {
    recv: Rc<Gate<RecvWork<R>>>,
    send: Rc<Gate<SendWork<R>>>,
}

/// One slot. Halves and buffers are here while no operation has them.
struct Slot<R: Runtime> {
    gates: Option<Gates<R>>,
    fd: RawFd,
    reader: Option<R::Reader>,
    writer: Option<R::Writer>,
    buffer: Vec<u8>,
    bytes: Vec<u8>,
    sent_bytes: usize,
}

impl<R: Runtime> Default for Slot<R> {
    fn default() -> Self {
        Self {
            gates: None,
            fd: -1,
            reader: None,
            writer: None,
            buffer: Vec::new(),
            bytes: Vec::new(),
            sent_bytes: 0,
        }
    }
}

/// See the module.
pub struct Tasks<R: Runtime> {
    slots: Box<[Slot<R>]>,
    recv_buffer_bytes: usize,
    done: Rc<Done<Outcome<R>>>,
    /// Of the accepting task, and of the doorbell's.
    accepting: Rc<Switch>,
    ringing: Rc<Switch>,
    pushed: u64,
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Receives as often as asked.
async fn receive<R: Runtime>(gate: Rc<Gate<RecvWork<R>>>, done: Rc<Done<Outcome<R>>>) {
    while let Some(mut work) = gate.take().await {
        let buffer = std::mem::take(&mut work.buffer);
        let (result, buffer) = R::recv(&mut work.reader, buffer).await;
        work.buffer = buffer;
        done.push(Outcome::Recv(work, result));
    }
}

/// Sends as often as asked.
async fn send<R: Runtime>(gate: Rc<Gate<SendWork<R>>>, done: Rc<Done<Outcome<R>>>) {
    while let Some(mut work) = gate.take().await {
        let bytes = std::mem::take(&mut work.bytes);
        let (result, bytes) = R::send(&mut work.writer, bytes, work.from).await;
        work.bytes = bytes;
        done.push(Outcome::Send(work, result));
    }
}

/// A listening socket, and the same once more to wait for.
struct Listener<R: Runtime> {
    socket: TcpListener,
    watch: R::Watch,
}

impl<R: Runtime> Listener<R> {
    fn new(socket: TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let watch = R::watch(socket.try_clone()?.into())?;
        Ok(Self { socket, watch })
    }

    /// The next client; `None` when `switch` was turned off, or closed, before one came.
    async fn accept(&self, switch: &Switch) -> Option<io::Result<TcpStream>> {
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => return Some(Ok(socket)), // close-on-exec is set by std
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Some(Err(error)),
                Err(_) => {}
            }
            let off = switch.until(|position| position != Position::On);
            if let Err(error) = within(R::readable(&self.watch), off).await? {
                return Some(Err(error));
            }
        }
    }
}

/// Accepts while the switch is on; an error turns it off.
async fn accept<R: Runtime>(listener: Listener<R>, switch: Rc<Switch>, done: Rc<Done<Outcome<R>>>) {
    let mut in_a_row = 0;
    while switch.until(|position| position != Position::Off).await == Position::On {
        let Some(result) = listener.accept(&switch).await else {
            continue;
        };
        let result = result.map_err(|error| errno(&error));
        if result.is_err() {
            switch.turn(Position::Off);
        }
        let more = switch.position() == Position::On;
        done.push(Outcome::Accept(result, more));
        in_a_row += 1;
        if in_a_row == ACCEPTS_MAX {
            in_a_row = 0;
            R::give_way().await; // the turns decide whether there is room for more
        }
    }
}

/// Passes the doorbell on. While the system has no room for the wait, it is looked at now and then.
async fn ring<R: Runtime>(
    (bell, watch): (EventFd, R::Watch),
    switch: Rc<Switch>,
    done: Rc<Done<Outcome<R>>>,
) {
    while switch.position() == Position::On {
        if R::readable(&watch).await.is_err() {
            R::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
        }
        bell.wait(Some(Duration::ZERO));
        done.ring();
    }
}

impl<R: Runtime> Tasks<R> {
    /// No slot has its tasks yet; the tasks of accept and doorbell run.
    ///
    /// # Errors
    /// The runtime does not take listener or doorbell.
    pub fn new(config: DriverConfig, bell: &EventFd) -> io::Result<Self> {
        let mut slots = Vec::new();
        slots.resize_with(config.conns_max as usize, Slot::default);
        let tasks = Self {
            slots: slots.into_boxed_slice(),
            recv_buffer_bytes: config.recv_buffer_bytes as usize,
            done: Rc::default(),
            accepting: Rc::default(),
            ringing: Rc::default(),
            pushed: 0,
        };
        tasks.ringing.turn(Position::On);
        let bell = (bell.another()?, R::watch(bell.another()?.into())?);
        tasks.spawn(ring::<R>(bell, Rc::clone(&tasks.ringing), tasks.done()));
        if let Some(listen) = config.listen {
            let switch = Rc::clone(&tasks.accepting);
            let listener = Listener::new(listen.into_inner())?;
            tasks.spawn(accept::<R>(listener, switch, tasks.done()));
        }
        Ok(tasks)
    }

    /// Bytes of the slots with their tasks and receive buffers.
    pub fn memory_needed(config: &DriverConfig) -> usize {
        let tasks = size_of_val(&receive::<R>(Rc::default(), Rc::default()))
            + size_of_val(&send::<R>(Rc::default(), Rc::default()));
        let gates = size_of::<Gate<RecvWork<R>>>() + size_of::<Gate<SendWork<R>>>();
        config.conns_max as usize
            * (size_of::<Slot<R>>() + tasks + gates + config.recv_buffer_bytes as usize)
    }

    /// Waits until a task has done something, or the doorbell rang.
    pub async fn wait(&self) {
        self.done.wait().await;
    }

    fn done(&self) -> Rc<Done<Outcome<R>>> {
        Rc::clone(&self.done)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let done = self.done();
        R::spawn(async move { done.count(task).await });
    }

    /// Ends every task, so that nothing keeps the runtime alive. The doorbell was rung.
    pub async fn leave(&mut self) {
        self.accepting.turn(Position::Closed);
        self.ringing.turn(Position::Closed);
        for slot in &self.slots {
            if let Some(gates) = &slot.gates {
                gates.recv.close();
                gates.send.close();
            }
        }
        self.done.all_ended().await;
    }

    fn slot(&mut self, conn: ConnId) -> &mut Slot<R> {
        &mut self.slots[conn.slot as usize]
    }

    /// Gives a slot its socket, and its tasks if it has none.
    fn fill(&mut self, conn: ConnId, (fd, reader, writer): (RawFd, R::Reader, R::Writer)) {
        let slot = &mut self.slots[conn.slot as usize];
        (slot.fd, slot.reader, slot.writer) = (fd, Some(reader), Some(writer));
        if slot.gates.is_none() {
            let (recv, send_) = (Rc::default(), Rc::default());
            slot.buffer = vec![0; self.recv_buffer_bytes];
            slot.gates = Some(Gates {
                recv: Rc::clone(&recv),
                send: Rc::clone(&send_),
            });
            self.spawn(receive::<R>(recv, self.done()));
            self.spawn(send::<R>(send_, self.done()));
        }
    }

    /// Takes back what an operation had.
    fn completion(&mut self, outcome: Outcome<R>) -> Completion<TcpStream> {
        match outcome {
            Outcome::Recv(work, result) => {
                let slot = self.slot(work.conn);
                (slot.reader, slot.buffer) = (Some(work.reader), work.buffer);
                Completion::Recv {
                    conn: work.conn,
                    buffer: result.is_ok().then_some(work.conn.slot),
                    bytes: result.map_err(|error| errno(&error)),
                    more: false,
                }
            }
            Outcome::Send(work, result) => {
                let slot = self.slot(work.conn);
                (slot.writer, slot.bytes) = (Some(work.writer), work.bytes);
                Completion::Send {
                    conn: work.conn,
                    bytes: result.map_err(|error| errno(&error)),
                }
            }
            Outcome::Accept(socket, more) => Completion::Accept { socket, more },
            Outcome::Connect(conn, result) => Completion::Connect {
                conn,
                result: result
                    .map(|halves| self.fill(conn, halves))
                    .map_err(|error| errno(&error)),
            },
        }
    }
}

/// An open conn has both halves, and an operation takes the one that it needs.
const HALF: &str = "one operation per side of a conn at a time";

impl<R: Runtime> Backend for Tasks<R> {
    type Socket = TcpStream;

    fn accept(&mut self, _room: usize) -> io::Result<()> {
        self.accepting.turn(Position::On);
        self.pushed += 1;
        Ok(())
    }

    fn accept_stop(&mut self) -> io::Result<()> {
        self.accepting.turn(Position::Off);
        self.done.push(Outcome::Accept(Err(libc::ECANCELED), false));
        Ok(())
    }

    fn peer(&self, socket: &TcpStream) -> Option<SocketAddr> {
        socket.peer_addr().ok()
    }

    fn open(&mut self, conn: ConnId, socket: TcpStream) -> io::Result<()> {
        self.fill(conn, R::open(socket)?);
        Ok(())
    }

    fn discard(&mut self, socket: TcpStream) {
        drop(socket);
    }

    fn connect(
        &mut self,
        conn: ConnId,
        socket: TcpStream,
        to: SocketAddr,
        deadline: Mono,
    ) -> io::Result<()> {
        let done = self.done();
        self.spawn(async move {
            let result = R::connect(socket, to, deadline).await;
            done.push(Outcome::Connect(conn, result));
        });
        self.pushed += 1;
        Ok(())
    }

    fn shutdown(&mut self, conn: ConnId, how: Shutdown) -> bool {
        // Fails when the peer has reset: then all has ended, and the receive says so.
        let _ = sys::socket::shutdown(self.slot(conn).fd, how);
        false
    }

    fn release(&mut self, conn: ConnId) {
        let slot = self.slot(conn);
        slot.fd = -1;
        if let (Some(reader), Some(writer)) = (slot.reader.take(), slot.writer.take()) {
            R::close(reader, writer);
        }
    }

    fn recv(&mut self, conn: ConnId) -> io::Result<()> {
        let slot = self.slot(conn);
        let work = RecvWork {
            conn,
            reader: slot.reader.take().expect(HALF),
            buffer: std::mem::take(&mut slot.buffer),
        };
        slot.gates.as_ref().expect(HALF).recv.put(work);
        self.pushed += 1;
        Ok(())
    }

    fn recv_stop(&mut self, _: ConnId) -> io::Result<()> {
        unreachable!("a receive of a task ends with its first bytes")
    }

    fn received(&self, buffer: u32, bytes: usize) -> &[u8] {
        &self.slots[buffer as usize].buffer[..bytes]
    }

    fn buffer_back(&mut self, _: u32) {} // it stays with its slot

    fn send(&mut self, conn: ConnId, bytes: Vec<u8>) -> io::Result<()> {
        let slot = self.slot(conn);
        slot.bytes = bytes;
        slot.sent_bytes = 0;
        self.send_rest(conn)
    }

    fn sent(&mut self, conn: ConnId, bytes: usize) -> SendProgress {
        let slot = self.slot(conn);
        slot.sent_bytes += bytes;
        if slot.sent_bytes < slot.bytes.len() {
            SendProgress::Short
        } else {
            SendProgress::Done(self.send_over(conn))
        }
    }

    fn send_rest(&mut self, conn: ConnId) -> io::Result<()> {
        let slot = self.slot(conn);
        let work = SendWork {
            conn,
            writer: slot.writer.take().expect(HALF),
            bytes: std::mem::take(&mut slot.bytes),
            from: slot.sent_bytes,
        };
        slot.gates.as_ref().expect(HALF).send.put(work);
        self.pushed += 1;
        Ok(())
    }

    fn send_over(&mut self, conn: ConnId) -> Vec<u8> {
        empty(
            std::mem::take(&mut self.slot(conn).bytes),
            SEND_KEEP_BYTES_MAX,
        )
    }

    fn bell(&mut self) -> io::Result<()> {
        Ok(()) // its task runs as long as the driver
    }

    fn completions(&mut self, into: &mut Vec<Completion<TcpStream>>) -> bool {
        while into.len() < COMPLETIONS_PER_TURN_MAX
            && let Some(outcome) = self.done.pop()
        {
            into.push(self.completion(outcome));
        }
        !self.done.is_empty()
    }

    fn take_pushed(&mut self) -> u64 {
        std::mem::take(&mut self.pushed)
    }

    fn overflowed(&mut self) -> bool {
        false
    }
}
