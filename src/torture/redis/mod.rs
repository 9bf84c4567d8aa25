//! `weir torture --redis auto`: a private Redis Cluster whose masters fail under a sale of several instances of weir,
//! and a checker that holds what every buyer was told against Redis and the order store.
//!
//! Called by the command line. [`nodes`] is the cluster behind the network of [`wire`], [`faults`] what is done to it,
//! [`instance`] weir's processes, [`crowd`] their buyers, [`books`] the checker. After each fault the cluster
//! is made whole again, and the run waits until the SKU sells: nothing here thaws it, weir does that by itself.

mod books;
mod crowd;
mod faults;
mod instance;
pub mod limits;
mod nodes;
mod report;
mod wire;

pub use report::RedisReport;

use super::client::{Counter, NoAnswer, ask_all};
use super::promises::{self, Findings, LIMBO, Sin};
use super::told::{Asked, Told};
use super::{Children, Live, Result, TortureError};
use crate::config::Host;
use crate::demo::server::Server;
use books::{Counts, Facts};
use crowd::Crowd;
use faults::{Fault, strike};
use instance::{Offer, Shops, Starting};
use limits::{
    CALM_MS, CLIENTS, DEAD_MS_MAX, QUOTA_PER_FAILOVER, SELL_MS_MAX, THAW_MS_MAX, UNITS_PER_FAILOVER,
};
use nodes::{Look, Nodes};
use report::{Failover, RedisTally};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_core::rng::Rng;

/// Tickets are good for 25 minutes around now at least; the demo's words count from their start.
const TICKETS_BEFORE_MS: u64 = 60_000;
/// The hash tag of the one SKU.
const TAG: &str = "a1:s1";
/// Between two looks at the SKU.
const LOOK: Duration = Duration::from_millis(25);

/// One run.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// Changes of the SKU's master, 1..=[`limits::FAILOVERS_MAX`].
    pub failovers: u64,
    /// Replicas that every grant waits for, 0..=[`limits::REPLICAS_MAX`].
    pub wait_replicas: u64,
    /// Where everything lies; it stays when a promise breaks.
    pub dir: PathBuf,
    /// Which faults, times and questions.
    pub seed: u64,
    /// Instances of weir that sell, beside the worker that makes their orders.
    pub instances: usize,
}

/// How long it will take here, in seconds.
pub fn estimate(failovers: u64) -> u64 {
    failovers * limits::FAILOVER_MS / 1000 + limits::AROUND_S
}

/// Runs it in `config.dir`, made before; `children` lists weir's processes that live, `live` says how far it is.
///
/// # Errors
/// This machine cannot run it; broken promises are in the report.
pub fn run(config: &RedisConfig, children: &Arc<Children>, live: &Live) -> Result<RedisReport> {
    let started = Instant::now();
    weir_io::rlimit::raise_open_files().map_err(TortureError::of)?;
    let dir = config.dir.canonicalize();
    let dir = dir.map_err(|error| TortureError::at(&config.dir, &error))?;
    let nodes = Nodes::start(&dir, config.wait_replicas, TAG)?;
    let host = Host::read();
    let offer = Offer {
        stock: config.failovers * UNITS_PER_FAILOVER,
        wait_replicas: config.wait_replicas,
        servers: &nodes.servers(),
        instances: config.instances,
    };
    let shops = Shops::make(&dir, &host, offer, children)?;
    let start_ms = host.wall_ms - TICKETS_BEFORE_MS;
    let keeps_all = config.wait_replicas > 0;
    let crowd = Crowd::new(&shops.plans[0], config.seed, start_ms, keeps_all);
    let mut servers = Vec::new();
    for index in 0..=config.instances {
        let server = shops.start(index)?;
        crowd.place(index, Some(server.listen));
        servers.push(Some(server));
    }
    let mut rng = Rng::new(config.seed);
    let buyers = rng.fork();
    let mut run = Run {
        config,
        nodes,
        shops: &shops,
        crowd: &crowd,
        servers,
        rng,
        live,
        tally: RedisTally {
            instances: config.instances as u64,
            ..RedisTally::default()
        },
    };
    let (mut told, odd, failed) = crowd.buy(buyers, || run.fail_over_and_sell_out());
    failed?;
    for error in &odd {
        note_odd(error, &mut run.tally.findings);
    }
    let counts = run.settle(&mut told, keeps_all)?;
    let seconds = started.elapsed().as_secs();
    let Run { mut tally, .. } = run;
    tally.requests = told.len() as u64;
    tally.answers = crowd.answers.load(Ordering::Relaxed);
    tally.not_now = crowd.not_now.load(Ordering::Relaxed);
    tally.unanswered = crowd.unanswered.load(Ordering::Relaxed);
    Ok(RedisReport::new(
        tally,
        counts,
        config.wait_replicas,
        config.seed,
        seconds,
    ))
}

/// A process of weir that was killed and is to serve again.
struct Dead {
    index: usize,
    since: Instant,
    dead_ms: u64,
    /// `None`: it was not started yet, or has said no.
    starting: Option<Starting>,
}

/// What the run holds; the thread that makes it starts every process.
struct Run<'a> {
    config: &'a RedisConfig,
    nodes: Nodes,
    shops: &'a Shops,
    crowd: &'a Crowd<'a>,
    /// `None`: it was killed.
    servers: Vec<Option<Server>>,
    rng: Rng,
    live: &'a Live,
    tally: RedisTally,
}

impl Run<'_> {
    /// The faults, one after another; then everything that is left is sold.
    fn fail_over_and_sell_out(&mut self) -> Result<()> {
        // Some faults change nothing (a sleeper that wakes up in time): others take their place.
        let planned = Fault::draw(2 * self.config.failovers + 4, &mut self.rng);
        for fault in planned {
            let done = self.tally.thaws.len() as u64;
            let is_stuck = self
                .tally
                .thaws
                .last()
                .is_some_and(|one| one.thaw_ms.is_none());
            if done == self.config.failovers || is_stuck {
                break;
            }
            self.one_failover(fault)?;
            self.live
                .kills
                .store(self.tally.thaws.len() as u64, Ordering::Relaxed);
            let answers = self.crowd.answers.load(Ordering::Relaxed);
            self.live.acked.store(answers, Ordering::Relaxed);
        }
        self.sell_out();
        Ok(())
    }

    fn one_failover(&mut self, fault: Fault) -> Result<()> {
        self.crowd
            .quota
            .store(QUOTA_PER_FAILOVER, Ordering::Relaxed);
        let calm_ms = CALM_MS.0 + self.rng.below(CALM_MS.1 - CALM_MS.0);
        std::thread::sleep(Duration::from_millis(calm_ms));
        let began = Instant::now();
        let mut victim = self.victim(fault);
        let mut dead = victim.as_ref().map(|(index, _)| Dead {
            index: *index,
            since: began,
            dead_ms: self.rng.below(DEAD_MS_MAX),
            starting: None,
        });
        let weir_killed = dead.is_some();
        let (crowd, shops) = (self.crowd, self.shops);
        let changed = strike(fault, &mut self.nodes, &mut self.rng, || {
            if let Some((index, server)) = victim.take() {
                crowd.place(index, None);
                shops.kill(server);
            }
        })?;
        if let Some((index, server)) = victim {
            self.servers[index] = Some(server); // there was no fault
            dead = None;
        }
        self.tally.weir_kills += u64::from(dead.is_some());
        let mut thaw = None;
        if let Some((master, _)) = changed {
            thaw = self.until_it_sells(master, began, &mut dead)?;
        }
        self.until_it_serves(&mut dead)?;
        self.until_whole()?;
        let Some((_, change_ms)) = changed else {
            self.tally.unchanged += 1;
            return Ok(());
        };
        self.tally.thaws.push(Failover {
            fault,
            weir_killed,
            change_ms,
            thaw_ms: thaw.map(|(ms, _)| ms),
            units_frozen: thaw.map_or(0, |(_, units)| units),
        });
        Ok(())
    }

    /// In one of three faults a process of weir dies at the same time, and always when the most is lost.
    fn victim(&mut self, fault: Fault) -> Option<(usize, Server)> {
        if fault != Fault::KillLagging && !self.rng.chance(1, 3) {
            return None;
        }
        let index = self.rng.below(self.servers.len() as u64) as usize;
        self.servers[index].take().map(|server| (index, server))
    }

    /// Takes care of a process that was killed: starts it once it was dead for `dead_ms`, and again when it said no, as it
    /// may while nodes are away.
    fn tend(&mut self, dead: &mut Option<Dead>) -> Result<()> {
        let Some(one) = dead else {
            return Ok(());
        };
        match one.starting.take() {
            None if one.since.elapsed() >= Duration::from_millis(one.dead_ms) => {
                one.starting = Some(self.shops.begin(one.index)?);
            }
            Some(starting) if starting.is_over() => {
                if let Some(server) = starting.take(self.shops) {
                    self.crowd.place(one.index, Some(server.listen));
                    self.servers[one.index] = Some(server);
                    *dead = None;
                }
            }
            starting => one.starting = starting,
        }
        Ok(())
    }

    /// Waits until it serves; one that does not in time is a finding.
    fn until_it_serves(&mut self, dead: &mut Option<Dead>) -> Result<()> {
        let began = Instant::now();
        while dead.is_some() && began.elapsed() < Duration::from_millis(THAW_MS_MAX) {
            self.tend(dead)?;
            std::thread::sleep(LOOK);
        }
        if let Some(one) = dead.take() {
            let what = format!(
                "process {} does not serve again after it was killed",
                one.index
            );
            self.tally.findings.note(Sin::NoRestart, what);
            one.starting.map(|starting| starting.take(self.shops));
        }
        Ok(())
    }

    /// Waits until `master` sells: after how long since `began`, and how many units waited. `None`: it does not.
    fn until_it_sells(
        &mut self,
        master: usize,
        began: Instant,
        dead: &mut Option<Dead>,
    ) -> Result<Option<(u64, u64)>> {
        let changed = Instant::now();
        let mut before: Option<Look> = None;
        while changed.elapsed() < Duration::from_millis(THAW_MS_MAX) {
            self.tend(dead)?;
            let now = self.nodes.look(master);
            if let (Some(before), Some(now)) = (before, now) {
                let sells = !before.is_frozen && !now.is_frozen && now.next > before.next;
                if sells || (!now.is_frozen && now.free == 0) {
                    return Ok(Some((began.elapsed().as_millis() as u64, before.free)));
                }
            }
            before = now;
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }

    fn until_whole(&self) -> Result<()> {
        let began = Instant::now();
        while !self.nodes.is_whole() {
            if began.elapsed() > Duration::from_millis(THAW_MS_MAX) {
                let why =
                    "the private cluster does not become whole again; see the logs of its nodes";
                return Err(TortureError(why.to_owned()));
            }
            std::thread::sleep(8 * LOOK);
        }
        Ok(())
    }

    /// Until every buyer hears "sold out", or time is over.
    fn sell_out(&self) {
        self.crowd.sells_out.store(true, Ordering::Relaxed);
        let began = Instant::now();
        let is_stuck = self.tally.thaws.iter().any(|one| one.thaw_ms.is_none());
        let most_ms = if is_stuck { 0 } else { SELL_MS_MAX };
        while self.crowd.sold_outs.load(Ordering::Relaxed) < 4 * CLIENTS
            && began.elapsed() < Duration::from_millis(most_ms)
        {
            std::thread::sleep(LOOK);
        }
    }

    /// Load and faults are over: every request comes to rest, the instances end in order, and the books are compared.
    fn settle(&mut self, told: &mut [Told], keeps_all: bool) -> Result<Counts> {
        if let Some(server) = &self.servers[0] {
            let counter = counter(self.shops, self.crowd, server.listen);
            rest(&counter, told, &mut self.tally.findings);
        }
        for server in self.servers.drain(..).flatten() {
            if let Some(problem) = self.shops.stop(server) {
                self.tally.findings.note(Sin::BadAnswer, problem);
            }
        }
        let worker = &self.shops.plans[0];
        let redis = worker.redis.as_ref().expect("its shops are on Redis");
        let findings = &mut self.tally.findings;
        let facts = Facts::read(redis, &worker.store.orders(), findings)?;
        let counts = facts.check(told, keeps_all, &mut self.tally.findings);
        if counts.unsold > 0 {
            let what = format!("{} units in the end: {:?}", counts.unsold, facts.units);
            self.tally.findings.note(Sin::Unsold, what);
        }
        Ok(counts)
    }
}

fn counter<'a>(shops: &'a Shops, crowd: &Crowd<'_>, to: SocketAddr) -> Counter<'a> {
    Counter {
        plan: &shops.plans[0],
        to,
        seed: crowd.seed,
        start_ms: crowd.start_ms,
        wall_shift_ms: AtomicI64::new(0),
        answers: AtomicU64::new(0),
        not_now: AtomicU64::new(0),
        over: AtomicBool::new(false),
    }
}

/// Asks where every request stands until each has come to rest; one that does not in time is in limbo.
fn rest(counter: &Counter<'_>, told: &mut [Told], findings: &mut Findings) {
    let began = Instant::now();
    let mut open: Vec<&mut Told> = told.iter_mut().collect();
    while !open.is_empty() {
        if let Err(error) = ask_all(
            counter,
            Asked::Status,
            open.iter_mut().map(|told| &mut **told),
        ) {
            note_odd(&error, findings);
            return;
        }
        let is_late = began.elapsed() > LIMBO;
        open.retain_mut(|request| {
            let said = &mut request.said;
            if let [.., before, last] = said.as_slice()
                && before == last
            {
                said.pop(); // the same again says nothing new
            }
            let last = request.said.last();
            let rests = last.is_some_and(|said| promises::rests(request, said.state));
            if is_late && !rests {
                let what = format!("{}: {:?}", request.request_id().as_str(), request.said);
                findings.note(Sin::Limbo, what);
            }
            !rests && !is_late
        });
        std::thread::sleep(4 * LOOK); // orders are being made meanwhile
    }
}

fn note_odd(error: &NoAnswer, findings: &mut Findings) {
    match error {
        NoAnswer::Gone => findings.note(
            Sin::BadAnswer,
            "a connection to an instance that nobody killed broke",
        ),
        NoAnswer::Silent(asked) => {
            let what = format!("no answer to a {asked:?} within {} s", LIMBO.as_secs());
            findings.note(Sin::Limbo, what);
        }
        NoAnswer::Bad(text) => findings.note(Sin::BadAnswer, text.clone()),
    }
}
