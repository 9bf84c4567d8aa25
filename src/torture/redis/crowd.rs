//! Buyers of several instances whose Redis fails under them: blocking connections that note in order what they asked
//! and were told.
//!
//! A buyer asks any instance that lives, asks again after "not now" and after a connection that broke, and looks for
//! what became of a request whose result is not known. Some ask twice, with two requests, or before their submit. The
//! worker, which is process 0, is told of payments and asked for states, as the instances are.

use super::super::client::{Conn, NoAnswer, put};
use super::super::told::{Asked, Said, Told};
use super::limits::{BUYERS_PER_S, CLIENTS, PAUSE_MS, POLLS_MAX};
use crate::config::Plan;
use crate::demo::words::Words;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_core::rng::Rng;
use weir_proto::answer::{Code, RequestState};

/// What all buyers share.
pub struct Crowd<'a> {
    /// The sale.
    pub plan: &'a Plan,
    /// Makes the same tickets everywhere.
    pub seed: u64,
    /// The middle of the tickets' validity.
    pub start_ms: u64,
    /// Where each process is. `None`: it is dead.
    pub processes: Mutex<Vec<Option<SocketAddr>>>,
    /// Some ask before their submit, which closes the door for it: only where Redis loses nothing that it answered.
    pub closes_doors: bool,
    /// Units that may still be taken before the next failover.
    pub quota: AtomicI64,
    /// Everything is to be sold, as fast as it goes.
    pub sells_out: AtomicBool,
    /// It is over.
    pub over: AtomicBool,
    /// Buyers so far.
    pub buyers: AtomicU32,
    /// Answers so far, also "not now".
    pub answers: AtomicU64,
    /// Answers that said "not now".
    pub not_now: AtomicU64,
    /// Questions that broke off unanswered.
    pub unanswered: AtomicU64,
    /// "Sold out", one after another, since the last grant.
    pub sold_outs: AtomicU64,
}

impl<'a> Crowd<'a> {
    /// Nobody has come yet, and nobody may buy.
    pub fn new(plan: &'a Plan, seed: u64, start_ms: u64, closes_doors: bool) -> Self {
        Self {
            plan,
            seed,
            start_ms,
            processes: Mutex::default(),
            closes_doors,
            quota: AtomicI64::new(0),
            sells_out: AtomicBool::new(false),
            over: AtomicBool::new(false),
            buyers: AtomicU32::new(0),
            answers: AtomicU64::new(0),
            not_now: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            sold_outs: AtomicU64::new(0),
        }
    }

    /// The process of that number is at `at` from here on.
    pub fn place(&self, index: usize, at: Option<SocketAddr>) {
        let mut processes = self.processes();
        if processes.len() <= index {
            processes.resize(index + 1, None);
        }
        processes[index] = at;
    }

    fn processes(&self) -> std::sync::MutexGuard<'_, Vec<Option<SocketAddr>>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets them in; `meanwhile` runs beside them, and ends the load when it returns. What everybody was told, what was
    /// no answer, and what `meanwhile` gives.
    pub fn buy<T>(
        &self,
        mut rng: Rng,
        meanwhile: impl FnOnce() -> T,
    ) -> (Vec<Told>, Vec<NoAnswer>, T) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let rng = rng.fork();
                    scope.spawn(move || self.run_client(rng))
                })
                .collect();
            let result = meanwhile();
            self.over.store(true, Ordering::Release);
            let (mut told, mut odd) = (Vec::new(), Vec::new());
            for thread in threads {
                match thread.join() {
                    Ok((said, end)) => {
                        told.extend(said);
                        odd.extend(end);
                    }
                    Err(_) => odd.push(NoAnswer::Bad("a client panicked".to_owned())),
                }
            }
            (told, odd, result)
        })
    }

    fn run_client(&self, rng: Rng) -> (Vec<Told>, Vec<NoAnswer>) {
        let nowhere = "127.0.0.1".to_owned();
        let Some(words) = Words::new(self.plan, nowhere, self.seed, self.start_ms) else {
            let why = "the sale has no SKU or no payment key".to_owned();
            return (Vec::new(), vec![NoAnswer::Bad(why)]);
        };
        let mut client = Client {
            crowd: self,
            rng,
            words,
            conns: Vec::new(),
            told: Vec::new(),
            odd: Vec::new(),
            unpaid: Vec::new(),
            request: Vec::new(),
        };
        while client.next_buyer().is_some() {}
        (client.told, client.odd)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(PAUSE_MS));
}

/// The buyers of one thread, one after the other.
struct Client<'a> {
    crowd: &'a Crowd<'a>,
    rng: Rng,
    words: Words,
    /// By instance: where it was, and the connection.
    conns: Vec<Option<(SocketAddr, Conn)>>,
    told: Vec<Told>,
    odd: Vec<NoAnswer>,
    /// Places in `told` of grants to pay.
    unpaid: Vec<usize>,
    request: Vec<u8>,
}

impl Client<'_> {
    /// One buyer, or a moment's wait; `None`: it is over. (Each step ends like that.)
    fn next_buyer(&mut self) -> Option<()> {
        let began = Instant::now();
        let crowd = self.crowd;
        let sells_out = crowd.sells_out.load(Ordering::Relaxed);
        if !sells_out && crowd.quota.load(Ordering::Relaxed) <= 0 {
            pause();
            return (!crowd.is_over()).then_some(());
        }
        let buyer = crowd.buyers.fetch_add(1, Ordering::Relaxed);
        let request = self.meet(buyer, 0);
        if crowd.closes_doors && self.rng.chance(1, 20) {
            self.ask(request, Asked::Status)?; // before its submit: this closes the door
        }
        self.submit(request)?;
        if self.rng.chance(1, 10) {
            self.submit(request)?;
        }
        if self.rng.chance(1, 15) {
            let second = self.meet(buyer, 1);
            self.submit(second)?;
        }
        if self.rng.chance(1, 10) {
            let any = self.rng.below(self.told.len() as u64) as usize;
            self.ask_known(any)?;
        }
        if self.unpaid.len() > 10 {
            let place = self.rng.below(self.unpaid.len() as u64) as usize;
            let request = self.unpaid.swap_remove(place);
            if self.rng.chance(1, 2) {
                self.pay(request)?;
            }
        }
        if !sells_out {
            let each = Duration::from_millis(1_000 * CLIENTS / BUYERS_PER_S);
            std::thread::sleep(each.saturating_sub(began.elapsed()));
        }
        (!crowd.is_over()).then_some(())
    }

    fn meet(&mut self, buyer: u32, number: u8) -> usize {
        self.told.push(Told::new(buyer, number));
        self.told.len() - 1
    }

    /// A submit, and questions for its result while that is not known.
    fn submit(&mut self, request: usize) -> Option<()> {
        let had = self.told[request].reservation();
        let mut said = self.ask(request, Asked::Submit)?;
        let mut polls = 0;
        while said.code == Code::SeckillPending && polls < POLLS_MAX {
            pause();
            said = self.ask(request, Asked::Status)?;
            polls += 1;
        }
        if had.is_none() && self.told[request].reservation().is_some() {
            self.crowd.quota.fetch_sub(1, Ordering::Relaxed);
            self.crowd.sold_outs.store(0, Ordering::Relaxed);
            self.unpaid.push(request);
        } else if said.code == Code::SeckillSoldOut {
            self.crowd.sold_outs.fetch_add(1, Ordering::Relaxed);
        }
        Some(())
    }

    /// Where a request stands of which something was said: for one that was never asked the door would close.
    fn ask_known(&mut self, request: usize) -> Option<()> {
        if !self.told[request].said.is_empty() {
            self.ask(request, Asked::Status)?;
        }
        Some(())
    }

    fn pay(&mut self, request: usize) -> Option<()> {
        let said = self.ask(request, Asked::Status)?;
        if said.state == RequestState::Created {
            self.ask(request, Asked::Payment)?;
        }
        Some(())
    }

    /// Asks until there is an answer other than "not now".
    fn ask(&mut self, request: usize, asked: Asked) -> Option<Said> {
        loop {
            self.told[request].unanswered = Some(asked);
            match self.ask_once(request, asked) {
                Ok(said) => {
                    self.told[request].unanswered = None;
                    self.crowd.answers.fetch_add(1, Ordering::Relaxed);
                    if !said.is_try_again() && said.code != Code::NotFound {
                        self.told[request].said.push(said);
                        return Some(said);
                    }
                    // A payment of an order that is not made yet is delivered again.
                    self.crowd.not_now.fetch_add(1, Ordering::Relaxed);
                }
                Err(NoAnswer::Gone) => {
                    self.crowd.unanswered.fetch_add(1, Ordering::Relaxed);
                }
                Err(other) => self.odd.push(other),
            }
            if self.crowd.is_over() {
                return None;
            }
            pause();
        }
    }

    fn ask_once(&mut self, request: usize, asked: Asked) -> Result<Said, NoAnswer> {
        let (index, at) = self.any_process(asked).ok_or(NoAnswer::Gone)?;
        self.conns
            .resize_with(self.conns.len().max(index + 1), || None);
        let mut conn = match self.conns[index].take() {
            Some((known, conn)) if known == at => conn,
            _ => Conn::open(at)?,
        };
        self.request.clear();
        put(
            &mut self.words,
            &self.told[request],
            asked,
            0,
            &mut self.request,
        );
        conn.send(&self.request)?;
        let said = conn.receive(asked)?;
        self.conns[index] = Some((at, conn));
        Ok(said)
    }

    fn any_process(&mut self, asked: Asked) -> Option<(usize, SocketAddr)> {
        let processes = self.crowd.processes();
        let answers = |index: &usize| match asked {
            Asked::Payment => *index == 0,
            Asked::Submit => *index > 0,
            Asked::Status => true,
        };
        let alive: Vec<_> = (0..processes.len())
            .filter(answers)
            .filter_map(|index| Some((index, processes[index]?)))
            .collect();
        let count = alive.len() as u64;
        (count > 0).then(|| alive[self.rng.below(count) as usize])
    }
}
