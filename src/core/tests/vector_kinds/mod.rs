//! Kinds of limiter vectors beside token buckets: windows, shapers, shares, leases, parts of a cap, dry runs.
#![allow(clippy::unwrap_used, clippy::result_large_err)]

use super::shard_kit::{Kit, config, keyed, submit, ticket};
use super::{expect_verdict, n_of, policy_of, rate_of, time_of};
use serde_json::Value;
use weir_core::ask::LedgerAnswer;
use weir_core::limit::book::LeaseBook;
use weir_core::limit::gcra::{Bucket, Policy, Rate, Verdict};
use weir_core::limit::inflight::{SkuSlot, SlotCaps, Slots};
use weir_core::limit::lease::{LeaseDraw, ShardId};
use weir_core::limit::rule::{Kind, Rule};
use weir_core::limit::shaper::{Shaper, Turn};
use weir_core::limit::share::{Claim, part};
use weir_core::limit::table::{Key, KeyedLimiter, TableSpec};
use weir_core::time::{Mono, NS_PER_S};
use weir_proto::ids::{ActivityId, SkuId, SkuKey, UserId};

pub type Judged = Result<(), String>;

/// One key of a table of its own.
pub struct Alone {
    pub table: KeyedLimiter,
    pub key: Key,
}

pub fn alone(kind: Kind, policy: Policy, now: Mono) -> Alone {
    let spec = TableSpec {
        slots: 64,
        rule: Rule::new(kind, policy).unwrap(),
        overflow: Policy::CLOSED,
        secret: [7; 16],
    };
    let table = KeyedLimiter::new(now, &spec);
    let key = table.key(b"alone");
    Alone { table, key }
}

impl Alone {
    fn remaining(&self, now: Mono) -> u64 {
        u64::from(self.table.level(now, self.key).unwrap().remaining)
    }
}

pub fn fits(holds: bool, why: impl FnOnce() -> String) -> Judged {
    if holds { Ok(()) } else { Err(why()) }
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap()
}

fn steps(v: &Value) -> &[Value] {
    v["steps"].as_array().unwrap()
}

fn window_policy(limit: u64, window_ns: u64) -> Policy {
    let rate = Rate {
        tokens: limit,
        per_ns: window_ns,
    };
    Policy::new(rate, u32::try_from(limit).unwrap()).unwrap()
}

/// Rows of windows, through the fixed window; the sliding kinds agree wherever a row stays within one window.
pub fn fixed_window(v: &Value) -> Judged {
    let params = &v["params"];
    let policy = window_policy(number(&params["limit"]), number(&params["window_ns"]));
    let mut at = alone(Kind::FixedWindow, policy, Mono(0));
    for step in steps(v) {
        let now = time_of(step);
        match step["op"].as_str().unwrap() {
            "take" => expect_verdict(step, at.table.take(now, at.key, n_of(step)))?,
            "refund" => at.table.refund(now, at.key, n_of(step)),
            _ => {}
        }
        if step["remaining"].is_u64() {
            let left = at.remaining(now);
            fits(left == number(&step["remaining"]), || {
                format!("{step}: {left} left")
            })?;
        }
    }
    Ok(())
}

/// The limit changes between calls: what was consumed stays consumed, both ways.
pub fn policy_change(v: &Value) -> Judged {
    let window_ns = 60 * NS_PER_S;
    let first = window_policy(number(&steps(v)[0]["limit"]), window_ns);
    let mut at = alone(Kind::FixedWindow, first, Mono(0));
    for step in steps(v) {
        let policy = window_policy(number(&step["limit"]), window_ns);
        at.table
            .set_policy(Mono(0), policy, Policy::CLOSED)
            .map_err(|error| error.to_string())?;
        let verdict = at.table.take(Mono(0), at.key, n_of(step));
        let remaining = u32::try_from(number(&step["remaining"])).unwrap();
        fits(verdict == Verdict::Allow { remaining }, || {
            format!("{step}: {verdict:?}")
        })?;
    }
    Ok(())
}

/// Golang's reservations, and the pacing rows of others: turns, refusals, turns given back.
pub fn reserve(v: &Value) -> Judged {
    let patience = |step: &Value| step["max_wait_ns"].as_u64();
    let all = steps(v);
    let patience_ns = all.iter().find_map(patience).unwrap_or(u64::MAX);
    let mut shaper = Shaper::new(policy_of(&v["params"]), patience_ns, Mono(0));
    let mut kept: Option<Turn> = None;
    for step in all {
        let now = time_of(step);
        match step["op"].as_str().unwrap() {
            "reserve" => {
                let turn = shaper.reserve(now, n_of(step));
                let act_at = turn.as_ref().ok().map(|turn| turn.act_at.0);
                let expected = step["act_at_ns"].as_u64();
                fits(act_at == expected, || format!("{step}: {turn:?}"))?;
                if step["ref"].is_string() {
                    kept = turn.ok();
                }
            }
            "cancel" => {
                let refunded = kept.take().map_or(0, |turn| shaper.cancel(now, turn));
                fits(u64::from(refunded) == number(&step["refunded"]), || {
                    format!("{step}: {refunded}")
                })?;
            }
            "take" => {
                let level = shaper.level(now);
                let now_or_never = |shaper: &mut Shaper| {
                    let mut strict = shaper.clone();
                    let turn = strict.reserve(now, n_of(step));
                    let at_once = turn.is_ok_and(|turn| turn.act_at == now);
                    if at_once {
                        *shaper = strict;
                    }
                    at_once
                };
                let allowed = now_or_never(&mut shaper);
                let as_told = step["allow"] == allowed && step["tokens_before"] == level;
                fits(as_told, || format!("{step}: {allowed}, {level} before"))?;
            }
            "set_rate" => shaper
                .set_rate(now, rate_of(step))
                .map_err(|error| error.to_string())?,
            other => return Err(format!("unknown op {other}")),
        }
    }
    Ok(())
}

/// One permit per cycle, borrowed at most one cycle ahead; skipped cycles save nothing up.
pub fn cycle_reserve(v: &Value) -> Judged {
    let params = &v["params"];
    let rate = Rate {
        tokens: number(&params["per_cycle"]),
        per_ns: number(&params["cycle_ns"]),
    };
    let policy = Policy::new(rate, 1).unwrap();
    let mut shaper = Shaper::new(policy, number(&params["max_wait_ns"]), Mono(0));
    for step in steps(v) {
        let now = time_of(step);
        if step["op"] == "peek" {
            fits(shaper.level(now) == 1, || format!("{step}"))?;
            continue;
        }
        let wait = shaper
            .reserve(now, 1)
            .ok()
            .map(|turn| turn.act_at.since(now));
        let waits_as_told = match (step["wait_ns"].as_u64(), step["wait_max_ns"].as_u64()) {
            (Some(exact), _) => wait == Some(exact),
            (_, Some(most)) => wait.is_some_and(|ns| ns <= most),
            _ => wait.is_none(),
        };
        let level = shaper.level(now);
        fits(waits_as_told && step["available_after"] == level, || {
            format!("{step}: {wait:?}, {level}")
        })?;
    }
    Ok(())
}

/// nginx's delay tiers and lua-resty's pacing.
pub fn pacing(v: &Value) -> Judged {
    let params = &v["params"];
    let (rate, burst) = (rate_of(params), number(&params["burst"]));
    let delay_after = params["delay_after"].as_u64().unwrap_or(0);
    let policy = Policy::new(rate, u32::try_from(delay_after + 1).unwrap()).unwrap();
    let patience_ns = (burst - delay_after) * rate.per_ns / rate.tokens;
    let mut shaper = Shaper::new(policy, patience_ns, Mono(0));
    for step in steps(v) {
        let mut asked = shaper.clone();
        let turn = asked.reserve(Mono(0), 1);
        let delay = turn.as_ref().ok().map(|turn| turn.act_at.0);
        let as_told = match (step["delay_ns"].as_u64(), step["result"].as_str()) {
            (Some(ns), _) => delay == Some(ns),
            (_, Some("pass")) => delay.is_some_and(|ns| step["delayed"] == (ns > 0)),
            _ => delay.is_none(),
        };
        fits(as_told, || format!("{step}: {delay:?}"))?;
        if step["commit"] != false {
            shaper = asked;
        }
        if params["uncommit_after_each"] == true {
            turn.map(|turn| shaper.cancel(Mono(0), turn)).ok();
        }
    }
    Ok(())
}

/// A rule that only watches: what it would have said, and then the same rule in earnest.
pub fn dry_run(v: &Value) -> Judged {
    let params = &v["params"];
    let policy =
        |burst: u64| Policy::new(rate_of(params), u32::try_from(burst + 1).unwrap()).unwrap();
    let mut watched = alone(Kind::LeakyBucket, policy(number(&params["burst"])), Mono(0));
    let mut strict = alone(Kind::LeakyBucket, policy(0), Mono(0));
    strict.table.take(Mono(0), strict.key, 1); // the rows' first call counted there, too
    for step in steps(v) {
        let at = if step["rule"].is_string() {
            &mut strict
        } else {
            &mut watched
        };
        let probe = at.table.probe(Mono(0), at.key, 1);
        let label = match (probe.verdict.is_allow(), at.table.pace_ns(&probe)) {
            (true, 0) => "PASSED",
            (true, _) => "DELAYED",
            (false, _) => "REJECTED",
        };
        if probe.verdict.is_allow() {
            at.table.charge(&probe);
        }
        let told = step["label"].as_str().unwrap();
        let dry = told.ends_with("_DRY_RUN");
        let passes = probe.verdict.is_allow() || dry; // a shadow never refuses
        let as_told =
            told.trim_end_matches("_DRY_RUN") == label && passes == (step["result"] == "pass");
        fits(as_told, || format!("{step}: {label}"))?;
    }
    Ok(())
}

/// Fair shares by wish and weight; when wishes come one after the other, each takes what is left.
pub fn share(v: &Value) -> Judged {
    let params = &v["params"];
    if let Some(cases) = params["cases"].as_array() {
        return cases.iter().try_for_each(|case| {
            let wants: Vec<_> = case["want"]
                .as_array()
                .unwrap()
                .iter()
                .map(|want| (number(want), 1))
                .collect();
            let gets: Vec<_> = case["get"].as_array().unwrap().iter().map(number).collect();
            shares(number(&case["capacity"]), &wants, &gets)
        });
    }
    let clients = params["clients"].as_array().unwrap();
    let wants: Vec<_> = clients
        .iter()
        .map(|c| (number(&c["want"]), number(&c["subclients"])))
        .collect();
    let gets: Vec<_> = clients.iter().map(|c| number(&c["get"])).collect();
    let capacity = number(&params["capacity"]);
    if params["algorithm"] == "static_per_client" {
        return wants
            .iter()
            .zip(&gets)
            .try_for_each(|(&(want, _), &get)| in_turn(capacity, &[want], &[get]));
    }
    if params["demands_known_before"] == false {
        let wants: Vec<_> = wants.iter().map(|(want, _)| *want).collect();
        return in_turn(capacity, &wants, &gets);
    }
    shares(capacity, &wants, &gets)
}

fn shares(capacity: u64, wants: &[(u64, u64)], gets: &[u64]) -> Judged {
    let claims: Vec<_> = wants
        .iter()
        .map(|&(want, weight)| Claim {
            want: u32::try_from(want).unwrap(),
            weight: u32::try_from(weight).unwrap(),
        })
        .collect();
    let got: Vec<_> = claims
        .iter()
        .map(|&mine| part(capacity, mine, claims.iter()))
        .collect();
    fits(got == gets, || {
        format!("{wants:?} of {capacity}: {got:?}, not {gets:?}")
    })
}

fn in_turn(capacity: u64, wants: &[u64], gets: &[u64]) -> Judged {
    let policy = Policy::new(Rate::ZERO, u32::try_from(capacity).unwrap()).unwrap();
    let mut bucket = Bucket::full(policy, Mono(0));
    wants.iter().zip(gets).try_for_each(|(&want, &get)| {
        let got = bucket.take_up_to(Mono(0), u32::try_from(want).unwrap());
        fits(u64::from(got) == get, || {
            format!("{want} of {capacity}: {got}, not {get}")
        })
    })
}

/// Lease servers that lend: weir gives min(want, what is there), never more, and so converges to the rate at once.
pub fn lease_server(v: &Value) -> Judged {
    let params = &v["params"];
    let (rate, initial) = (number(&params["rate_per_s"]), number(&params["initial"]));
    let capacity = params["burst"].as_u64().unwrap_or(initial);
    let policy = Policy::new(Rate::per_second(rate), u32::try_from(capacity).unwrap()).unwrap();
    let mut bucket = Bucket::with_tokens(policy, Mono(0), u32::try_from(initial).unwrap());
    let between_ms = params["advance_between_s"].as_u64().unwrap_or(0) * 1_000;
    let (mut now, mut granted) = (Mono(0), 0u64);
    for step in steps(v) {
        match step["op"].as_str().unwrap() {
            "advance_s" => now = now.plus_ms(number(&step["s"]) * 1_000),
            "request" => {
                let want = step["want"].as_f64().unwrap() as u32;
                let there = bucket.level(now).remaining;
                let got = bucket.take_up_to(now, want);
                granted += u64::from(got);
                let never_lends = got == want.min(there);
                // Where the source did not lend, weir gives what it gave.
                let as_source = step["left"].as_f64().is_none_or(|left| left < 0.0)
                    || step["grant"].as_f64() == Some(f64::from(got));
                fits(never_lends && as_source, || {
                    format!("{step}: {got} of {there}")
                })?;
                now = now.plus_ms(between_ms);
            }
            _ => {
                let per_period = bucket.take_up_to(now, u32::MAX);
                fits(step["grant"] == per_period, || {
                    format!("{step}: {per_period}")
                })?;
                granted += u64::from(per_period);
            }
        }
        let bound = initial + rate * now.0 / NS_PER_S;
        fits(granted <= bound, || format!("{step}: {granted} of {bound}"))?;
    }
    Ok(())
}

/// Several nodes at one limit, no broadcast in between: together they get what there is.
pub fn cluster_eventual(v: &Value) -> Judged {
    let limit = number(&v["params"]["limit"]);
    let mut book = LeaseBook::new(Mono(0), 1, Rate::per_second(limit * 5), 3).unwrap(); // 200 ms of it are saved: the limit
    let now = Mono(0).plus_ms(10_000);
    let sku = SkuKey {
        activity: ActivityId(1),
        sku: SkuId(1),
    };
    let (mut granted, mut asked) = (0, 0);
    for (seq, step) in (1..).zip(steps(v).iter().filter(|step| step["op"] == "take")) {
        let shard = match step["at"].as_str().unwrap() {
            "peer A" => 0,
            "peer B" => 1,
            _ => 2,
        };
        let draw = LeaseDraw {
            shard: ShardId(shard),
            sku,
            shard_boot: 1,
            seq,
            want: n_of(step),
            weight: 1,
        };
        let tokens = book.draw(now, &draw).ok_or("drawn")?.tokens;
        let expected = if step["allow"] == false {
            0
        } else {
            n_of(step)
        };
        fits(tokens == expected, || format!("{step}: {tokens}"))?;
        granted += u64::from(tokens);
        asked += u64::from(n_of(step));
    }
    fits(granted == limit && asked > limit, || {
        format!("{granted} of {limit}")
    })
}

/// A rate measured over windows: what the sliding counter keeps of the last and the present one.
pub fn sketch_rate(v: &Value) -> Judged {
    // A burst far above what is observed: the counter only counts.
    let policy = window_policy(1_000, number(&v["params"]["window_ns"]));
    let mut at = alone(Kind::SlidingCounter, policy, Mono(0));
    for step in steps(v) {
        let now = time_of(step);
        if step["observe"].is_u64() {
            let observed = u32::try_from(number(&step["observe"])).unwrap();
            fits(at.table.take(now, at.key, observed).is_allow(), || {
                format!("{step}")
            })?;
        }
        // At a window's first instant the whole last window counts, and the present one with it.
        let counted = 1_000 - at.remaining(now);
        let expected = step["current"].as_u64().unwrap_or(0) + step["rate"].as_u64().unwrap_or(0);
        fits(counted == expected, || format!("{step}: {counted}"))?;
    }
    Ok(())
}

/// 80 paced calls, one after the other: 79 gaps.
pub fn paced_calls(v: &Value) -> Judged {
    let params = &v["params"];
    let rate = rate_of(params);
    let mut shaper = Shaper::new(Policy::new(rate, 1).unwrap(), NS_PER_S, Mono(0));
    let mut now = Mono(0);
    for _ in 0..80 {
        now = shaper
            .reserve(now, 1)
            .map_err(|refused| format!("{refused:?}"))?
            .act_at;
    }
    fits(now.0 == 79 * NS_PER_S / rate.tokens, || format!("{now:?}"))
}

/// Parts of a cap: where the source lets parts push the total to 17 of 10, weir's stay within it. Each SKU has slots
/// that no other takes, and takes at most its own cap.
pub fn partitions(v: &Value) -> Judged {
    let limits = &steps(v)[0];
    let (batch, live) = (
        number(&limits["batch"]) as u32,
        number(&limits["live"]) as u32,
    );
    let total = number(&v["params"]["total"]) as u32;
    let caps = SlotCaps {
        submits_max: total,
        status_max: 0,
        sku_max: live,
        sku_min: batch,
        user_max: total,
    };
    let mut slots = Slots::new(caps, 2, [5; 16]);
    let mut taken = [0, 0];
    let mut held = Vec::new();
    for (sku, taken) in (0..).zip(&mut taken) {
        while let Ok(slot) = slots.acquire_submit(SkuSlot(sku), UserId(u64::from(*taken))) {
            held.push(slot);
            *taken += 1;
        }
    }
    slots.audit(total);
    held.into_iter().for_each(|slot| slots.release(slot));
    slots.audit(0);
    fits(taken == [live, batch], || format!("{taken:?} of {total}"))
}

/// A ticket without a device is not limited by device, and not counted under an empty one: any number passes a limit
/// that lets one pass.
pub fn empty_key() -> Judged {
    let mut config = config();
    config.user = keyed(Rate::per_second(1_000_000), 1_000_000);
    config.device = keyed(Rate::per_second(1), 1);
    let mut kit = Kit::open(config);
    kit.connect(0);
    for number in 0..20u8 {
        let request = submit(
            u64::from(number) + 1,
            &format!("request-{number:04}"),
            &ticket(u64::from(number) + 1, number, true),
        );
        kit.bytes(0, &request);
        kit.end_turn();
        let ask = kit.asks().pop();
        fits(ask.is_some(), || format!("submit {number} was refused"))?;
        kit.answer(&ask.unwrap(), LedgerAnswer::QuantityRefused);
    }
    Ok(())
}
