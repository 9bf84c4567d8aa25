//! libFuzzer's loop around `resp::check`; a difference is a crash whose message begins with "difference".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(difference) = weir_fuzz::resp::check(data) {
        panic!("difference: {difference}");
    }
});
