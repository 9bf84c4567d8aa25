//! Resident memory does not grow over ten million distinct keys (Shows 8; field bugs B18, B24): read from the kernel, in
//! a binary of its own, so that nothing else touches the process's memory meanwhile.

use weir_core::limit::gcra::{Policy, Rate};
use weir_core::limit::rule::Rule;
use weir_core::limit::table::{KeyedLimiter, TableSpec};
use weir_core::time::Mono;

/// Growth that is noise: the kernel counts resident pages in batches per core.
const NOISE_KIB: u64 = 512;

fn resident_kib() -> u64 {
    let status =
        std::fs::read_to_string("/proc/self/status").expect("Linux says how much is resident");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("VmRSS is always there");
    line.trim()
        .trim_end_matches("kB")
        .trim()
        .parse()
        .expect("a number of KiB")
}

fn main() {
    let policy = Policy::new(
        Rate {
            tokens: 1,
            per_ns: 2_000_000_000,
        },
        3,
    )
    .expect("enforceable");
    let overflow = Policy::new(Rate::per_second(100), 200).expect("enforceable");
    let spec = TableSpec {
        slots: 1 << 18,
        rule: Rule::gcra(policy),
        overflow,
        secret: [7; 16],
    };
    let mut limiter = KeyedLimiter::new(Mono(0), &spec);
    let heavy = limiter.key(b"heavy");
    let mut now = Mono(0);
    let mut flood = |limiter: &mut KeyedLimiter, keys: std::ops::Range<u64>| {
        let mut heavy_passed = 0_u64;
        for number in keys {
            now = now.plus_ns(2_000); // half a million newcomers a second
            let key = limiter.key(&number.to_be_bytes());
            limiter.take(now, key, 1);
            if number.is_multiple_of(1_000) {
                heavy_passed += u64::from(limiter.take(now, heavy, 1).is_allow());
            }
        }
        heavy_passed
    };
    flood(&mut limiter, 0..1_000_000); // every page of the table has been touched
    let before_kib = resident_kib();
    let heavy_passed = flood(&mut limiter, 1_000_000..11_000_000);
    let after_kib = resident_kib();
    println!(
        "10,000,000 keys: {before_kib} KiB resident before, {after_kib} KiB after; {} went to the overflow bucket; the heavy key passed {heavy_passed} of 10,000",
        limiter.overflow_total()
    );
    assert!(after_kib <= before_kib + NOISE_KIB, "memory grew");
    // 20 s at 1 per 2 s, and its burst: the flood neither frees nor bars it.
    assert!(
        (10..=14).contains(&heavy_passed),
        "the heavy key is limited as if it were alone"
    );
    assert!(
        limiter.overflow_total() > 0,
        "the flood was larger than the table"
    );
}
