//! The command line of the two counting programs.

use crate::{Scenario, bytes_per_key};
use std::process::ExitCode;

/// `list`: a line per scenario with its name, its requests per turn and the name of its MAC. `cpu`: the features that
/// this process is shown. `NAME TURNS [slower]`: runs it, or runs it 5 % slower on purpose.
pub fn command_line(scenarios: Vec<Scenario>) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => {
            for scenario in &scenarios {
                let mac = scenario.mac.unwrap_or("-");
                println!("{} {} {mac}", scenario.name, scenario.per_turn);
            }
            ExitCode::SUCCESS
        }
        ["cpu"] => {
            println!("{}", cpu_features());
            ExitCode::SUCCESS
        }
        ["key-bytes"] => {
            let (slot, sketch) = bytes_per_key();
            println!("{slot:.2} bytes in its slot, {sketch:.2} more per slot for the sketch");
            ExitCode::SUCCESS
        }
        [name, turns] => run(&scenarios, name, turns, false),
        [name, turns, "slower"] => run(&scenarios, name, turns, true),
        _ => {
            eprintln!("usage: count list | cpu | key-bytes | NAME TURNS [slower]");
            ExitCode::from(2)
        }
    }
}

fn run(scenarios: &[Scenario], name: &str, turns: &str, slower: bool) -> ExitCode {
    let Some(scenario) = scenarios.iter().find(|scenario| scenario.name == name) else {
        eprintln!("no scenario is named {name}; `count list` names them");
        return ExitCode::from(2);
    };
    let turns = match turns.parse::<u64>() {
        Ok(turns) if (1..=scenario.chunk / 2).contains(&turns) => turns,
        _ => {
            eprintln!(
                "turns are a number from 1 to {}, not {turns}",
                scenario.chunk / 2
            );
            return ExitCode::from(2);
        }
    };
    let mut work = (scenario.make)();
    scenario.warm(work.as_mut());
    if slower {
        scenario.run_slower(work.as_mut(), turns);
    } else {
        scenario.run(work.as_mut(), turns);
    }
    ExitCode::SUCCESS
}

/// Those that the code here asks for at run time; valgrind answers for a CPU of its own, without SHA-NI and AVX-512.
#[cfg(target_arch = "x86_64")]
fn cpu_features() -> String {
    let known = [
        ("sse4.1", is_x86_feature_detected!("sse4.1")),
        ("ssse3", is_x86_feature_detected!("ssse3")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("sha", is_x86_feature_detected!("sha")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
    ];
    let shown = known.iter().filter(|(_, is)| *is).map(|(name, _)| *name);
    let names: Vec<&str> = core::iter::once("x86_64").chain(shown).collect();
    names.join(" ")
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_features() -> String {
    std::env::consts::ARCH.to_string()
}
