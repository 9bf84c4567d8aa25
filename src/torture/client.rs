//! Clients of a server that will be killed: blocking connections that note in order what they asked and were told.
//!
//! Threads of their own, because each buyer asks, thinks and asks again while the server dies; bytes come from the
//! demo's words and are read by the load generator's strict reader.

use super::limits::{BUYERS_PER_CLIENT, CLIENTS, LIMBO_MS, PIPELINE};
use super::told::{Asked, Said, Told};
use crate::config::Plan;
use crate::demo::words::{Flaw, Payment, Words};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_bench::client::{self, AnswerAt};
use weir_core::rng::Rng;
use weir_core::time::{Now, WallMs};
use weir_proto::answer::{Code, RequestState, read_code, read_state, read_text_member};
use weir_proto::payment::reservation_id;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The connection broke: the server was killed.
    Gone,
    /// Nothing came in time.
    Silent(Asked),
    /// Not an answer of weir's.
    Bad(String),
}

/// Where and how to ask; what all clients of one server share.
pub struct Counter<'a> {
    /// The sale.
    pub plan: &'a Plan,
    /// The server.
    pub to: SocketAddr,
    /// The sale's seed: makes the same tickets over all its servers.
    pub seed: u64,
    /// The middle of the tickets' validity.
    pub start_ms: u64,
    /// The server's wall clock minus ours.
    pub wall_shift_ms: AtomicI64,
    /// Answers so far, also "not now".
    pub answers: AtomicU64,
    /// Answers that said "not now".
    pub not_now: AtomicU64,
    /// The load shall end although the server lives.
    pub over: AtomicBool,
}

impl Counter<'_> {
    fn words(&self) -> Result<Words, NoAnswer> {
        Words::new(self.plan, self.to.to_string(), self.seed, self.start_ms)
            .ok_or_else(|| NoAnswer::Bad("the sale has no SKU or no payment key".to_owned()))
    }

    fn put(&self, words: &mut Words, told: &Told, asked: Asked, out: &mut Vec<u8>) {
        let shift_ms = self.wall_shift_ms.load(Ordering::Relaxed);
        put(words, told, asked, shift_ms, out);
    }
}

/// Appends a question about a request; `wall_shift_ms`: the server's wall clock minus ours.
pub fn put(words: &mut Words, told: &Told, asked: Asked, wall_shift_ms: i64, out: &mut Vec<u8>) {
    let now = weir_io::clock::read();
    let now = Now {
        wall: WallMs(now.wall.0.saturating_add_signed(wall_shift_ms)),
        ..now
    };
    match (asked, told.reservation()) {
        (Asked::Payment, Some(reservation)) => {
            let payment = Payment {
                number: 1,
                reservation,
                surplus: 0,
            };
            words.payment(now, payment, out);
        }
        (Asked::Submit, _) => words.submit(told.ask(), Flaw::None, out),
        (Asked::Status | Asked::Payment, _) => words.status(told.ask(), out),
    }
}

/// A blocking connection.
pub struct Conn {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Conn {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn open(to: SocketAddr) -> Result<Self, NoAnswer> {
        let open = || {
            let stream = TcpStream::connect(to)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_millis(LIMBO_MS)))?;
            Ok::<_, std::io::Error>(stream)
        };
        Ok(Self {
            stream: open().map_err(|_| NoAnswer::Gone)?,
            input: Vec::new(),
        })
    }

    /// Sends requests.
    ///
    /// # Errors
    /// It broke.
    pub fn send(&mut self, requests: &[u8]) -> Result<(), NoAnswer> {
        let sent = self.stream.write_all(requests);
        sent.map_err(|_| NoAnswer::Gone)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// See [`NoAnswer`].
    pub fn receive(&mut self, asked: Asked) -> Result<Said, NoAnswer> {
        loop {
            match client::read_answer(&self.input, false) {
                client::Read::Done(answer) => {
                    let said = said(&self.input, &answer, asked)?;
                    self.input.drain(..answer.bytes());
                    return Ok(said);
                }
                client::Read::Interim(bytes) => drop(self.input.drain(..bytes)),
                client::Read::NeedMore(_) => self.read(asked)?,
                client::Read::Bad(bad) => return Err(NoAnswer::Bad(bad.as_str().to_owned())),
            }
        }
    }

    fn read(&mut self, asked: Asked) -> Result<(), NoAnswer> {
        let mut space = [0; 8192];
        match self.stream.read(&mut space) {
            Ok(0) => Err(NoAnswer::Gone),
            Ok(count) => {
                self.input.extend_from_slice(&space[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(NoAnswer::Silent(asked))
            }
            Err(_) => Err(NoAnswer::Gone),
        }
    }
}

fn said(input: &[u8], answer: &AnswerAt, asked: Asked) -> Result<Said, NoAnswer> {
    let body = &input[answer.body.clone()];
    let bad = || NoAnswer::Bad(String::from_utf8_lossy(body).into_owned());
    Ok(Said {
        asked,
        code: read_code(body).ok_or_else(bad)?,
        state: read_state(body).ok_or_else(bad)?,
        reservation: read_text_member(body, "reservation_id").and_then(reservation_id),
    })
}

/// Asks one question about each of `told`, pipelined; notes what is said. "Not now" and "not known yet" are asked again.
///
/// # Errors
/// [`NoAnswer`]: nobody killed this server.
pub fn ask_all<'a>(
    counter: &Counter<'_>,
    asked: Asked,
    told: impl Iterator<Item = &'a mut Told>,
) -> Result<(), NoAnswer> {
    let started = Instant::now();
    let (mut conn, mut words) = (Conn::open(counter.to)?, counter.words()?);
    let mut waiting: VecDeque<&mut Told> = told.collect();
    let mut requests = Vec::new();
    while !waiting.is_empty() {
        let batch: Vec<&mut Told> = waiting.drain(..PIPELINE.min(waiting.len())).collect();
        requests.clear();
        for told in &batch {
            counter.put(&mut words, told, asked, &mut requests);
        }
        conn.send(&requests)?;
        for told in batch {
            let said = conn.receive(asked)?;
            if said.is_try_again() || said.code == Code::SeckillPending {
                if started.elapsed() > Duration::from_millis(LIMBO_MS) {
                    return Err(NoAnswer::Silent(asked));
                }
                waiting.push_back(told);
            } else {
                told.said.push(said);
            }
        }
    }
    Ok(())
}

/// The load on one server: all clients until the server is gone or the load is over.
/// What everybody was told, and what was no answer although nobody was killed.
pub fn rush(
    counter: &Counter<'_>,
    first_buyer: u32,
    mut rng: Rng,
    meanwhile: impl FnOnce(),
) -> (Vec<Told>, Vec<NoAnswer>) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let rng = rng.fork();
                scope.spawn(move || run_client(counter, first_buyer, client, rng))
            })
            .collect();
        meanwhile();
        let (mut told, mut odd) = (Vec::new(), Vec::new());
        for thread in threads {
            match thread.join() {
                Ok((said, end)) => {
                    told.extend(said);
                    odd.extend(end.err().filter(|end| *end != NoAnswer::Gone));
                }
                Err(_) => odd.push(NoAnswer::Bad("a client panicked".to_owned())),
            }
        }
        (told, odd)
    })
}

fn run_client(
    counter: &Counter<'_>,
    first_buyer: u32,
    client: u32,
    rng: Rng,
) -> (Vec<Told>, Result<(), NoAnswer>) {
    let words = match counter.words() {
        Ok(words) => words,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut buyers = Buyers {
        counter,
        rng,
        words,
        conns: [counter.to; 2].map(Conn::open),
        told: Vec::new(),
        request: Vec::new(),
    };
    let end = buyers.story(first_buyer + client * BUYERS_PER_CLIENT);
    (buyers.told, end)
}

/// The buyers of one thread, one after the other, with two connections that may lead to two shards.
struct Buyers<'a> {
    counter: &'a Counter<'a>,
    rng: Rng,
    words: Words,
    conns: [Result<Conn, NoAnswer>; 2],
    told: Vec<Told>,
    request: Vec<u8>,
}

impl Buyers<'_> {
    fn story(&mut self, first_buyer: u32) -> Result<(), NoAnswer> {
        let mut unpaid = VecDeque::new();
        for buyer in first_buyer..first_buyer + BUYERS_PER_CLIENT {
            if self.counter.over.load(Ordering::Relaxed) {
                return Ok(());
            }
            let request = self.meet(buyer, 0);
            if self.rng.chance(1, 10) {
                self.ask(request, Asked::Status)?; // before its submit: this closes the door
            }
            self.ask(request, Asked::Submit)?;
            if self.rng.chance(1, 5) {
                self.conns.swap(0, 1);
                self.ask(request, Asked::Submit)?;
            }
            self.note(request, &mut unpaid);
            if self.rng.chance(1, 10) {
                let second = self.meet(buyer, 1);
                self.ask(second, Asked::Submit)?;
                self.note(second, &mut unpaid);
            }
            if self.rng.chance(1, 8) {
                let any = self.rng.below(self.told.len() as u64) as usize;
                self.ask(any, Asked::Status)?;
            }
            if let Some(request) = unpaid.pop_front() {
                self.pay(request, &mut unpaid)?;
            }
        }
        Ok(())
    }

    fn note(&self, request: usize, unpaid: &mut VecDeque<usize>) {
        if self.told[request].reservation().is_some() {
            unpaid.push_back(request);
        }
    }

    fn pay(&mut self, request: usize, unpaid: &mut VecDeque<usize>) -> Result<(), NoAnswer> {
        match self.ask(request, Asked::Status)? {
            RequestState::Created if self.rng.chance(3, 4) => {
                self.ask(request, Asked::Payment)?;
                if self.rng.chance(1, 6) {
                    self.ask(request, Asked::Payment)?;
                }
            }
            // Some never pay: where orders run out, they are looked at until they are closed.
            RequestState::Created | RequestState::Queued | RequestState::Pending => {
                unpaid.push_back(request);
            }
            _ => {}
        }
        Ok(())
    }

    fn meet(&mut self, buyer: u32, number: u8) -> usize {
        self.told.push(Told::new(buyer, number));
        self.told.len() - 1
    }

    /// Asks until there is an answer other than "not now"; the state that it names.
    fn ask(&mut self, request: usize, asked: Asked) -> Result<RequestState, NoAnswer> {
        loop {
            let told = &mut self.told[request];
            self.request.clear();
            let out = &mut self.request;
            self.counter.put(&mut self.words, told, asked, out);
            told.unanswered = Some(asked);
            let conn = self.conns[0].as_mut().map_err(|error| error.clone())?;
            conn.send(&self.request)?;
            let said = conn.receive(asked)?;
            told.unanswered = None;
            self.counter.answers.fetch_add(1, Ordering::Relaxed);
            if !said.is_try_again() {
                told.said.push(said);
                return Ok(said.state);
            }
            self.counter.not_now.fetch_add(1, Ordering::Relaxed);
            if self.counter.over.load(Ordering::Relaxed) {
                return Ok(RequestState::Rejected);
            }
        }
    }
}
