//! `weir`: see `weir --help`.
fn main() {}
