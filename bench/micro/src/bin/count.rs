//! Runs one scenario of ours a given number of times, for callgrind: `perf/instructions.sh` reads the counts.
//!
//! `count list` names them, `count cpu` says which CPU features this process is shown.

fn main() -> std::process::ExitCode {
    weir_micro::command_line(weir_micro::ours())
}
