//! Buyers: blocking clients that note in order what they asked and what they were told.

use crate::shop::{PATH_ID, PRICE_MINOR, SKU, Shop, wall_ms};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_bench::request::{Credentials, Route, put_status, put_submit};
use weir_core::rng::Rng;
use weir_proto::answer::{Code, RequestState, read_code, read_state, read_text_member};
use weir_proto::ids::{RequestId, ReservationId, UserId};
use weir_proto::payment::{reservation_id, sign_callback};
use weir_proto::submit::Submit;

/// How long anything may stay without an end (design §12.7).
pub const LIMBO: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Submit,
    Status,
    Payment,
}

/// One answer, as far as it promises something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    pub asked: Asked,
    pub code: Code,
    pub state: RequestState,
    pub original: Option<Code>,
    pub reservation: Option<ReservationId>,
}

impl Said {
    /// "Not now": it promises nothing.
    pub fn is_try_again(&self) -> bool {
        matches!(
            self.code,
            Code::SystemOverloaded | Code::DependencyUnavailable | Code::RateLimited
        )
    }

    /// True when it says where the request stands; "not known yet" says nothing.
    pub fn is_status(&self) -> bool {
        self.asked == Asked::Status && self.code != Code::SeckillPending
    }

    /// True when it names a reservation as this request's own.
    pub fn is_grant(&self) -> bool {
        self.asked != Asked::Payment && self.reservation.is_some()
    }

    /// True when it says that this request got nothing and never will.
    pub fn is_never(&self) -> bool {
        self.state == RequestState::NotAccepted
    }
}

/// One request of one user, and all that was said about it.
#[derive(Clone, Debug)]
pub struct Told {
    pub user: UserId,
    pub number: u64,
    pub request_id: RequestId,
    pub said: Vec<Said>,
    /// The server died before it answered this.
    pub unanswered: Option<Asked>,
}

impl Told {
    pub fn new(user: UserId, number: u64) -> Self {
        let request_id = format!("kill-{:06}-{number}", user.0);
        Self {
            user,
            number,
            request_id: RequestId::new(request_id.as_bytes()).unwrap(),
            said: Vec::new(),
            unanswered: None,
        }
    }

    pub fn reservation(&self) -> Option<ReservationId> {
        let mut grants = self.said.iter().filter(|said| said.is_grant());
        grants.next().and_then(|said| said.reservation)
    }

    pub fn is_paid(&self) -> bool {
        self.said
            .iter()
            .any(|said| matches!(said.code, Code::PaymentAccepted | Code::PaymentRepeated))
    }

    fn submit(&self) -> Submit {
        Submit {
            request_id: self.request_id,
            activity: SKU.activity,
            sku: SKU.sku,
            user: self.user,
            quantity: 1,
            attempt: 0,
        }
    }

    /// The bytes of the question.
    pub fn request(&self, shop: &Shop, asked: Asked) -> Vec<u8> {
        let mut out = Vec::new();
        let ticket = shop.ticket(self.user, self.number);
        let credentials = Credentials {
            ticket: &ticket,
            device: None,
        };
        let host = "127.0.0.1";
        match asked {
            Asked::Submit => {
                let route = Route {
                    host,
                    path_id: PATH_ID,
                };
                put_submit(&mut out, route, credentials, &self.submit());
            }
            Asked::Status => put_status(&mut out, host, credentials, &self.submit()),
            Asked::Payment => {
                let paid = self.reservation().unwrap();
                put_payment(&mut out, shop, paid);
            }
        }
        out
    }
}

fn put_payment(out: &mut Vec<u8>, shop: &Shop, paid: ReservationId) {
    // Equal each time, so that a second delivery is the same payment.
    let body = format!(
        "{{\"payment_id\":\"pay-{paid}\",\"reservation_id\":\"{paid}\",\"activity_id\":{},\"sku_id\":{},\
         \"amount_minor\":{PRICE_MINOR},\"currency\":\"CNY\",\"paid_at_ms\":1796040000000}}",
        SKU.activity, SKU.sku
    );
    let mut signature = Vec::new();
    sign_callback(body.as_bytes(), &shop.payment, wall_ms(), &mut signature);
    out.extend_from_slice(
        format!(
            "POST /v1/payments/callback HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             X-Weir-Signature: {}\r\nContent-Length: {}\r\n\r\n{body}",
            String::from_utf8(signature).unwrap(),
            body.len()
        )
        .as_bytes(),
    );
}

/// A blocking connection.
pub struct Conn {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Conn {
    pub fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        // Every answer has a deadline of seconds in the server; whoever waits so long has been forgotten.
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self {
            stream,
            input: Vec::new(),
        })
    }

    pub fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    /// The next answer.
    pub fn receive(&mut self, asked: Asked) -> io::Result<Said> {
        loop {
            if let Some((said, bytes)) = read_answer(&self.input, asked) {
                self.input.drain(..bytes);
                return Ok(said);
            }
            let mut space = [0; 8192];
            match self.stream.read(&mut space) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&space[..count]),
                Err(error) => {
                    assert!(
                        !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                        "no answer to a {asked:?} within 30 s"
                    );
                    return Err(error);
                }
            }
        }
    }
}

fn read_answer(input: &[u8], asked: Asked) -> Option<(Said, usize)> {
    let head_bytes = input.windows(4).position(|at| at == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&input[..head_bytes]).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .unwrap_or_else(|| panic!("an answer without Content-Length: {head}"));
    let all = head_bytes + length.parse::<usize>().unwrap();
    let body = input.get(head_bytes..all)?;
    let text = || String::from_utf8_lossy(&input[..all]);
    let said = Said {
        asked,
        code: read_code(body).unwrap_or_else(|| panic!("{}", text())),
        state: read_state(body).unwrap_or_else(|| panic!("{}", text())),
        original: read_text_member(body, "original_code").and_then(Code::from_text),
        reservation: read_text_member(body, "reservation_id").and_then(reservation_id),
    };
    Some((said, all))
}

/// Asks one question about each of `told`, pipelined; notes what is said. "Not now" and "not known yet" are asked again.
pub fn ask_all<'a>(
    shop: &Shop,
    to: SocketAddr,
    asked: Asked,
    told: impl Iterator<Item = &'a mut Told>,
) {
    const DEPTH: usize = 32; // of the 64 that a connection may pipeline
    let started = Instant::now();
    let mut conn = Conn::open(to).unwrap();
    let mut waiting: VecDeque<&mut Told> = told.collect();
    while !waiting.is_empty() {
        let batch: Vec<&mut Told> = waiting.drain(..DEPTH.min(waiting.len())).collect();
        let requests: Vec<u8> = batch
            .iter()
            .flat_map(|told| told.request(shop, asked))
            .collect();
        conn.send(&requests).unwrap();
        for told in batch {
            let said = conn.receive(asked).unwrap();
            if said.is_try_again() || said.code == Code::SeckillPending {
                assert!(started.elapsed() < LIMBO, "no end: {said:?}");
                waiting.push_back(told);
            } else {
                told.said.push(said);
            }
        }
    }
}

/// The rush: counts answers, and at the chosen one pulls the trigger.
pub struct Rush<'a> {
    pub shop: &'a Shop,
    pub to: SocketAddr,
    /// It and the [`USERS_PER_RUSH`] - 1 that follow are this rush's own.
    pub first_user: u64,
    pub answers: AtomicU64,
    pub last_answer: u64,
    pub trigger: &'a (dyn Fn() + Sync),
}

const THREADS: u64 = 12;
/// Far more than any round needs: the kill comes first.
const USERS_PER_THREAD: u64 = 5_000;
pub const USERS_PER_RUSH: u64 = THREADS * USERS_PER_THREAD;

impl Rush<'_> {
    /// Runs until the server is gone; what everybody was told.
    pub fn run(&self, seed: u64) -> Vec<Told> {
        let mut rng = Rng::new(seed);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let rng = rng.fork();
                    scope.spawn(move || {
                        let mut buyers = Buyers {
                            rush: self,
                            rng,
                            conns: [self.to; 2].map(Conn::open),
                            told: Vec::new(),
                        };
                        let end = buyers.story(self.first_user + thread * USERS_PER_THREAD);
                        assert!(end.is_err(), "the server outlived the rush");
                        buyers.told
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        })
    }

    fn count(&self) {
        if self.answers.fetch_add(1, Ordering::Relaxed) + 1 == self.last_answer {
            (self.trigger)();
        }
    }
}

/// The buyers of one thread, one after the other, with two connections that may lead to two shards.
struct Buyers<'a> {
    rush: &'a Rush<'a>,
    rng: Rng,
    conns: [io::Result<Conn>; 2],
    told: Vec<Told>,
}

impl Buyers<'_> {
    fn story(&mut self, first_user: u64) -> io::Result<()> {
        let mut unpaid = VecDeque::new();
        for user in first_user..first_user + USERS_PER_THREAD {
            let request = self.meet(UserId(user), 0);
            if self.rng.chance(1, 10) {
                self.ask(request, Asked::Status)?; // before its submit: this closes the door
            }
            self.ask(request, Asked::Submit)?;
            if self.rng.chance(1, 5) {
                self.conns.swap(0, 1);
                self.ask(request, Asked::Submit)?;
            }
            if self.told[request].reservation().is_some() {
                unpaid.push_back(request);
            }
            if self.rng.chance(1, 10) {
                let second = self.meet(UserId(user), 1);
                self.ask(second, Asked::Submit)?;
                if self.told[second].reservation().is_some() {
                    unpaid.push_back(second);
                }
            }
            if self.rng.chance(1, 8) {
                let any = self.rng.below(self.told.len() as u64) as usize;
                self.ask(any, Asked::Status)?;
            }
            if let Some(request) = unpaid.pop_front() {
                let said = self.ask(request, Asked::Status)?;
                match said.state {
                    RequestState::Created if self.rng.chance(3, 4) => {
                        self.ask(request, Asked::Payment)?;
                        if self.rng.chance(1, 6) {
                            self.ask(request, Asked::Payment)?;
                        }
                    }
                    RequestState::Queued | RequestState::Pending => unpaid.push_back(request),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn meet(&mut self, user: UserId, number: u64) -> usize {
        self.told.push(Told::new(user, number));
        self.told.len() - 1
    }

    fn ask(&mut self, request: usize, asked: Asked) -> io::Result<Said> {
        loop {
            let told = &mut self.told[request];
            let bytes = told.request(self.rush.shop, asked);
            told.unanswered = Some(asked);
            let conn = match &mut self.conns[0] {
                Ok(conn) => conn,
                Err(error) => return Err(error.kind().into()),
            };
            conn.send(&bytes)?;
            let said = conn.receive(asked)?;
            told.unanswered = None;
            if !said.is_try_again() {
                told.said.push(said);
                self.rush.count();
                return Ok(said);
            }
        }
    }
}
