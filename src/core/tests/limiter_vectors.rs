//! The shared limiter vectors: every row holds but those about adaptive limits and breakers, which are counted as "later".

#[path = "../../../tests/support/say.rs"]
mod say;
mod shard_kit;
mod vector_kinds;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_core::limit::book::LeaseBook;
use weir_core::limit::gcra::{Bucket, Policy, PolicyError, Rate, Verdict};
use weir_core::limit::inflight::{SkuSlot, SlotCaps, Slots};
use weir_core::limit::lease::{LeaseDraw, ShardId};
use weir_core::limit::rule::Rule;
use weir_core::limit::table::{KeyedLimiter, TableSpec};
use weir_core::time::Mono;
use weir_proto::ids::{ActivityId, SkuId, SkuKey, UserId};

fn vectors_path() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut roots: Vec<PathBuf> = std::env::var_os("WEIR_SHARED")
        .map(PathBuf::from)
        .into_iter()
        .collect();
    roots.extend(["../../../shared", "../../../../shared", "../../tests"].map(|up| here.join(up)));
    roots
        .iter()
        .flat_map(|root| [root.join("limiter-vectors.json"), root.join("data/limiter-vectors.json")])
        .find(|path| path.is_file())
        .expect("limiter-vectors.json is found below WEIR_SHARED, in ../shared/data beside the repository, or in tests/data")
}

fn rate_of(v: &Value) -> Rate {
    let per_ns = v["per_ns"].as_u64().expect("per_ns");
    match &v["tokens"] {
        Value::String(fraction) => {
            let (num, den) = fraction.split_once('/').expect("a fraction");
            Rate {
                tokens: num.parse().expect("numerator"),
                per_ns: per_ns * den.parse::<u64>().expect("denominator"),
            }
        }
        tokens => Rate {
            tokens: tokens.as_u64().expect("tokens"),
            per_ns,
        },
    }
}

fn policy_of(v: &Value) -> Policy {
    let capacity = u32::try_from(v["capacity"].as_u64().expect("capacity")).expect("u32");
    Policy::new(rate_of(v), capacity).expect("every vector's policy can be enforced")
}

fn bucket_of(v: &Value, now: Mono) -> Bucket {
    match v["initial"].as_u64() {
        Some(tokens) => Bucket::with_tokens(policy_of(v), now, u32::try_from(tokens).expect("u32")),
        None => Bucket::full(policy_of(v), now),
    }
}

fn time_of(step: &Value) -> Mono {
    Mono(step["t_ns"].as_u64().expect("t_ns"))
}

/// A count that saturates: some rows ask for more than a u32 holds.
fn n_of(step: &Value) -> u32 {
    step["n"]
        .as_u64()
        .map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX))
}

fn expect_verdict(step: &Value, verdict: Verdict) -> Result<(), String> {
    let want_allow = step["allow"].as_bool().unwrap_or(true);
    let fits = match verdict {
        Verdict::Allow { .. } => want_allow,
        Verdict::Never => !want_allow && step["never"] == true,
        Verdict::Wait { retry_after_ns } => {
            let expected = step["retry_after_ns"].as_u64();
            !want_allow && step["never"] != true && expected.is_none_or(|ns| ns == retry_after_ns)
        }
    };
    fits.then_some(())
        .ok_or_else(|| format!("{step}: got {verdict:?}"))
}

fn expect_level(step: &Value, bucket: &Bucket, now: Mono) -> Result<(), String> {
    let level = bucket.level(now);
    let remaining_fits = step["remaining"]
        .as_u64()
        .is_none_or(|n| n == u64::from(level.remaining));
    let reset_fits = step["reset_after_ns"]
        .as_u64()
        .is_none_or(|ns| Some(ns) == level.full_in_ns);
    (remaining_fits && reset_fits)
        .then_some(())
        .ok_or_else(|| format!("{step}: got {level:?}"))
}

fn run_token_bucket(v: &Value) -> Result<(), String> {
    let steps = v["steps"].as_array().expect("steps");
    let mut bucket = bucket_of(&v["params"], time_of(&steps[0]));
    for step in steps {
        let now = time_of(step);
        if let Some(before) = step["tokens_before"].as_u64() {
            let got = bucket.level(now).remaining;
            if u64::from(got) != before {
                return Err(format!("{step}: {got} tokens before"));
            }
        }
        match step["op"].as_str().expect("op") {
            "take" => {
                let before = bucket.clone();
                let verdict = bucket.take(now, n_of(step));
                expect_verdict(step, verdict)?;
                if !verdict.is_allow() && bucket != before {
                    return Err(format!("{step}: a refusal wrote"));
                }
            }
            "take_up_to" => {
                let granted = bucket.take_up_to(now, n_of(step));
                if Some(u64::from(granted)) != step["granted"].as_u64() {
                    return Err(format!("{step}: granted {granted}"));
                }
                if step["retry_after_ns"].is_u64()
                    && bucket.check(now, 1)
                        != (Verdict::Wait {
                            retry_after_ns: step["retry_after_ns"].as_u64().unwrap_or(0),
                        })
                {
                    return Err(format!("{step}: then {:?}", bucket.check(now, 1)));
                }
            }
            "refund" => bucket.refund(now, n_of(step)),
            "set_rate" => {
                let capacity = bucket.policy().capacity();
                bucket.set_policy(
                    now,
                    Policy::new(rate_of(step), capacity).expect("enforceable"),
                );
            }
            "replace" => bucket.set_policy(now, policy_of(step)),
            "peek" => {}
            other => return Err(format!("unknown op {other}")),
        }
        expect_level(step, &bucket, now)?;
    }
    Ok(())
}

/// The same rows through the keyed table: one u64 of state must give the same answers as a bucket of its own.
fn run_keyed(v: &Value) -> Result<(), String> {
    let steps = v["steps"].as_array().expect("steps");
    let only_takes = steps.iter().all(|step| step["op"] == "take");
    if v["params"]["initial"].is_u64() || !only_takes {
        return Ok(());
    }
    let policy = policy_of(&v["params"]);
    let spec = TableSpec {
        slots: 64,
        rule: Rule::gcra(policy),
        overflow: Policy::CLOSED,
        secret: [7; 16],
    };
    let mut table = KeyedLimiter::new(time_of(&steps[0]), &spec);
    let key = table.key(b"alone");
    steps
        .iter()
        .try_for_each(|step| expect_verdict(step, table.take(time_of(step), key, n_of(step))))
}

fn run_multi(v: &Value) -> Result<(), String> {
    let steps = v["steps"].as_array().expect("steps");
    let params = v["params"]["all_of"].as_array().expect("all_of");
    for reversed in [false, true] {
        let mut buckets: Vec<Bucket> = params.iter().map(|p| bucket_of(p, Mono(0))).collect();
        if reversed {
            buckets.reverse();
        }
        for step in steps {
            let (now, cost) = (time_of(step), n_of(step));
            let verdict = buckets
                .iter()
                .map(|b| b.check(now, cost))
                .reduce(Verdict::and)
                .expect("at least one");
            expect_verdict(step, verdict)?;
            if verdict.is_allow() {
                buckets
                    .iter_mut()
                    .for_each(|b| assert!(b.take(now, cost).is_allow()));
            }
        }
    }
    Ok(())
}

fn run_all_at_once(v: &Value) -> Result<(), String> {
    let mut bucket = bucket_of(&v["params"], Mono(0));
    for step in v["steps"].as_array().expect("steps") {
        if step["op"] == "all_at_once" {
            let callers = v["params"]["callers"].as_u64().expect("callers");
            let allowed = (0..callers)
                .filter(|_| bucket.take(time_of(step), 1).is_allow())
                .count() as u64;
            if Some(allowed) != step["allowed_total"].as_u64() {
                return Err(format!("{step}: {allowed} passed"));
            }
        } else {
            expect_verdict(step, bucket.take(time_of(step), n_of(step)))?;
        }
    }
    Ok(())
}

fn run_sweep(v: &Value) -> Result<(), String> {
    let params = &v["params"];
    let (every, duration) = (
        params["every_ns"].as_u64().expect("every"),
        params["duration_ns"].as_u64().expect("duration"),
    );
    let mut bucket = bucket_of(params, Mono(0));
    let allowed = (0..duration / every)
        .filter(|i| bucket.take(Mono(i * every), 1).is_allow())
        .count() as u64;
    let exact = v["steps"][0]["exact_model"].as_u64();
    (Some(allowed) == exact)
        .then_some(())
        .ok_or_else(|| format!("{allowed} passed, exact {exact:?}"))
}

fn run_config_reject(v: &Value) -> Result<(), String> {
    for case in v["params"]["cases"].as_array().expect("cases") {
        let capacity = u32::try_from(case["capacity"].as_u64().expect("capacity")).expect("u32");
        let made = Policy::new(rate_of(case), capacity);
        let fits = match (capacity, rate_of(case)) {
            (0, _) => made == Err(PolicyError::ZeroCapacity),
            (_, Rate { per_ns: 0, .. }) => made == Err(PolicyError::ZeroPeriod),
            (_, Rate { tokens: 0, .. }) => made.is_ok_and(|policy| policy.full_ns().is_none()), // weir accepts rate 0 as closed
            _ => false,
        };
        if !fits {
            return Err(format!("{case}: {made:?}"));
        }
    }
    Ok(())
}

fn run_seqnum() -> Result<(), String> {
    let rate = Rate::per_second(1_000);
    let mut book = LeaseBook::new(Mono(0), 1, rate, 2).expect("enforceable");
    let now = Mono(0).plus_ms(10_000);
    let draw = |shard, shard_boot, seq| LeaseDraw {
        shard: ShardId(shard),
        sku: SkuKey {
            activity: ActivityId(1),
            sku: SkuId(1),
        },
        shard_boot,
        seq,
        want: 10,
        weight: 1,
    };
    let charged = book.draw(now, &draw(0, 5, 1)).ok_or("first draw")?;
    let again = book.draw(now, &draw(0, 5, 1)).ok_or("duplicate draw")?;
    let older = book.draw(now, &draw(0, 5, 0));
    let granted_once = book.counts().granted;
    let restarted = book.draw(now, &draw(0, 6, 1)).ok_or("new run")?;
    let other = book.draw(now, &draw(1, 5, 1)).ok_or("other shard")?;
    let fits = charged.tokens == 10 && again == charged && granted_once == 10 && older.is_none();
    let all = fits && restarted.tokens == 10 && other.tokens == 10 && book.counts().granted == 30;
    all.then_some(())
        .ok_or_else(|| format!("{:?}", book.counts()))
}

/// A bucket short of full is never dropped; a full one is an absent key, so weir may forget it earlier than the source.
fn run_eviction(v: &Value) -> Result<(), String> {
    let spec = TableSpec {
        slots: 64,
        rule: Rule::gcra(policy_of(&v["params"])),
        overflow: Policy::CLOSED,
        secret: [3; 16],
    };
    let mut table = KeyedLimiter::new(Mono(0), &spec);
    let touches = v["params"]["touch"].as_object().expect("touch");
    for (name, at) in touches {
        let key = table.key(name.as_bytes());
        table.take(Mono(at.as_u64().expect("ns")), key, 1);
    }
    for step in v["steps"].as_array().expect("steps") {
        let now = time_of(step);
        let short_of_full = touches
            .values()
            .filter(|at| now.0 < at.as_u64().expect("ns") + 1_000_000_000)
            .count() as u64;
        let entries = table.entries_estimate(now, usize::MAX);
        if entries != short_of_full || entries > step["kept"].as_array().expect("kept").len() as u64
        {
            return Err(format!("{step}: {entries} entries"));
        }
    }
    Ok(())
}

/// Ten nodes that each want 20 of fewer saved tokens get no more than were saved.
fn run_lease_anti(v: &Value) -> Result<(), String> {
    let nodes = u16::try_from(v["params"]["nodes"].as_u64().expect("nodes")).expect("u16");
    let want =
        u32::try_from(v["params"]["unsynced_max_tokens"].as_u64().expect("want")).expect("u32");
    let mut book = LeaseBook::new(Mono(0), 1, rate_of(&v["params"]), nodes).expect("enforceable");
    let now = Mono(0).plus_ms(10_000);
    let sku = SkuKey {
        activity: ActivityId(1),
        sku: SkuId(1),
    };
    let saved = book
        .draw(
            now,
            &LeaseDraw {
                shard: ShardId(0),
                sku,
                shard_boot: 1,
                seq: 1,
                want: 0,
                weight: 1,
            },
        )
        .map(|_| book.saved(now));
    let grants = (0..nodes).filter_map(|node| {
        book.draw(
            now,
            &LeaseDraw {
                shard: ShardId(node),
                sku,
                shard_boot: 1,
                seq: 2,
                want,
                weight: 1,
            },
        )
    });
    let granted: u32 = grants.map(|grant| grant.tokens).sum();
    (Some(granted) == saved && granted > 0)
        .then_some(())
        .ok_or_else(|| format!("{granted} granted of {saved:?}"))
}

fn run_limit_conn() -> Result<(), String> {
    let mut slots = Slots::new(
        SlotCaps {
            submits_max: 8,
            status_max: 0,
            sku_max: 1,
            sku_min: 0,
            user_max: 8,
        },
        2,
        [5; 16],
    );
    let first = slots
        .acquire_submit(SkuSlot(0), UserId(1))
        .map_err(|e| format!("{e:?}"))?;
    if slots.acquire_submit(SkuSlot(0), UserId(1)).is_ok() {
        return Err("two slots of one".into());
    }
    let other = slots
        .acquire_submit(SkuSlot(1), UserId(1))
        .map_err(|e| format!("{e:?}"))?;
    slots.release(first); // the client went away
    let again = slots
        .acquire_submit(SkuSlot(0), UserId(1))
        .map_err(|e| format!("{e:?}"))?;
    slots.audit(2);
    slots.release(again);
    slots.release(other);
    slots.audit(0);
    Ok(())
}

fn run_property(v: &Value) -> Option<Result<(), String>> {
    let of = |policy: Policy| Bucket::full(policy, Mono(0));
    let holds = match v["id"].as_str().expect("id") {
        "redis_rate/retry-1ms" => {
            let mut bucket = of(policy_of(&v["params"]));
            (0..1000).all(|_| match bucket.take(Mono(0), 1) {
                Verdict::Wait { retry_after_ns } => (1..=1_000_000).contains(&retry_after_ns),
                verdict => verdict.is_allow(),
            })
        }
        "governor/wait-then-pass" => {
            let (mut bucket, mut now) = (of(policy_of(&v["params"])), Mono(0));
            (0..20).all(|_| {
                now = now.plus_ms(1);
                match bucket.take(now, 1) {
                    Verdict::Wait { retry_after_ns } => {
                        now = now.plus_ns(retry_after_ns);
                        bucket.take(now, 1).is_allow()
                    }
                    verdict => verdict.is_allow(),
                }
            })
        }
        "governor/over-1e9" => {
            let mut bucket = of(policy_of(&v["params"]));
            (0..2_000_000).all(|_| bucket.take(Mono(0), 1).is_allow())
        }
        "lua-resty/burst-0-1-2" => (0..3u32).all(|burst| {
            let mut bucket = of(Policy::new(rate_of(&v["params"]), burst + 1).expect("enforceable"));
            (0..=burst).all(|_| bucket.take(Mono(0), 1).is_allow()) && !bucket.take(Mono(0), 1).is_allow()
        }),
        "crdb/try-again-consistent" => (1..=500u64).all(|rate| {
            let mut bucket = Bucket::with_tokens(Policy::new(Rate::per_second(rate), 100).expect("enforceable"), Mono(0), 0);
            (1..=100u32).all(|cost| {
                let Verdict::Wait { retry_after_ns: first } = bucket.take(Mono(0), cost) else { return false };
                let waited = first * (u64::from(cost) % 10) / 10;
                matches!(bucket.take(Mono(waited), cost), Verdict::Wait { retry_after_ns } if retry_after_ns + waited == first)
            })
        }),
        "lua-resty/80-in-2s" => return Some(vector_kinds::paced_calls(v)),
        "nginx/empty-key" => return Some(vector_kinds::empty_key()),
        _ => return None,
    };
    Some(
        holds
            .then_some(())
            .ok_or_else(|| "the property does not hold".into()),
    )
}

fn run(v: &Value) -> Option<Result<(), String>> {
    Some(
        match (
            v["kind"].as_str().expect("kind"),
            v["id"].as_str().expect("id"),
        ) {
            ("token_bucket", _) => run_token_bucket(v).and_then(|()| run_keyed(v)),
            ("multi_bucket", _) => run_multi(v),
            ("concurrent_exact", _) => run_all_at_once(v),
            ("rate_sweep", _) => run_sweep(v),
            ("config_reject", _) => run_config_reject(v),
            ("lease_protocol", "crdb/seqnum") => run_seqnum(),
            ("concurrency", "nginx/limit-conn") => run_limit_conn(),
            ("eviction", _) => run_eviction(v),
            ("lease_anti", _) => run_lease_anti(v),
            ("property", _) => return run_property(v),
            ("fixed_window", "gubernator/drain") => return None, // a refusal that takes all: weir's write nothing (B10)
            ("fixed_window", _) => vector_kinds::fixed_window(v),
            ("policy_change", _) => vector_kinds::policy_change(v),
            ("reserve", _) => vector_kinds::reserve(v),
            ("cycle_reserve", _) => vector_kinds::cycle_reserve(v),
            ("pacing", _) => vector_kinds::pacing(v),
            ("dry_run", _) => vector_kinds::dry_run(v),
            ("share", _) => vector_kinds::share(v),
            ("lease_server", _) => vector_kinds::lease_server(v),
            ("cluster_eventual", _) => vector_kinds::cluster_eventual(v),
            ("sketch_rate", _) => vector_kinds::sketch_rate(v),
            ("partitioned_concurrency", _) => vector_kinds::partitions(v),
            _ => return None,
        },
    )
}

/// What a row that did not run waits for.
fn waits_for(v: &Value) -> &'static str {
    match v["kind"].as_str().expect("kind") {
        "breaker" | "aimd" | "vegas" | "client_throttle" => "overload",
        "interval_refill" => "absent: refill in steps",
        "fixed_window" => "absent: a refusal that takes what is left",
        other => panic!("{other}: every other kind runs"),
    }
}

#[test]
fn every_row_holds_but_those_about_overload() {
    let text = std::fs::read_to_string(vectors_path()).expect("readable");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let mut held = BTreeMap::<&str, u32>::new();
    let (mut later, mut absent, mut wrong) = (0, 0, 0);
    for v in file["vectors"].as_array().expect("vectors") {
        let (id, status) = (&v["id"], v["status"].as_str().expect("status"));
        match run(v) {
            Some(Ok(())) => *held.entry(status).or_default() += 1,
            Some(Err(why)) => {
                wrong += 1;
                println!("wrong {id}: {why}");
            }
            None => {
                let what = waits_for(v);
                let is_later = what == "overload";
                assert!(
                    is_later || status == "optional",
                    "{id}: only optional rows may be absent"
                );
                println!("{}{what}: {id}", if is_later { "later: " } else { "" });
                later += u32::from(is_later);
                absent += u32::from(!is_later);
            }
        }
    }
    let of = |status| held.get(status).copied().unwrap_or(0);
    let (conform, adapt, anti) = (of("conform"), of("adapt"), of("anti"));
    say::say(&format!(
        "limiter vectors: {conform} conform, {adapt} adapt, {anti} anti, {later} later, {wrong} wrong; optional: {} held, {absent} of features that weir does not have",
        of("optional")
    ));
    assert_eq!(wrong, 0);
    assert!(
        conform >= 114 && adapt >= 8 && anti >= 9 && of("optional") >= 12 && later <= 5,
        "rows are missing from the file or from this test"
    );
}
