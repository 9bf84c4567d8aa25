//! As `bin/count.rs`, with the scenarios of the peers. A program of its own: theirs must not change how ours is compiled.

fn main() -> std::process::ExitCode {
    weir_micro::command_line(weir_micro::peers())
}
