//! Leases: no loss, repetition, reorder or crash ever admits more than rate × time + burst, and hot shards are not starved.

use weir_core::limit::book::LeaseBook;
use weir_core::limit::budget::BudgetShare;
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::{LeaseDraw, LeaseGrant, LeaseReturn, ShardId};
use weir_core::limits::{BUDGET_BURST_MS, BUDGET_RAMP_MS, LEASE_RESEND_MS, LEASE_TTL_MS};
use weir_core::time::{Mono, NS_PER_MS, NS_PER_S};
use weir_proto::ids::{ActivityId, SkuId, SkuKey};

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};

struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn at_ms(ms: u64) -> Mono {
    Mono(NS_PER_S).plus_ms(ms)
}

fn book(rate: u64, shards: u16) -> LeaseBook {
    LeaseBook::new(at_ms(0), 1, Rate::per_second(rate), shards).expect("enforceable")
}

fn share(shard: u16, boot: u64) -> BudgetShare {
    BudgetShare::new(at_ms(0), ShardId(shard), SKU, boot)
}

fn draw(seq: u64, want: u32) -> LeaseDraw {
    LeaseDraw {
        shard: ShardId(0),
        sku: SKU,
        shard_boot: 9,
        seq,
        want,
        weight: 1,
    }
}

#[test]
fn a_new_budget_starts_empty_climbs_in_steps_and_reaches_its_rate() {
    let mut book = book(8_000, 1);
    assert_eq!(
        book.draw(at_ms(0), &draw(1, 1_000))
            .expect("current")
            .tokens,
        0
    );
    let mut taken = 0;
    let mut per_step = Vec::new();
    for ms in 1..=BUDGET_RAMP_MS + 1_000 {
        taken += book
            .draw(at_ms(ms), &draw(1 + ms, 1_000))
            .expect("current")
            .tokens;
        if ms % 125 == 0 {
            per_step.push(taken);
            taken = 0;
        }
    }
    let expected: Vec<u32> = (1..=16).map(|step: u32| 125 * step.min(8)).collect(); // 8,000/s is 1,000 per 125 ms
    assert_eq!(per_step, expected);
}

#[test]
fn a_late_first_draw_gets_what_the_steps_allowed_and_no_more_than_the_burst() {
    let mut late = book(8_000, 1);
    // 250 ms: one step at 1/8 (125 tokens), one at 2/8 (250 tokens).
    assert_eq!(
        late.draw(at_ms(250), &draw(1, 10_000))
            .expect("current")
            .tokens,
        375
    );
    let mut idle = book(8_000, 1);
    let burst = u32::try_from(8_000 * BUDGET_BURST_MS / 1_000).expect("small");
    assert_eq!(
        idle.draw(at_ms(60_000), &draw(1, 100_000))
            .expect("current")
            .tokens,
        burst
    );
}

#[test]
fn a_lost_grant_is_answered_again_with_the_same_tokens_and_a_duplicate_is_ignored() {
    let (mut book, mut share) = (book(8_000, 1), share(0, 9));
    let now = at_ms(500);
    assert!(!share.take(now, 1), "none = closed");
    let first = share.want(now).expect("empty");
    let lost = book.draw(now, &first).expect("current");
    assert_eq!(
        share.want(now.plus_ms(LEASE_RESEND_MS - 1)),
        None,
        "one draw at a time"
    );
    let again = share.want(now.plus_ms(LEASE_RESEND_MS)).expect("overdue");
    assert_eq!(again, first);
    let grant = book
        .draw(now.plus_ms(LEASE_RESEND_MS), &again)
        .expect("current");
    assert_eq!(grant, lost);
    assert_eq!(book.counts().granted, u64::from(grant.tokens));
    assert!(share.grant(now, &grant));
    assert!(!share.grant(now, &grant), "the same grant twice");
    assert_eq!(share.held(), grant.tokens);
    let other_run = LeaseGrant {
        shard_boot: 8,
        seq: grant.seq + 1,
        ..grant
    };
    assert!(!share.grant(now, &other_run));
    share.audit();
}

#[test]
fn unspent_tokens_expire_and_are_counted() {
    let (mut book, mut share) = (book(8_000, 1), share(0, 9));
    let now = at_ms(500);
    let grant = share
        .want(now)
        .and_then(|draw| book.draw(now, &draw))
        .expect("granted");
    assert!(share.grant(now, &grant) && grant.tokens > 1);
    assert!(share.take(now.plus_ms(LEASE_TTL_MS - 1), 1));
    assert!(!share.take(now.plus_ms(LEASE_TTL_MS), 1));
    assert_eq!(share.books().wasted, u64::from(grant.tokens) - 1);
    share.audit();
}

#[test]
fn a_return_is_credited_once_to_the_run_that_granted_it() {
    let (mut book, mut share) = (book(8_000, 1), share(0, 9));
    let now = at_ms(500);
    let grant = share
        .want(now)
        .and_then(|draw| book.draw(now, &draw))
        .expect("granted");
    share.grant(now, &grant);
    let saved = book.saved(now);
    let back = share.give_back(now).expect("held");
    assert_eq!(back.tokens, grant.tokens);
    assert_eq!(share.give_back(now), None);
    for wrong in [
        LeaseReturn {
            owner_boot: 0,
            ..back
        },
        LeaseReturn {
            shard_boot: 8,
            ..back
        },
        LeaseReturn {
            seq: back.seq + 1,
            ..back
        },
        LeaseReturn {
            shard: ShardId(7),
            ..back
        },
    ] {
        book.give_back(now, &wrong);
        assert_eq!(book.saved(now), saved);
    }
    book.give_back(now, &back);
    book.give_back(now, &back);
    assert_eq!(book.saved(now), saved + grant.tokens);
    assert_eq!(book.counts().returned, u64::from(grant.tokens));
    assert_eq!(book.counts().void, 5 * u64::from(grant.tokens));
    let too_much = LeaseReturn {
        tokens: 1_000_000,
        ..back
    };
    book.give_back(now, &too_much);
    assert_eq!(book.saved(now), saved + grant.tokens);
    share.audit();
}

#[test]
fn a_restarted_shard_starts_its_sequence_again_and_late_messages_of_its_old_run_get_nothing() {
    let mut book = book(80_000, 1);
    let now = at_ms(2_000);
    let of = |boot, seq| LeaseDraw {
        shard_boot: boot,
        ..draw(seq, 10)
    };
    assert_eq!(book.draw(now, &of(9, 5)).expect("first").tokens, 10);
    assert_eq!(book.draw(now, &of(3, 1)).expect("a new run").tokens, 10);
    assert_eq!(
        book.draw(now, &of(9, 6)),
        None,
        "a late draw of the old run"
    );
    assert_eq!(book.draw(now, &of(3, 2)).expect("current").tokens, 10);
    assert_eq!(book.counts().stale_draws, 1);
}

#[test]
fn a_restarted_owner_voids_what_its_earlier_run_granted() {
    let mut share = share(0, 9);
    let now = at_ms(500);
    let first = share
        .want(now)
        .and_then(|draw| book(8_000, 1).draw(now, &draw))
        .expect("granted");
    share.grant(now, &first);
    while share.held() > 1 {
        assert!(share.take(now, 1));
    }
    let draw = share.want(now).expect("less than half");
    let mut reborn = LeaseBook::new(now, 2, Rate::per_second(8_000), 1).expect("enforceable");
    let grant = reborn
        .draw(now.plus_ms(10), &draw)
        .expect("a run it has not seen");
    assert!(share.grant(now.plus_ms(10), &grant));
    assert_eq!((share.held(), share.books().wasted), (grant.tokens, 1));
    share.audit();
}

#[test]
fn the_hot_shard_of_four_gets_nearly_all_of_the_budget() {
    // B45: 95 % of 20,000 requests per second arrive at one of four shards; 10,000 per second may pass.
    let mut book = book(10_000, 4);
    let mut shares: Vec<_> = (0..4).map(|shard| share(shard, 9)).collect();
    let mut chance = Lcg(3);
    let mut mail: Vec<(Mono, LeaseGrant, usize)> = Vec::new();
    let (mut admitted, mut cold_asked, mut cold_admitted) = (0u64, 0u64, 0u64);
    for tick in 0..10_000 * 20u64 {
        let now = Mono(at_ms(0).0 + tick * NS_PER_MS / 20);
        while mail.first().is_some_and(|(due, ..)| *due <= now) {
            let (_, grant, index) = mail.remove(0);
            shares[index].grant(now, &grant);
        }
        let index = if chance.below(100) < 95 {
            0
        } else {
            1 + chance.below(3) as usize
        };
        let passed = u64::from(shares[index].take(now, 1));
        if tick >= 2_000 * 20 {
            admitted += passed;
            cold_asked += u64::from(index != 0);
            cold_admitted += if index == 0 { 0 } else { passed };
        }
        for (index, share) in shares.iter_mut().enumerate() {
            if let Some(draw) = share.want(now) {
                let grant = book.draw(now, &draw).expect("current");
                mail.push((now.plus_ms(1), grant, index)); // a round trip of 1 ms
            }
        }
    }
    let budget = 8 * 10_000;
    println!(
        "hot shard: {admitted} of {budget} tokens used; cold shards: {cold_admitted} of {cold_asked} requests passed"
    );
    assert!(admitted * 100 >= budget * 97 && admitted <= budget + budget / 50);
    assert!(
        cold_admitted * 2 > cold_asked,
        "the floor keeps cold shards alive"
    );
    shares.iter().for_each(BudgetShare::audit);
}

#[test]
fn under_loss_repetition_reorder_and_crashes_never_more_than_rate_times_time_plus_burst() {
    for seed in 0..200u64 {
        let mut chance = Lcg(seed);
        let rate = 500 + chance.below(20_000);
        let mut book = book(rate, 3);
        let mut shares: Vec<_> = (0..3)
            .map(|shard| share(shard, 1_000 + u64::from(shard)))
            .collect();
        let (mut draws, mut grants, mut backs) = (
            Vec::<LeaseDraw>::new(),
            Vec::<LeaseGrant>::new(),
            Vec::<LeaseReturn>::new(),
        );
        let (mut spent, mut boots) = (0u64, 2_000);
        for ms in 0..3_000u64 {
            let now = at_ms(ms);
            for share in &mut shares {
                for _ in 0..chance.below(20) {
                    spent += u64::from(share.take(now, 1));
                }
                draws.extend(share.want(now));
                if chance.below(200) == 0 {
                    backs.extend(share.give_back(now));
                }
            }
            let index = chance.below(3);
            if chance.below(300) == 0 {
                boots += 1;
                shares[index as usize].audit();
                shares[index as usize] = share(index as u16, boots); // crash: what it held is gone
            }
            // Each box delivers a random message, sometimes twice, sometimes never.
            for _ in 0..3 {
                if !draws.is_empty() {
                    let pick = chance.below(draws.len() as u64) as usize;
                    let draw = if chance.below(5) == 0 {
                        draws[pick]
                    } else {
                        draws.swap_remove(pick)
                    };
                    grants.extend(book.draw(now, &draw).filter(|_| chance.below(10) > 0));
                }
                if !grants.is_empty() {
                    let pick = chance.below(grants.len() as u64) as usize;
                    let grant = if chance.below(5) == 0 {
                        grants[pick]
                    } else {
                        grants.swap_remove(pick)
                    };
                    shares.iter_mut().for_each(|share| {
                        share.grant(now, &grant);
                    });
                }
                if let Some(back) = backs.pop() {
                    (0..=chance.below(2)).for_each(|_| {
                        book.give_back(now, &back);
                    });
                }
            }
            let counts = book.counts();
            let bound = rate * ms / 1_000 + rate * BUDGET_BURST_MS / 1_000 + 1;
            assert!(
                counts.granted - counts.returned <= bound,
                "seed {seed} at {ms} ms"
            );
            assert!(
                spent <= counts.granted - counts.returned,
                "seed {seed}: spent what was not granted"
            );
        }
        assert!(spent > 100, "seed {seed}: the budget still flows, {spent}");
        shares.iter().for_each(BudgetShare::audit);
    }
}

#[test]
fn a_quiet_share_asks_for_little_and_demand_fades() {
    let mut share = share(0, 9);
    for call in 0..10_000u64 {
        let _ = share.take(Mono(at_ms(0).0 + call * 50_000), 1); // 20,000 per second for half a second
    }
    let busy = share.want(at_ms(500)).expect("empty");
    assert!((4_000..8_000).contains(&busy.want), "{}", busy.want);
    let refused = LeaseGrant {
        sku: SKU,
        owner_boot: 1,
        shard_boot: 9,
        seq: busy.seq,
        tokens: 0,
        ttl_ms: 1_000,
        retry_ms: 10,
    };
    assert!(share.grant(at_ms(500), &refused));
    assert_eq!(share.want(at_ms(509)), None, "the owner asked for a pause");
    let quiet = share.want(at_ms(60_000)).expect("still empty");
    assert_eq!(
        (quiet.want, quiet.weight),
        (weir_core::limits::LEASE_TOKENS_MIN, 1)
    );
}

#[test]
fn a_quiet_share_is_renewed_before_its_lease_expires() {
    // The first buyer after a pause of any length finds tokens.
    let mut book = book(10_000, 1);
    let mut share = share(0, 9);
    let mut now = at_ms(2_000);
    for _ in 0..100 {
        if let Some(draw) = share.want(now) {
            let grant = book.draw(now, &draw).expect("current");
            assert!(share.grant(now, &grant));
        }
        let next = share
            .next_deadline()
            .expect("a share that holds tokens has to renew them");
        assert!(next > now, "no deadline in the past: the loop would spin");
        let before = Mono(next.0 - 1);
        assert!(share.clone().take(before, 1), "tokens at every instant");
        now = next;
    }
    share.audit();
}
