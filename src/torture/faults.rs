//! Faults that are tried once each, in a sale of their own: disks that fail or run full, servers that stand still,
//! clocks that jump, journals that are damaged.

use super::cutback::Files;
use super::journal;
use super::limits::{
    BUDGET_LONG_MS, JUMP_MS, PAUSE_MS_MAX, REFUSALS_OF_A_FULL_DISK, RUSH_MS_MAX, SMALL_DISK_BYTES,
    STOCK_MAX, UNPAID_LONG_MS, UNPAID_SHORT_MS, WATCHED_RATE,
};
use super::promises::Sin;
use super::report::Tally;
use super::running::{Running, Started};
use super::sale::{End, Sale, Wait};
use super::shop::How;
use super::told::Told;
use super::watch::{DiskPlan, Nth};
use super::{Result, TortureError};
use crate::demo::server::Server;
use crate::store::LEDGER_FILE;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_core::limits::BUDGET_BURST_MS;
use weir_core::rng::Rng;
use weir_io::signals::{self, Signal};
use weir_io::watched;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A sync of the ledger's write-ahead log fails once.
    LedgerSync,
    /// A sync of the orders' write-ahead log fails once.
    OrdersSync,
    /// A write to the ledger's write-ahead log fails once.
    LedgerWrite,
    /// A write to the orders' write-ahead log fails once.
    OrdersWrite,
    /// The disk takes no more bytes: refused at the watch.
    FullQuota,
    /// The disk takes no more bytes: a small file system in memory.
    FullFileSystem,
    /// The server stands still for a while, several times (SIGSTOP, SIGCONT).
    Pause,
    /// The wall clock jumps, while it serves and between two servers.
    Clock,
    /// The journal has a torn end, or a flipped bit.
    Journal,
}

/// All of them, the longest first.
pub const ALL: [Fault; 9] = [
    Fault::Journal,
    Fault::Pause,
    Fault::Clock,
    Fault::FullFileSystem,
    Fault::FullQuota,
    Fault::LedgerSync,
    Fault::OrdersSync,
    Fault::LedgerWrite,
    Fault::OrdersWrite,
];

impl Fault {
    /// The sale that shows it, made from one that chance drew.
    pub fn how(self, drawn: How) -> How {
        let calm = How {
            stock: STOCK_MAX,
            budget_ms: BUDGET_LONG_MS,
            unpaid_ms: UNPAID_LONG_MS,
            ..drawn
        };
        match self {
            Self::Pause => How {
                ask_rate: WATCHED_RATE,
                budget_ms: drawn.budget_ms.min(BUDGET_LONG_MS),
                ..calm
            },
            // A jump forward closes orders in any case: then "sold out" may be followed by a free unit.
            Self::Clock => How {
                unpaid_ms: UNPAID_SHORT_MS,
                ..calm
            },
            _ => calm,
        }
    }
}

/// Tries `fault` on `sale`.
///
/// # Errors
/// This machine cannot run it; broken promises are findings.
pub fn run(fault: Fault, sale: Sale, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    let nth = |suffix, most| Nth {
        nth: 3 + rng_of(&fault).below(most),
        suffix,
    };
    let none = DiskPlan::default();
    let (ledger, orders) = ("ledger.sqlite-wal", "orders.sqlite-wal");
    match fault {
        Fault::LedgerSync | Fault::OrdersSync => {
            let file = if fault == Fault::LedgerSync {
                ledger
            } else {
                orders
            };
            let plan = DiskPlan {
                sync_error: Some(nth(file, 20)),
                ..none
            };
            disk(sale, plan, rng, tally, |tally, hits| {
                tally.sync_errors += hits
            })
        }
        Fault::LedgerWrite | Fault::OrdersWrite => {
            let file = if fault == Fault::LedgerWrite {
                ledger
            } else {
                orders
            };
            let plan = DiskPlan {
                write_error: Some(nth(file, 60)),
                ..none
            };
            disk(sale, plan, rng, tally, |tally, hits| {
                tally.write_errors += hits
            })
        }
        Fault::FullQuota => {
            let plan = DiskPlan {
                full_at: Some(SMALL_DISK_BYTES),
                ..none
            };
            disk(sale, plan, rng, tally, |tally, _| tally.full_disks += 1)
        }
        Fault::FullFileSystem => full_file_system(sale, rng, tally),
        Fault::Pause => pauses(sale, rng, tally),
        Fault::Clock => clock_jumps(sale, rng, tally),
        Fault::Journal => journal::run(sale, rng, tally),
    }
}

/// Which operation fails is chance, but the same in every run: it must lie within the load.
fn rng_of(fault: &Fault) -> Rng {
    Rng::new(*fault as u64)
}

/// A load until the disk fails, a while longer, a kill with a power cut, and a restart on a healthy disk.
fn disk(
    mut sale: Sale,
    plan: DiskPlan,
    rng: &mut Rng,
    tally: &mut Tally,
    count: fn(&mut Tally, u64),
) -> Result<()> {
    let hits = sale.kill_once(End::Answers(u64::MAX), plan, rng, tally)?;
    if hits == 0 {
        let what = sale.named("the load ended before the planned operation");
        tally.not_possible.push(what);
    } else {
        count(tally, hits);
    }
    sale.close(tally)
}

/// The same on a real file system without space, which only the server sees. Nothing is recorded here: the kernel
/// itself says no, and the server is killed without a power cut.
fn full_file_system(mut sale: Sale, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    let data = sale.data();
    std::fs::create_dir(&data).map_err(|error| TortureError::at(&data, &error))?;
    let mut command = sale.serve()?;
    watched::own_disk(&mut command, &data, SMALL_DISK_BYTES).map_err(TortureError::of)?;
    let mut server = match Server::launch(command, None) {
        Ok(server) => server,
        Err(error) => {
            tally.not_possible.push(format!(
                "a small file system ({error}); the watch refused the writes of a full disk in its place"
            ));
            return Ok(());
        }
    };
    sale.born(&server);
    server.wait_until_serving().map_err(TortureError::of)?;
    let below = data.strip_prefix("/").unwrap_or(&data);
    let seen = Path::new("/proc")
        .join(server.pid().to_string())
        .join("root")
        .join(below);
    // An open directory keeps the file system alive when its last process is gone.
    let held = File::open(&seen).map_err(|error| TortureError::at(&seen, &error))?;
    let counter = sale.counter_at(server.listen);
    let until_full = || {
        let started = Instant::now();
        while counter.not_now.load(Ordering::Relaxed) < REFUSALS_OF_A_FULL_DISK
            && started.elapsed() < Duration::from_millis(RUSH_MS_MAX)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It is our child and was not waited for.
        let _ = signals::send(server.pid(), Signal::Kill);
    };
    let told = sale.load(&counter, rng, tally, until_full);
    let refused = counter.not_now.load(Ordering::Relaxed);
    sale.gone(server)?;
    let held_path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    sale.files = Files::read(&held_path).map_err(|error| TortureError::at(&data, &error))?;
    sale.told.extend(told);
    let used: usize = sale.files.0.values().map(Vec::len).sum();
    if refused < REFUSALS_OF_A_FULL_DISK || (used as u64) < SMALL_DISK_BYTES / 2 {
        let what = format!("the small file system took {used} bytes and was not full");
        tally.not_possible.push(sale.named(&what));
    } else {
        tally.full_disks += 1;
        tally.full_file_systems += 1;
    }
    sale.check_files(&sale.files, &sale.told, &"a full disk", tally)?;
    sale.close(tally)
}

fn serving(sale: &mut Sale, started: Started, tally: &mut Tally) -> Option<Running> {
    match started {
        Started::Serving(running) => Some(running),
        Started::Died(_) => None,
        Started::Refused(words) => {
            tally.findings.note(Sin::NoRestart, sale.named(&words));
            None
        }
    }
}

/// Pauses longer and shorter than requests may take; what is told after each holds, and no limit admits more for them.
fn pauses(mut sale: Sale, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    const PAUSES: u64 = 4;
    let (before, began) = (Before::of(&sale), Instant::now());
    let started = sale.start(sale.serve()?, DiskPlan::default())?;
    let Some(running) = serving(&mut sale, started, tally) else {
        return Ok(());
    };
    let counter = sale.counter(&running);
    let lengths: Vec<u64> = (0..PAUSES)
        .map(|n| PAUSE_MS_MAX * (n + 1) / PAUSES - rng.below(PAUSE_MS_MAX / PAUSES / 2))
        .collect();
    let stand_still = || {
        for pause_ms in &lengths {
            wait_for_answers(&counter.answers, 60);
            let tell = |signal| signals::send(running.server.pid(), signal);
            if tell(Signal::Pause).is_ok() {
                std::thread::sleep(Duration::from_millis(*pause_ms));
            }
            // Also when the pause was refused: a server that stands still never ends the load.
            let _ = tell(Signal::Resume);
        }
        wait_for_answers(&counter.answers, 60);
        counter.over.store(true, Ordering::Release);
    };
    let told = sale.load(&counter, rng, tally, stand_still);
    tally.pauses += PAUSES;
    let grants = told
        .iter()
        .filter(|told| told.reservation().is_some())
        .count() as u64;
    let most = WATCHED_RATE * (began.elapsed().as_millis() as u64 + BUDGET_BURST_MS) / 1000 + 1;
    if grants > most {
        let what = format!("{grants} grants, the budget allows {most}");
        tally.findings.note(Sin::OverLimit, sale.named(&what));
    }
    sale.told.extend(told);
    sale.check_statuses(&running, Wait::UntilAllRest, tally);
    sale.check_repeats(&running, tally);
    kill_and_close(sale, running, &before, rng, tally)
}

fn kill_and_close(
    mut sale: Sale,
    running: Running,
    before: &Before,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<()> {
    kill_and_compare(&mut sale, running, before, rng, tally)?;
    sale.close(tally)
}

/// What there was when a server started.
struct Before {
    files: Files,
    told: Vec<Told>,
}

impl Before {
    fn of(sale: &Sale) -> Self {
        Self {
            files: sale.files.clone(),
            told: sale.told.clone(),
        }
    }
}

fn kill_and_compare(
    sale: &mut Sale,
    running: Running,
    before: &Before,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<()> {
    running.kill()?;
    let recording = running.end()?;
    sale.compare(&before.files, &recording, &before.told, rng, tally)
}

/// Until `count` more answers came; not for ever.
fn wait_for_answers(answers: &std::sync::atomic::AtomicU64, count: u64) {
    let (from, started) = (answers.load(Ordering::Relaxed), Instant::now());
    while answers.load(Ordering::Relaxed) < from + count
        && started.elapsed() < Duration::from_millis(RUSH_MS_MAX)
    {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Steps of the wall clock in both directions while the server serves, then a restart with a clock that stands before
/// what is stored. Stored time never goes back (design §12.14).
fn clock_jumps(mut sale: Sale, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    let before = Before::of(&sale);
    let started = start_shifted(&mut sale, 0)?;
    let Some(mut running) = serving(&mut sale, started, tally) else {
        return Ok(());
    };
    let mut clock = running.server.take_stdin();
    let counter = sale.counter(&running);
    let jumps = [JUMP_MS * 3 / 4, -JUMP_MS, JUMP_MS, 0, -JUMP_MS / 2];
    let mut made = 0;
    let jump = || {
        for shift_ms in jumps {
            wait_for_answers(&counter.answers, 80);
            let told = clock.as_mut().map(|clock| writeln!(clock, "{shift_ms}"));
            made += u64::from(matches!(told, Some(Ok(()))));
            counter.wall_shift_ms.store(shift_ms, Ordering::Relaxed);
        }
        wait_for_answers(&counter.answers, 80);
        counter.over.store(true, Ordering::Release);
    };
    let told = sale.load(&counter, rng, tally, jump);
    tally.clock_jumps += made;
    sale.told.extend(told);
    sale.wall_shift_ms = -JUMP_MS / 2;
    sale.check_statuses(&running, Wait::UntilAllRest, tally);
    kill_and_compare(&mut sale, running, &before, rng, tally)?;

    sale.wall_shift_ms = -JUMP_MS;
    let before = Before::of(&sale);
    let started = start_shifted(&mut sale, -JUMP_MS)?;
    tally.clock_jumps += 1;
    let Some(running) = serving(&mut sale, started, tally) else {
        return Ok(());
    };
    sale.check_statuses(&running, Wait::UntilAllRest, tally);
    sale.check_repeats(&running, tally);
    sale.wall_shift_ms = 0;
    kill_and_close(sale, running, &before, rng, tally)
}

fn start_shifted(sale: &mut Sale, shift_ms: i64) -> Result<Started> {
    let mut command = sale.command("torture-clock")?;
    command.arg(format!("--shift-ms={shift_ms}"));
    command.stdin(Stdio::piped());
    sale.start(command, DiskPlan::default())
}

/// The name of the ledger's write-ahead log.
pub fn wal_name() -> PathBuf {
    PathBuf::from(format!("{LEDGER_FILE}-wal"))
}
