//! Every story on every driver; the table at the end says which story ran where.
//!
//! Own `main` instead of the test harness, so that the table is always printed. Takes the harness's usual arguments as
//! far as they choose stories: `cargo test -p weir-io --test conformance reset` runs those with `reset` in their name.

mod stories;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::process::ExitCode;
use stories::on_sim::OnSim;
use stories::on_sockets::{OnSockets, Size, Which};
use stories::{STORIES, Scope, Story};
use weir_io::choice::{DriverKind, HAS_GLOMMIO, Wanted};

/// Worlds per story on sim: latencies, cuts and windows differ.
const SIM_SEEDS: u64 = 12;
/// Of these, as many are run again and must have the same hash.
const SIM_SEEDS_AGAIN: u64 = 3;

/// What became of a story on a driver.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passed,
    Failed,
    /// The driver has nothing that the story is about; says what is missing.
    NotApplicable(&'static str),
}

/// Why a story of scope "uring alone" is not told elsewhere.
const NO_RING: &str = "no ring of our own";
/// The same of scope "direct alone".
const NOT_DIRECT: &str = "no direct descriptors";
/// Why a story of scope "few descriptors" is not told there.
const NEEDS_NONE: &str = "no need of descriptors for its clients";

impl Fate {
    fn text(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::NotApplicable(_) => "n/a",
        }
    }
}

/// A column of the table.
#[derive(Clone, Copy)]
enum Column {
    Sockets(Which),
    Sim,
}

/// In the table's order.
fn columns() -> impl Iterator<Item = Column> {
    let sockets = Which::ALL.into_iter().map(Column::Sockets);
    sockets.chain([Column::Sim])
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Self::Sockets(which) => which.name(),
            Self::Sim => "sim",
        }
    }

    fn play(self, story: &Story) -> Fate {
        match self {
            Self::Sockets(which) if which.kind == DriverKind::Glommio && !HAS_GLOMMIO => {
                Fate::NotApplicable("not been built: cargo feature glommio")
            }
            Self::Sockets(which) => on_sockets(which, story),
            Self::Sim => on_sim(story),
        }
    }
}

fn caught(story: &Story, driver: &str, play: impl FnOnce()) -> Fate {
    match catch_unwind(AssertUnwindSafe(play)) {
        Ok(()) => Fate::Passed,
        Err(_) => {
            eprintln!("story {} failed on {driver}", story.name);
            Fate::Failed
        }
    }
}

fn on_sim(story: &Story) -> Fate {
    match story.scope {
        Scope::Every => {}
        Scope::FewDescriptors => return Fate::NotApplicable("no descriptors that could run out"),
        Scope::UringTiny | Scope::UringShortQueue => return Fate::NotApplicable(NO_RING),
        Scope::DirectAlone => return Fate::NotApplicable(NOT_DIRECT),
    }
    let play = |seed| {
        let mut h = OnSim::new(seed);
        story.play(&mut h);
        h.hash()
    };
    for seed in 0..SIM_SEEDS {
        let fate = caught(story, &format!("sim, seed {seed}"), || {
            let hash = play(seed);
            if seed < SIM_SEEDS_AGAIN {
                assert_eq!(hash, play(seed), "one seed ran two ways");
            }
        });
        if fate != Fate::Passed {
            return fate;
        }
    }
    Fate::Passed
}

/// True when the kernel has what `uring-direct` needs.
fn has_direct() -> bool {
    let chosen = Wanted::Only(DriverKind::Uring).choose(true);
    chosen.is_ok_and(|chosen| chosen.direct)
}

fn on_sockets(which: Which, story: &Story) -> Fate {
    if which.direct && !has_direct() {
        return Fate::NotApplicable("no Linux 6.13 or later");
    }
    let is_uring = which.kind == DriverKind::Uring;
    let sizes: &[Size] = match story.scope {
        Scope::FewDescriptors if which.direct => return Fate::NotApplicable(NEEDS_NONE),
        Scope::DirectAlone if !which.direct => return Fate::NotApplicable(NOT_DIRECT),
        Scope::FewDescriptors | Scope::DirectAlone => &[],
        Scope::Every => &[Size::Usual, Size::Tiny],
        Scope::UringTiny | Scope::UringShortQueue if !is_uring => {
            return Fate::NotApplicable(NO_RING);
        }
        Scope::UringTiny => &[Size::Tiny],
        Scope::UringShortQueue => &[Size::ShortQueue],
    };
    caught(story, which.name(), || {
        if sizes.is_empty() {
            play_with_few_descriptors(which, story);
        }
        for &size in sizes {
            story.play(&mut OnSockets::new(which, size));
        }
    })
}

/// The argument before a driver's and a story's name that plays just that, here.
const PLAY_HERE: &str = "--play-here-on";

fn play_with_few_descriptors(which: Which, story: &Story) {
    let itself = std::env::current_exe().expect("this process has a file");
    let status = Command::new("sh")
        .args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\""])
        .arg(itself)
        .args([PLAY_HERE, which.name(), story.name])
        .status();
    let status = status.expect("sh can be started");
    assert!(status.success(), "its process ended with {status}");
}

fn play_here(driver: &str, name: &str) {
    let which = Which::ALL.into_iter().find(|which| which.name() == driver);
    let story = STORIES.iter().find(|story| story.name == name);
    let (which, story) = which.zip(story).expect("the parent names one of each");
    story.play(&mut OnSockets::new(which, Size::Usual));
}

/// The arguments that choose stories: all that are no options.
fn filters() -> Vec<String> {
    let mut filters = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--test-threads" | "--format" | "--color" | "--skip" => drop(args.next()),
            option if option.starts_with('-') => {}
            _ => filters.push(arg),
        }
    }
    filters
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(PLAY_HERE) {
        let mut next = || args.next().unwrap_or_default();
        play_here(&next(), &next());
        return ExitCode::SUCCESS;
    }
    let filters = filters();
    let chosen = |story: &&Story| {
        filters.is_empty() || filters.iter().any(|filter| story.name.contains(filter))
    };
    let stories: Vec<&Story> = STORIES.iter().filter(chosen).collect();
    if std::env::args().any(|arg| arg == "--list") {
        stories
            .iter()
            .for_each(|story| println!("{}: test", story.name));
        return ExitCode::SUCCESS;
    }
    let mut table = format!("{:<64}", "story");
    for column in columns() {
        table += &format!(" {:<12}", column.name());
    }
    let (mut passed, mut failed) = (0, 0);
    let mut reasons = BTreeSet::new();
    for story in &stories {
        table += &format!("\n{:<64}", story.name);
        for column in columns() {
            let fate = column.play(story);
            if let Fate::NotApplicable(reason) = fate {
                reasons.insert(format!("{} has {reason}", column.name()));
            }
            passed += u32::from(fate == Fate::Passed);
            failed += u32::from(fate == Fate::Failed);
            table += &format!(" {:<12}", fate.text());
        }
    }
    let left_out = STORIES.len() - stories.len();
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\n{table}\n\n{} stories; with sockets: two sizes each; sim: {SIM_SEEDS} seeds each",
        stories.len()
    );
    if !reasons.is_empty() {
        println!("n/a: {}", Vec::from_iter(reasons).join(", "));
    }
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {left_out} filtered out"
    );
    ExitCode::from(u8::from(failed > 0))
}
