//! One sale under torture: its directory and keys, its servers one after the other, and what its clients were told.
//!
//! A run starts a server on the files that the last cut left, holds its answers against what was told before, lets
//! clients in, and ends it as planned; then the record is cut back in every way and compared with what was told.

use super::client::{Counter, NoAnswer, ask_all, rush};
use super::cutback::{Cut, Files, Record, cut_back, unsynced_writes};
use super::limits::{
    AFTER_FAULT_MS, BUYERS_PER_CLIENT, CLIENTS, REPEATS, RESTS_DIVISOR, RUSH_MS_MAX, SPIN_US_MAX,
    UNPAID_SHORT_MS,
};
use super::promises::{
    self, Disk, LIMBO, Sin, check_answers, check_end, check_holding, check_status,
};
use super::report::Tally;
use super::running::{Running, Started};
use super::shop::{How, toml_text};
use super::told::{Asked, Told};
use super::watch::{self, DiskPlan, Live, Recording};
use super::{Children, Result, TortureError};
use crate::config::{self, Host, Plan};
use crate::demo::server::Server;
use crate::keys;
use crate::orders::store::OrderStore;
use crate::store::{LedgerStore, StoreConfig};
use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_core::rng::Rng;
use weir_io::signals::{self, Signal};
use weir_io::watched::Watch;
use weir_proto::answer::Code;

/// Tickets are good for 25 minutes around now; the demo's words count from their start.
const TICKETS_BEFORE_MS: u64 = 25 * 60 * 1000;

/// When a run's server dies.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// A while after so many answers.
    Answers(u64),
    /// In the operation that the disk plan names, or after so many answers at the latest.
    Disk(u64),
    /// In the operation that the disk plan names, or else when it serves.
    Start,
}

/// See the module.
pub struct Sale {
    /// Everything of it lies here.
    pub dir: PathBuf,
    /// Its configuration, checked.
    pub plan: Plan,
    /// What differs from other sales.
    pub how: How,
    seed: u64,
    start_ms: u64,
    /// The files that the next server finds.
    pub files: Files,
    /// What clients were told by all servers.
    pub told: Vec<Told>,
    /// The wall clock of its servers minus ours.
    pub wall_shift_ms: i64,
    /// Loads so far.
    loads: Cell<u32>,
    /// Servers that must die when the run is stopped.
    children: Arc<Children>,
}

impl Sale {
    /// Makes directory, keys and configuration.
    ///
    /// # Errors
    /// Something cannot be written.
    pub fn make(dir: PathBuf, seed: u64, how: How, children: &Arc<Children>) -> Result<Self> {
        fs::create_dir(&dir)
            .and_then(|()| fs::create_dir(dir.join("keys")))
            .map_err(|error| TortureError::at(&dir, &error))?;
        for name in ["ticket-1.key", "payment.key"] {
            keys::create(&dir.join("keys").join(name)).map_err(TortureError::of)?;
        }
        let host = Host::read();
        let file = dir.join("weir.toml");
        let text = toml_text(&host, how)?;
        fs::write(&file, text).map_err(|error| TortureError::at(&file, &error))?;
        Ok(Self {
            plan: config::load(&file, &host).map_err(TortureError::of)?,
            dir,
            how,
            seed,
            start_ms: host.wall_ms - TICKETS_BEFORE_MS,
            files: Files::default(),
            told: Vec::new(),
            wall_shift_ms: 0,
            loads: Cell::new(0),
            children: Arc::clone(children),
        })
    }

    /// Where its servers keep their files.
    pub fn data(&self) -> PathBuf {
        self.plan.store.dir.clone()
    }

    /// The command that serves this sale: `weir serve`, as an operator runs it.
    ///
    /// # Errors
    /// This program's own file is gone.
    pub fn serve(&self) -> Result<Command> {
        self.command("serve")
    }

    /// A command of this program that serves this sale.
    ///
    /// # Errors
    /// This program's own file is gone.
    pub fn command(&self, name: &str) -> Result<Command> {
        let program = std::env::current_exe().map_err(TortureError::of)?;
        let mut command = Command::new(program);
        command.arg(name).arg("--config").arg(&self.plan.file);
        command.stdin(Stdio::null());
        // Ctrl-C is for us: a server that is told by the terminal would end in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(command)
    }

    /// Starts `command` on the files as they are, hearing every file operation. `None`: it died as planned before it
    /// served.
    ///
    /// # Errors
    /// It does not start, in its own words.
    pub fn start(&mut self, mut command: Command, plan: DiskPlan) -> Result<Started> {
        let data = self.data();
        self.files
            .write_to(&data)
            .map_err(|error| TortureError::at(&data, &error))?;
        let watch = Watch::of(&mut command).map_err(TortureError::of)?;
        let server = Server::launch(command, None).map_err(TortureError::unwatchable)?;
        self.children.born(server.pid());
        let (live, pid) = (Arc::new(Live::default()), server.pid());
        let calls = watch.listen().map_err(TortureError::of)?;
        let watcher = watch::start(calls, data.clone(), pid, plan, &live)?;
        let mut running = Running {
            server,
            live,
            watcher,
            data,
            children: Arc::clone(&self.children),
        };
        match running.server.wait_until_serving() {
            Ok(()) => Ok(Started::Serving(running)),
            Err(_) if running.live.killed.load(Ordering::Acquire) => {
                Ok(Started::Died(running.end()?))
            }
            Err(error) => {
                running.kill()?;
                running.end()?;
                Ok(Started::Refused(error.to_string()))
            }
        }
    }

    /// A server that is started in another way must die with the run, too.
    pub fn born(&self, server: &Server) {
        self.children.born(server.pid());
    }

    /// It was killed; waits for its end.
    ///
    /// # Errors
    /// Whatever the system says; not expected.
    pub fn gone(&self, mut server: Server) -> Result<()> {
        self.children.gone(server.pid());
        server.wait().map(drop).map_err(TortureError::of)
    }

    /// How to ask the server at hand.
    pub fn counter(&self, running: &Running) -> Counter<'_> {
        self.counter_at(running.server.listen)
    }

    /// How to ask the server at `to`.
    pub fn counter_at(&self, to: SocketAddr) -> Counter<'_> {
        Counter {
            plan: &self.plan,
            to,
            seed: self.seed,
            start_ms: self.start_ms,
            wall_shift_ms: AtomicI64::new(self.wall_shift_ms),
            answers: AtomicU64::new(0),
            not_now: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Buyers of the next load that nobody has met.
    fn first_buyer(&self) -> u32 {
        self.loads.get() * CLIENTS * BUYERS_PER_CLIENT
    }

    /// Lets clients in; `meanwhile` ends the load, by a kill or by saying that it is over. What they were told.
    pub fn load(
        &self,
        counter: &Counter<'_>,
        rng: &mut Rng,
        tally: &mut Tally,
        meanwhile: impl FnOnce(),
    ) -> Vec<Told> {
        let (told, odd) = rush(counter, self.first_buyer(), rng.fork(), meanwhile);
        self.loads.set(self.loads.get() + 1);
        for error in odd {
            note_odd(&error, tally);
        }
        check_answers(&told, &mut tally.findings);
        tally.count(&told);
        told
    }

    /// One kill: start, check, load, kill, cut, compare. How many of its file operations failed as planned.
    ///
    /// # Errors
    /// This machine cannot run it; broken promises are findings.
    pub fn kill_once(
        &mut self,
        end: End,
        plan: DiskPlan,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<u64> {
        let before = self.files.clone();
        let told_before = self.told.clone();
        let mut hits = 0;
        let recording = match self.start(self.serve()?, plan)? {
            Started::Refused(words) => {
                tally.findings.note(Sin::NoRestart, self.named(&words));
                return Ok(0);
            }
            Started::Died(recording) => recording,
            Started::Serving(running) => {
                if !matches!(end, End::Start) {
                    let wait = if rng.chance(1, RESTS_DIVISOR) {
                        Wait::UntilAllRest
                    } else {
                        Wait::No
                    };
                    self.check_statuses(&running, wait, tally);
                    self.check_repeats(&running, tally);
                    self.rush_until(end, &running, rng, tally);
                }
                running.kill()?;
                hits = running.live.hits.load(Ordering::Acquire);
                running.end()?
            }
        };
        self.compare(&before, &recording, &told_before, rng, tally)?;
        Ok(hits)
    }

    /// The record of a server that was killed against what was told before it and by it. The files are left as one of
    /// the cuts left them.
    ///
    /// # Errors
    /// This machine cannot run it.
    pub fn compare(
        &mut self,
        before: &Files,
        recording: &Recording,
        told_before: &[Told],
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<()> {
        for path in &recording.synced_again {
            let what = self.named(&format!("{} after it failed", path.display()));
            tally.findings.note(Sin::SyncedAgain, what);
        }
        tally.unsynced_writes += unsynced_writes(before, &recording.records) as u64;
        self.check_cuts(before, &recording.records, told_before, rng, tally)
    }

    fn rush_until(&mut self, end: End, running: &Running, rng: &mut Rng, tally: &mut Tally) {
        let (End::Answers(answers) | End::Disk(answers)) = end else {
            return;
        };
        let spin = Duration::from_micros(rng.below(SPIN_US_MAX));
        let counter = self.counter(running);
        let until = || {
            running.live.armed.store(true, Ordering::Release);
            let started = Instant::now();
            let mut after_fault = AfterFault(None);
            while counter.answers.load(Ordering::Relaxed) < answers
                && !running.live.killed.load(Ordering::Acquire)
                && started.elapsed() < Duration::from_millis(RUSH_MS_MAX)
                && !after_fault.is_over(&running.live)
            {
                std::thread::sleep(Duration::from_micros(100));
            }
            let reached = Instant::now();
            while reached.elapsed() < spin {
                std::hint::spin_loop();
            }
            // It may have died meanwhile, by its disk plan.
            let _ = signals::send(running.server.pid(), Signal::Kill);
        };
        let told = self.load(&counter, rng, tally, until);
        self.told.extend(told);
    }

    /// Cuts the record back in each way, reads what is left, and compares; at other instants with what was told before.
    fn check_cuts(
        &mut self,
        before: &Files,
        records: &[Record],
        told_before: &[Told],
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<()> {
        let cuts = [
            Cut::Strict,
            Cut::Prefix(rng.next_u64()),
            Cut::Torn(rng.next_u64()),
        ];
        for cut in cuts {
            self.check_files(&cut_back(before, records, cut), &self.told, &cut, tally)?;
        }
        // Power may also fail at any earlier instant; what was told before this server must be there then.
        let point = rng.below(records.len() as u64 + 1) as usize;
        let cut = Cut::Torn(rng.next_u64());
        let files = cut_back(before, &records[..point], cut);
        self.check_files(&files, told_before, &cut, tally)?;
        self.files = cut_back(before, records, cuts[rng.below(cuts.len() as u64) as usize]);
        Ok(())
    }

    /// Files as a fault left them against what was told.
    ///
    /// # Errors
    /// They cannot be written to be read.
    pub fn check_files(
        &self,
        files: &Files,
        told: &[Told],
        cut: &dyn std::fmt::Debug,
        tally: &mut Tally,
    ) -> Result<()> {
        let place = self.dir.join("read");
        files
            .write_to(&place)
            .map_err(|error| TortureError::at(&place, &error))?;
        tally.cuts += 1;
        let known = tally.findings.0.len();
        let journal = |path: &PathBuf| path.to_string_lossy().ends_with("-journal");
        let read = match files.0.keys().any(journal) {
            true => roll_back(&place),
            false => Ok(()),
        };
        let read = read.and_then(|()| Disk::read(&self.plan.sale, &place, &mut tally.findings));
        match read {
            Ok(disk) => disk.check(told, &mut tally.findings),
            Err(words) => tally.findings.note(Sin::NoRestart, words),
        }
        for finding in &mut tally.findings.0[known..] {
            finding.what = format!("{} after {cut:?}: {}", self.named(""), finding.what);
        }
        Ok(())
    }

    /// Asks where every request stands, and holds it against what was told before.
    pub fn check_statuses(&mut self, running: &Running, wait: Wait, tally: &mut Tally) {
        let started = Instant::now();
        let counter = self.counter(running);
        let mut open: Vec<usize> = (0..self.told.len()).collect();
        let mut news = Vec::new();
        while !open.is_empty() {
            let bare = |at: &usize| Told {
                said: Vec::new(),
                ..self.told[*at].clone()
            };
            let mut asked: Vec<Told> = open.iter().map(bare).collect();
            if let Err(error) = ask_all(&counter, Asked::Status, asked.iter_mut()) {
                note_odd_after_restart(&error, tally);
                return;
            }
            let late = started.elapsed() > LIMBO;
            let mut moving = Vec::new();
            for (at, now) in open.into_iter().zip(asked) {
                let before = &self.told[at];
                let Some(said) = now.said.last().copied() else {
                    continue;
                };
                if promises::rests(before, said.state) {
                    check_status(before, &now, &mut tally.findings);
                    news.push((at, said));
                } else if wait == Wait::No {
                    // Its order is being made: what it holds is known all the same.
                    check_holding(before, &now, &mut tally.findings);
                } else if late {
                    let what = format!("{}: {:?}", before.request_id().as_str(), said.state);
                    tally.findings.note(Sin::Limbo, what);
                } else {
                    moving.push(at);
                }
            }
            open = moving;
        }
        // What it said here is a promise for the next crash.
        tally.acked += news.len() as u64;
        for (at, said) in news {
            self.told[at].said.push(said);
        }
    }

    /// The same requests again get their first answers.
    pub fn check_repeats(&mut self, running: &Running, tally: &mut Tally) {
        let counter = self.counter(running);
        let some = |wanted: &dyn Fn(&Told) -> bool| -> Vec<Told> {
            let found = self.told.iter().rev().filter(|told| wanted(told));
            found.take(REPEATS).cloned().collect()
        };
        let closes = self.how.unpaid_ms <= UNPAID_SHORT_MS;
        let mut granted = some(&|told| told.reservation().is_some());
        let mut paid = some(&|told| told.is_paid());
        let asked = ask_all(&counter, Asked::Submit, granted.iter_mut())
            .and_then(|()| ask_all(&counter, Asked::Payment, paid.iter_mut()));
        if let Err(error) = asked {
            note_odd_after_restart(&error, tally);
            return;
        }
        for (told, code) in granted
            .iter()
            .map(|told| (told, Code::RequestReplayed))
            .chain(paid.iter().map(|told| (told, Code::PaymentRepeated)))
        {
            let Some(said) = told.said.last() else {
                continue;
            };
            let same = code != Code::RequestReplayed || said.reservation == told.reservation();
            if said.code != code || !same {
                let what = format!(
                    "{}, asked again: {:?}",
                    told.request_id().as_str(),
                    told.said
                );
                let sin = match code {
                    Code::PaymentRepeated => Sin::LostPayment,
                    _ if closes => Sin::ChangedMind,
                    _ => Sin::LostGrant,
                };
                tally.findings.note(sin, what);
            }
        }
        tally.acked += (granted.len() + paid.len()) as u64;
    }

    /// The last server of a sale: what was told holds, it ends in order, and both files agree row by row.
    ///
    /// # Errors
    /// This machine cannot run it.
    pub fn close(mut self, tally: &mut Tally) -> Result<()> {
        let running = match self.start(self.serve()?, DiskPlan::default())? {
            Started::Serving(running) => running,
            Started::Died(_) => return Ok(()),
            Started::Refused(words) => {
                tally.findings.note(Sin::NoRestart, self.named(&words));
                return Ok(());
            }
        };
        self.check_statuses(&running, Wait::UntilAllRest, tally);
        self.end_in_order(running, tally)?;
        self.remove_if_clean(tally);
        Ok(())
    }

    /// SIGTERM, a clean end, and the books.
    ///
    /// # Errors
    /// This machine cannot run it.
    pub fn end_in_order(&self, running: Running, tally: &mut Tally) -> Result<Recording> {
        let (recording, problem) = running.stop()?;
        if let Some(problem) = problem {
            tally.findings.note(Sin::BadAnswer, self.named(&problem));
        }
        let data = self.data();
        if let Err(words) = check_end(&self.plan.sale, &data, &mut tally.findings) {
            tally.findings.note(Sin::Books, self.named(&words));
        }
        Ok(recording)
    }

    /// Evidence is kept; everything else is removed as soon as its sale is over.
    pub fn remove_if_clean(&self, tally: &Tally) {
        if tally.findings.0.is_empty() {
            // What cannot be removed here is removed with the whole directory, or named there.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    /// `what`, and which sale.
    pub fn named(&self, what: &str) -> String {
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        format!("{name}: {what}")
    }
}

/// A server whose disk failed goes on for a while: what it says then counts, too.
struct AfterFault(Option<Instant>);

impl AfterFault {
    fn is_over(&mut self, live: &Live) -> bool {
        if live.hits.load(Ordering::Acquire) == 0 {
            return false;
        }
        let since = *self.0.get_or_insert_with(Instant::now);
        since.elapsed() > Duration::from_millis(AFTER_FAULT_MS)
    }
}

/// For what is still on its way after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until every request has come to rest; one that does not is in limbo.
    UntilAllRest,
    /// Not at all.
    No,
}

/// A first start that died while it made its tables left a rollback journal, which a reader may not play back: the stores
/// do, as the next server will.
fn roll_back(place: &Path) -> std::result::Result<(), String> {
    LedgerStore::open(&StoreConfig::new(place)).map_err(|error| error.to_string())?;
    OrderStore::open(&place.join("orders.sqlite")).map_err(|error| error.to_string())?;
    Ok(())
}

fn note_odd(error: &NoAnswer, tally: &mut Tally) {
    match error {
        NoAnswer::Gone => {}
        NoAnswer::Silent(asked) => {
            let what = format!("no answer to a {asked:?} within {} s", LIMBO.as_secs());
            tally.findings.note(Sin::Limbo, what);
        }
        NoAnswer::Bad(text) => tally.findings.note(Sin::BadAnswer, text.clone()),
    }
}

fn note_odd_after_restart(error: &NoAnswer, tally: &mut Tally) {
    match error {
        NoAnswer::Gone => {
            let what = "a connection to a server that nobody killed broke";
            tally.findings.note(Sin::BadAnswer, what);
        }
        other => note_odd(other, tally),
    }
}
