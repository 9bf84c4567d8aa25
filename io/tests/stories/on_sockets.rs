//! The stories on the drivers with sockets: the handler on a thread of its own, clients on real sockets over loopback.
//!
//! Clients block, with a bound that only ends a story that fails.

use super::subject::{Act, Seen, Subject};
use super::{End, Harness, Sock, Target};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_core::limit::lease::ShardId;
use weir_core::mail::{Addr, Mail};
use weir_io::choice::{self, DriverKind};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::net::ListenSocket;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;

const SUBJECT: Addr = Addr::Shard(ShardId(0));
/// After this a story waits in vain.
const BOUND: Duration = Duration::from_secs(30);

/// How the driver is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As the program does.
    Usual,
    /// So small that every bound of queues and buffers is met all the time.
    Tiny,
    /// With a completion queue of 64 entries.
    ShortQueue,
}

/// A driver with sockets, as a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    pub kind: DriverKind,
    /// Accepted sockets are direct descriptors.
    pub direct: bool,
}

impl Which {
    pub const ALL: [Self; 5] = [
        Self::plain(DriverKind::Uring),
        Self {
            kind: DriverKind::Uring,
            direct: true,
        },
        Self::plain(DriverKind::Monoio),
        Self::plain(DriverKind::Epoll),
        Self::plain(DriverKind::Glommio),
    ];

    const fn plain(kind: DriverKind) -> Self {
        Self {
            kind,
            direct: false,
        }
    }

    pub fn name(self) -> &'static str {
        if self.direct {
            "uring-direct"
        } else {
            self.kind.name()
        }
    }
}

/// One story's driver and clients.
pub struct OnSockets {
    which: Which,
    size: Size,
    post: Arc<PostOffice>,
    drain: Arc<DrainSwitch>,
    stats: Arc<DriverStats>,
    seen: Arc<Seen>,
    served: Option<SocketAddr>,
    driver: Option<JoinHandle<()>>,
    posters: Vec<JoinHandle<()>>,
    /// `None`: closed or reset.
    clients: Vec<Option<TcpStream>>,
    listens: Option<TcpListener>,
    /// Sockets that make an address refuse or stay silent.
    held: Vec<Socket>,
}

impl OnSockets {
    pub fn new(which: Which, size: Size) -> Self {
        let post = Arc::new(PostOffice::new([SUBJECT]).expect("a descriptor for the doorbell"));
        Self {
            which,
            size,
            drain: Arc::new(DrainSwitch::new(Arc::clone(&post))),
            post,
            stats: Arc::default(),
            seen: Arc::default(),
            served: None,
            driver: None,
            posters: Vec::new(),
            clients: Vec::new(),
            listens: None,
            held: Vec::new(),
        }
    }

    fn add_client(&mut self, stream: TcpStream) -> Sock {
        stream.set_read_timeout(Some(BOUND)).expect("not zero");
        stream.set_write_timeout(Some(BOUND)).expect("not zero");
        stream.set_nodelay(true).expect("a TCP socket");
        self.clients.push(Some(stream));
        Sock(self.clients.len() - 1)
    }

    fn client(&mut self, sock: Sock) -> &mut TcpStream {
        self.clients[sock.0].as_mut().expect("not closed yet")
    }

    fn hold(&mut self, prepare: impl FnOnce(&Socket)) -> SocketAddr {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a descriptor");
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&any_port.into()).expect("loopback has ports");
        prepare(&socket);
        let local = socket.local_addr().expect("it is bound");
        self.held.push(socket);
        local.as_socket().expect("an internet address")
    }
}

impl Harness for OnSockets {
    fn serve(&mut self, act: Act, conns_max: u32) -> Arc<Seen> {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listen = ListenSocket::bind(any_port).expect("loopback has ports");
        self.served = Some(listen.local_addr());
        let mut config = DriverConfig::new(SUBJECT);
        config.listen = Some(listen);
        config.conns_max = conns_max;
        config.direct = self.which.direct;
        match self.size {
            Size::Usual => {}
            Size::Tiny => {
                (config.ring_entries, config.recv_buffers) = (4, 2);
                config.recv_buffer_bytes = 64;
            }
            Size::ShortQueue => config.ring_entries = 16,
        }
        let (subject, seen) = Subject::new(act);
        let (post, drain) = (Arc::clone(&self.post), Arc::clone(&self.drain));
        let (kind, stats) = (self.which.kind, Arc::clone(&self.stats));
        self.driver = Some(thread::spawn(move || {
            choice::run(kind, config, Box::new(subject), post, drain, stats)
                .expect("the driver runs");
        }));
        self.seen = Arc::clone(&seen);
        seen
    }

    fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    fn stats(&self) -> Arc<DriverStats> {
        Arc::clone(&self.stats)
    }

    fn mail(&mut self, number: u16) {
        let mail = Mail::ViewsAsk(ShardId(number));
        assert!(self.post.deliver(SUBJECT, mail).is_ok(), "the box is full");
    }

    fn mail_from_many(&mut self, senders: u16, each: u16) {
        for sender in 0..senders {
            let post = Arc::clone(&self.post);
            self.posters.push(thread::spawn(move || {
                for number in sender * each..(sender + 1) * each {
                    let mut mail = Mail::ViewsAsk(ShardId(number));
                    while let Err(refused) = post.deliver(SUBJECT, mail) {
                        mail = refused;
                        thread::yield_now();
                    }
                }
            }));
        }
    }

    fn drain(&mut self) {
        self.drain.throw();
    }

    fn until(&mut self, what: &str, done: &mut dyn FnMut() -> bool) {
        self.seen.wait(what, BOUND, done);
    }

    fn stop(&mut self) {
        assert!(self.post.deliver(SUBJECT, Mail::StatsAsk).is_ok());
    }

    fn join(&mut self) {
        let Some(driver) = self.driver.take() else {
            return; // the story has waited for it
        };
        let ended = &mut || driver.is_finished();
        self.seen.wait("it does not stop", BOUND, ended);
        driver.join().expect("the driver ends without a panic");
        for poster in self.posters.drain(..) {
            poster.join().expect("posters end without a panic");
        }
        let overflows = self.stats.cq_overflow.get();
        assert!(
            self.size != Size::Usual || overflows == 0,
            "{overflows} turns found the completion queue full"
        );
        let unrestricted = self.stats.rings_unrestricted.get();
        assert_eq!(unrestricted, 0, "the ring does more than it is for");
    }

    fn dial(&mut self) -> Sock {
        let served = self.served.expect("a story serves first");
        let stream = TcpStream::connect(served).expect("the backlog has room");
        self.add_client(stream)
    }

    fn target(&mut self, target: Target) -> SocketAddr {
        match target {
            Target::Listens => {
                let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
                let local = listener.local_addr().expect("it is bound");
                self.listens = Some(listener);
                local
            }
            Target::Refuses => self.hold(|_| {}), // bound, so that nobody else listens there
            Target::Silent => {
                // A full backlog drops what would be one more: it holds one connection more than listen(2) is told.
                let silent = self.hold(|socket| socket.listen(0).expect("it is bound"));
                let fills = TcpStream::connect(silent).expect("the backlog holds one");
                self.add_client(fills);
                silent
            }
        }
    }

    fn accept(&mut self) -> Sock {
        let listener = self.listens.as_ref().expect("the story named it as target");
        let (stream, _) = listener.accept().expect("a connection");
        self.add_client(stream)
    }

    fn send(&mut self, sock: Sock, bytes: &[u8]) {
        let sent = self.client(sock).write_all(bytes);
        sent.expect("the other side receives");
    }

    fn try_send(&mut self, sock: Sock, bytes: &[u8]) -> usize {
        let client = self.client(sock);
        client.set_nonblocking(true).expect("a socket");
        let taken = match client.write(bytes) {
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("sending: {error}"),
        };
        client.set_nonblocking(false).expect("a socket");
        taken
    }

    fn read(&mut self, sock: Sock, bytes: usize) -> Vec<u8> {
        let mut got = vec![0; bytes];
        self.client(sock)
            .read_exact(&mut got)
            .expect("so many come");
        got
    }

    fn read_to_end(&mut self, sock: Sock) -> (Vec<u8>, End) {
        let mut got = Vec::new();
        match self.client(sock).read_to_end(&mut got) {
            Ok(_) => (got, End::Fin),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => (got, End::Reset),
            Err(error) => panic!("reading to the end: {error}"),
        }
    }

    fn half_close(&mut self, sock: Sock) {
        // Fails when the other side has reset: the story will see.
        let _ = self.client(sock).shutdown(Shutdown::Write);
    }

    fn reset(&mut self, sock: Sock) {
        let client = self.clients[sock.0].take().expect("not closed yet");
        // SO_LINGER with 0 seconds: close sends a reset (socket(7)).
        let linger = SockRef::from(&client).set_linger(Some(Duration::ZERO));
        linger.expect("a TCP socket");
    }

    fn close(&mut self, sock: Sock) {
        self.clients[sock.0] = None;
    }
}
