//! libFuzzer's loop around `config::check`; a difference is a crash whose message begins with "difference".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(difference) = weir_fuzz::config::check(data) {
        panic!("difference: {difference}");
    }
});
