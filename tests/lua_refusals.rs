//! A refusal writes nothing: of every script and every code, all that Redis holds is the same before and after. The same
//! for scripts that meet a full memory or a key of another type; and steps that end something go through even then.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod lua_part;
mod redis_part;

use lua_part::{Reply, Wire};
use redis_part::Redis;
use weir_core::ask::*;
use weir_core::limits::{OPS_REMEMBERED_MAX, OPS_REMEMBERED_MS, UNITS_MAX};
use weir_core::order::contract::Money;
use weir_core::redis::link::greeting::HomeId;
use weir_core::redis::script::Script;
use weir_core::redis::step::{Maker, Rehomed, SkuSteps, StepPlan, StreamId, Take};
use weir_core::time::WallMs;
use weir_proto::ids::*;

const KEEP_UNTIL: &str = "1900000000000";

fn key(number: u64) -> SkuKey {
    SkuKey {
        activity: ActivityId(7),
        sku: SkuId(number),
    }
}

fn steps(number: u64, policy: u64) -> SkuSteps {
    SkuSteps::new(StepPlan {
        sku: key(number),
        reservations_max: 4,
        unit_price: Money {
            minor: 100,
            currency: *b"CNY",
        },
        keep_until: WallMs(KEEP_UNTIL.parse().unwrap()),
        policy,
        ids_above: 0,
    })
}

fn reserve(number: u64, user: u64, name: &str, quantity: u32) -> LedgerOp {
    with_nonce(number, user, name, &format!("n-{user}-{name}"), quantity)
}

fn with_nonce(number: u64, user: u64, name: &str, nonce: &str, quantity: u32) -> LedgerOp {
    LedgerOp::Reserve(Reserve {
        sku: key(number),
        user: UserId(user),
        request_id: RequestId::new(name.as_bytes()).unwrap(),
        nonce: Nonce::new(nonce.as_bytes()).unwrap(),
        nonce_until: WallMs(0),
        quantity,
    })
}

fn lookup(number: u64, user: u64, name: &str, tombstone: bool) -> LedgerOp {
    LedgerOp::Lookup(Lookup {
        sku: key(number),
        user: UserId(user),
        request_id: RequestId::new(name.as_bytes()).unwrap(),
        tombstone,
    })
}

fn named(number: u64, id: u64) -> ReservationRef {
    ReservationRef {
        sku: key(number),
        reservation: ReservationId(id),
    }
}

fn release(number: u64, id: u64) -> LedgerOp {
    LedgerOp::Release(Release {
        target: named(number, id),
        end: ReleaseEnd::Closed,
    })
}

fn ops(number: u64, name: &str) -> OpsRef {
    OpsRef {
        sku: key(number),
        request_id: RequestId::new(name.as_bytes()).unwrap(),
    }
}

fn open(number: u64, name: &str, stock: u64, once: bool) -> LedgerOp {
    LedgerOp::Open(Open {
        target: ops(number, name),
        stock,
        quantity_max: 3,
        once_per_activity: once,
    })
}

fn set_mode(number: u64, name: &str, mode: Mode) -> LedgerOp {
    LedgerOp::SetMode(SetMode {
        target: ops(number, name),
        mode,
    })
}

fn restock(number: u64, name: &str, units: u64) -> LedgerOp {
    LedgerOp::Restock(Restock {
        target: ops(number, name),
        units,
    })
}

/// A server, and how often something was refused.
struct Scene {
    wire: Wire,
    count: usize,
}

impl Scene {
    /// A step that is carried out.
    fn does(&mut self, op: LedgerOp, code: i64) {
        let steps = steps(op.sku().sku.0, 5);
        let reply = self
            .wire
            .run(|out| steps.push(&op, &HomeId::default(), out));
        assert_eq!(reply.integers()[0], code, "{op:?}");
    }

    /// A step that is refused with this reply, or one that begins so, and writes nothing.
    fn refuses(&mut self, op: LedgerOp, wanted: &[i64]) {
        let steps = steps(op.sku().sku.0, 5);
        self.writes_nothing(wanted, |out| steps.push(&op, &HomeId::default(), out));
    }

    fn writes_nothing(&mut self, wanted: &[i64], frame: impl Fn(&mut Vec<u8>)) {
        let before = self.wire.everything();
        let reply = self.wire.run(frame);
        let got = reply.integers();
        assert_eq!(got.get(..wanted.len()), Some(wanted), "{got:?}");
        assert!(
            before == self.wire.everything(),
            "{wanted:?} wrote something"
        );
        self.count += 1;
    }

    fn script(&mut self, wanted: &[i64], script: Script, keys: &[&str], arguments: &[&str]) {
        let before = self.wire.everything();
        let got = self.wire.script(script, keys, arguments).integers();
        assert_eq!(got.get(..wanted.len()), Some(wanted), "{script:?}: {got:?}");
        assert!(
            before == self.wire.everything(),
            "{script:?} wrote something"
        );
        self.count += 1;
    }
}

#[test]
fn no_refusal_of_the_ledger_writes_anything() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene {
        wire: Wire::new(redis.connect()),
        count: 0,
    };
    never_opened(&mut scene);
    scene.does(open(1, "open-one", 10, true), 16);
    scene.does(reserve(1, 1, "request-1", 1), 0);
    scene.does(reserve(1, 2, "request-2", 1), 0);
    scene.does(release(1, 2), 13);
    scene.does(lookup(1, 3, "request-3", true), 12);
    requests(&mut scene);
    moves(&mut scene);
    operators(&mut scene);
    pauses(&mut scene);
    sold_out(&mut scene);
    assert_eq!(scene.count, 56);
}

fn never_opened(scene: &mut Scene) {
    scene.refuses(reserve(9, 1, "request-1", 1), &[7]);
    scene.refuses(lookup(9, 1, "request-1", true), &[7]);
    for op in [
        LedgerOp::Confirm(named(9, 1)),
        LedgerOp::Settle(named(9, 1)),
        LedgerOp::PaidLate(named(9, 1)),
        release(9, 1),
    ] {
        scene.refuses(op, &[15]);
    }
    scene.refuses(LedgerOp::Close(ops(9, "close-one")), &[7]);
    scene.refuses(set_mode(9, "mode-one", Mode::Normal), &[7]);
    scene.refuses(restock(9, "restock-1", 1), &[7]);
    scene.refuses(open(9, "open-one", UNITS_MAX + 1, false), &[9]);
    let steps = steps(9, 5);
    scene.writes_nothing(&[7], |out| steps.push_reopen(out));
    scene.writes_nothing(&[7], |out| steps.push_freeze("why", out));
    scene.writes_nothing(&[7], |out| steps.push_thaw(0, out));
    scene.writes_nothing(&[7], |out| steps.push_snapshot(0, 10, out));
    let here = HomeId::new(b"here:now").unwrap();
    let mended = Rehomed::Mended(Maker { store: 1, run: 1 });
    scene.writes_nothing(&[7], |out| steps.push_fence(&here, 1, out));
    scene.writes_nothing(&[7], |out| steps.push_rehome(&mended, &here, 1, out));
    scene.writes_nothing(&[7], |out| steps.push_mark(out));
}

fn requests(scene: &mut Scene) {
    scene.refuses(reserve(1, 1, "request-1", 1), &[1, 1, 0, 1]);
    scene.refuses(reserve(1, 1, "request-1", 2), &[4]);
    scene.refuses(reserve(1, 3, "request-3", 1), &[6]);
    let replayed = with_nonce(1, 4, "request-4", "n-1-request-1", 1);
    scene.refuses(replayed, &[5]);
    scene.refuses(reserve(1, 1, "request-9", 1), &[3, 1, 0, 1]);
    scene.refuses(reserve(1, 2, "request-9", 1), &[3, 2, 3, 1]); // once per activity
    scene.refuses(reserve(1, 5, "request-5", 0), &[9]);
    scene.refuses(reserve(1, 5, "request-5", 4), &[9]);
    scene.refuses(lookup(1, 1, "request-1", true), &[11, 1, 0, 1]);
    scene.refuses(lookup(1, 8, "request-8", false), &[12]);
    scene.does(reserve(1, 6, "request-6", 1), 0);
    scene.does(reserve(1, 7, "request-7", 1), 0);
    scene.refuses(reserve(1, 8, "request-8", 1), &[10]); // four were made, and more is not remembered
}

fn moves(scene: &mut Scene) {
    scene.refuses(LedgerOp::Confirm(named(1, 2)), &[14, 2, 3, 1]);
    scene.refuses(LedgerOp::Settle(named(1, 2)), &[14, 2, 3, 1]);
    scene.refuses(release(1, 2), &[13, 2, 3, 1]);
    scene.refuses(LedgerOp::PaidLate(named(1, 1)), &[14, 1, 0, 1]);
    scene.refuses(LedgerOp::Confirm(named(1, 5)), &[15]);
    scene.does(LedgerOp::Confirm(named(1, 1)), 13);
    scene.refuses(LedgerOp::Confirm(named(1, 1)), &[13, 1, 1, 1]);
    scene.does(LedgerOp::Settle(named(1, 1)), 13);
    scene.refuses(LedgerOp::Settle(named(1, 1)), &[13, 1, 2, 1]);
    scene.refuses(LedgerOp::Confirm(named(1, 1)), &[13, 1, 2, 1]);
    scene.refuses(release(1, 1), &[14, 1, 2, 1]);
    scene.refuses(LedgerOp::PaidLate(named(1, 1)), &[13, 1, 2, 1]);
}

fn operators(scene: &mut Scene) {
    scene.refuses(open(1, "open-one", 10, true), &[16, 10, 7, 2, 1, 0]);
    scene.refuses(open(1, "open-one", 11, true), &[4]);
    scene.refuses(restock(1, "open-one", 1), &[4]);
    scene.refuses(restock(1, "restock-1", 0), &[9]);
    scene.refuses(restock(1, "restock-1", UNITS_MAX - 9), &[9]);
    scene.refuses(restock(1, "restock-1", u64::MAX), &[9]);
    let old = steps(1, 4);
    let again = open(1, "open-two", 10, true);
    scene.writes_nothing(&[8, 2, 2], |out| old.push(&again, &HomeId::default(), out));
    let buyer = reserve(1, 9, "request-9", 1);
    scene.writes_nothing(&[8, 2, 2], |out| old.push(&buyer, &HomeId::default(), out));
}

fn pauses(scene: &mut Scene) {
    let steps = steps(1, 5);
    let buyer = || reserve(1, 9, "request-9", 1);
    scene.writes_nothing(&[17, 1, 1, 0], |out| steps.push_reopen(out));
    scene.writes_nothing(&[17, 1, 1, 0], |out| steps.push_thaw(9, out));
    scene.wire.run(|out| steps.push_freeze("failover", out));
    scene.writes_nothing(&[17, 1, 2, 0], |out| steps.push_freeze("again", out));
    scene.refuses(buyer(), &[8, 2, 1]);
    scene.wire.run(|out| steps.push_thaw(20, out));
    scene.does(set_mode(1, "mode-two", Mode::QueueOnly), 16);
    scene.refuses(buyer(), &[8, 2, 0]);
    scene.does(set_mode(1, "mode-three", Mode::Closed), 16);
    scene.refuses(buyer(), &[8, 3, 0]);
    scene.does(LedgerOp::Close(ops(1, "close-one")), 16);
    scene.refuses(buyer(), &[7]);
}

fn sold_out(scene: &mut Scene) {
    scene.does(open(2, "open-one", 2, false), 16);
    scene.refuses(reserve(2, 1, "request-1", 3), &[9]); // fewer are free
    scene.does(reserve(2, 1, "request-1", 2), 0);
    scene.refuses(reserve(2, 2, "request-2", 1), &[2, 2]);
    scene.does(release(2, 1), 13);
    scene.refuses(reserve(2, 2, "request-2", 1), &[2, 2]); // until the reopening
}

#[test]
fn no_refusal_of_a_limit_writes_anything() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene {
        wire: Wire::new(redis.connect()),
        count: 0,
    };
    let (bucket, log) = (&["{u:1}:bucket"][..], &["{u:1}:log"][..]);
    let taken = scene
        .wire
        .script(Script::Bucket, bucket, &["0.001", "1", "1", "1000"]);
    assert_eq!(taken.integers()[..2], [1, 0]);
    scene.script(&[0], Script::Bucket, bucket, &["0.001", "1", "1", "1000"]);
    scene.script(&[-2], Script::Bucket, bucket, &["1", "1", "2", "1000"]);
    for wrong in [
        ["0", "1", "1", "1000"],
        ["-1", "1", "1", "1000"],
        ["0.0001", "1", "1", "1000"],
        ["1e3", "1", "1", "1000"],
        ["1", "1.5", "1", "1000"],
        ["1", "0", "1", "1000"],
        ["1", "1", "0", "1000"],
        ["1", "1", "1", "1000.5"],
        ["1", "1", "1", "0"],
        ["1", "1000000000001", "1", "1000"],
        ["1", "", "1", "1000"],
    ] {
        scene.script(&[-1, 0, 0, 0], Script::Bucket, bucket, &wrong);
    }
    let window = &["60000", "1"];
    let taken = scene.wire.script(Script::WindowLog, log, window);
    assert_eq!(taken.integers()[..3], [1, 0, 0]);
    scene.script(&[0, 0], Script::WindowLog, log, window);
    scene.script(&[-1], Script::WindowLog, log, &["60000", "1025"]);

    let keys = &["{a1:s1}:lease", "{a1:s1}:lines"][..];
    let draw = |seq| ["one", "5", seq, "10", "1", "60000"];
    // A missing bucket is not open, and never full.
    scene.script(&[-1, 0], Script::LeaseDraw, keys, &draw("1"));
    let lease = &keys[..1];
    let back = ["one", "5", "1", "10", "1"];
    scene.script(&[-1], Script::LeaseReturn, keys, &back);
    let made = scene.wire.script(
        Script::LeasePolicy,
        lease,
        &["3", "1000000", "200", "1", "60000"],
    );
    assert_eq!(made.integers()[0], 1);
    let policy = ["2", "9000", "200", "1", "60000"];
    scene.script(&[0], Script::LeasePolicy, lease, &policy);
    let drawn = scene
        .wire
        .script(Script::LeaseDraw, keys, &draw("2"))
        .integers();
    assert_eq!(drawn[0], 1, "a new bucket is empty, and says so");
    scene.script(&[2, drawn[1]], Script::LeaseDraw, keys, &draw("2"));
    scene.script(&[0, 0], Script::LeaseDraw, keys, &draw("1"));
    scene.script(&[0], Script::LeaseReturn, keys, &back); // of another bucket
    let boot = drawn[3].to_string();
    let above = ["one", "5", "3", "10", &boot];
    scene.script(&[0], Script::LeaseReturn, keys, &above); // never drawn
    let other_run = ["one", "6", "2", "10", &boot];
    scene.script(&[0], Script::LeaseReturn, keys, &other_run);
    assert_eq!(scene.count, 23);
}

#[test]
fn a_key_of_another_type_or_a_bad_argument_stops_a_script_before_it_writes() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    let steps = steps(1, 5);
    let names = [
        "sku", "res", "req", "nonce", "user", "pending", "orders", "events",
    ];
    for name in names {
        wire.ask(&["FLUSHALL"]);
        wire.run(|out| steps.push(&open(1, "open-one", 1, false), &HomeId::default(), out));
        wire.ask(&["DEL", &steps.key(name)]);
        wire.ask(&["SET", &steps.key(name), "of another application"]);
        let before = wire.everything();
        let buyer = reserve(1, 1, "request-1", 1);
        let reply = wire.run(|out| steps.push(&buyer, &HomeId::default(), out));
        let Reply::Error(error) = reply else {
            panic!("{name}: {reply:?}");
        };
        assert!(error.starts_with("WRONGTYPE"), "{name}: {error}");
        assert_eq!(before, wire.everything(), "{name}");
    }
    wire.ask(&["FLUSHALL"]);
    wire.run(|out| steps.push(&open(1, "open-one", 1, false), &HomeId::default(), out));
    let before = wire.everything();
    let past = SkuSteps::new(StepPlan {
        keep_until: WallMs(1_000),
        ..*steps.plan()
    });
    let buyer = reserve(1, 1, "request-1", 1);
    let reply = wire.run(|out| past.push(&buyer, &HomeId::default(), out));
    assert!(
        matches!(&reply, Reply::Error(error) if error.starts_with("WEIRARGS")),
        "{reply:?}"
    );
    let reply = wire.run(|out| past.push(&restock(1, "restock-1", 1), &HomeId::default(), out));
    assert!(
        matches!(&reply, Reply::Error(error) if error.starts_with("WEIRARGS")),
        "{reply:?}"
    );
    assert_eq!(before, wire.everything());
}

#[test]
fn keys_that_contradict_each_other_are_named_and_nothing_is_written() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    let steps = steps(1, 5);
    let [sku, res, req, user] = ["sku", "res", "req", "user"].map(|name| steps.key(name));
    let opens = open(1, "open-one", 5, false);
    let buyer = |user| reserve(1, user, "request-1", 1);
    let mut refuses = |prepare: &[&[&str]], op: LedgerOp, key: &str| {
        wire.ask(&["FLUSHALL"]);
        for command in prepare {
            match command {
                ["open"] => wire.run(|out| steps.push(&opens, &HomeId::default(), out)),
                ["buy"] => wire.run(|out| steps.push(&buyer(1), &HomeId::default(), out)),
                other => wire.ask(other),
            };
        }
        let before = wire.everything();
        let reply = wire.run(|out| steps.push(&op, &HomeId::default(), out));
        let named = format!("WEIRBOOKS {key}: ");
        assert!(
            matches!(&reply, Reply::Error(error) if error.starts_with(&named)),
            "{reply:?} does not name {key}"
        );
        assert!(before == wire.everything());
    };
    refuses(&[&["HSET", &sku, "of", "another"]], opens, &sku);
    refuses(&[&["open"], &["HSET", &res, "1", "x"]], buyer(1), &res);
    let lost: &[&[&str]] = &[&["open"], &["buy"], &["HDEL", &res, "1"]];
    refuses(lost, buyer(1), &req);
    refuses(lost, lookup(1, 1, "request-1", true), &req);
    refuses(lost, reserve(1, 1, "request-2", 1), &user);
}

#[test]
fn a_late_payment_takes_no_unit_of_a_frozen_sku() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene {
        wire: Wire::new(redis.connect()),
        count: 0,
    };
    let steps = steps(1, 5);
    scene.does(open(1, "open-one", 2, false), 16);
    for user in 1..=2 {
        scene.does(reserve(1, user, "request-1", 1), 0);
        scene.does(release(1, user), 13);
    }
    scene.wire.run(|out| steps.push_freeze("failover", out));
    let pays = |scene: &mut Scene, id| {
        let paid = LedgerOp::PaidLate(named(1, id));
        let reply = scene
            .wire
            .run(|out| steps.push(&paid, &HomeId::default(), out));
        reply.integers()
    };
    assert_eq!(pays(&mut scene, 1), [13, 1, 5, 1], "a refund is due");
    scene.wire.run(|out| steps.push_thaw(0, out));
    assert_eq!(pays(&mut scene, 2), [13, 2, 2, 1], "sold again");
}

#[test]
fn a_full_memory_refuses_grants_whole_and_lets_endings_through() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene {
        wire: Wire::new(redis.connect()),
        count: 0,
    };
    scene.does(open(1, "open-one", 10, false), 16);
    for user in 1..=3 {
        scene.does(reserve(1, user, "request-1", 1), 0);
    }
    scene.wire.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = scene.wire.everything();
    let steps = steps(1, 5);
    for op in [
        reserve(1, 9, "request-9", 1),
        lookup(1, 9, "request-9", true),
        restock(1, "restock-1", 5),
        set_mode(1, "mode-one", Mode::Closed),
    ] {
        let reply = scene
            .wire
            .run(|out| steps.push(&op, &HomeId::default(), out));
        let is_oom = matches!(&reply, Reply::Error(error) if error.starts_with("OOM"));
        assert!(is_oom, "{op:?}: {reply:?}");
    }
    assert_eq!(before, scene.wire.everything());
    scene.does(LedgerOp::Confirm(named(1, 1)), 13);
    scene.does(LedgerOp::Settle(named(1, 1)), 13);
    scene.does(LedgerOp::Settle(named(1, 2)), 13);
    scene.does(release(1, 3), 13);
    scene.does(LedgerOp::PaidLate(named(1, 3)), 13);
    let sku = scene.wire.hash(&steps.key("sku"));
    let books = ["free", "held", "sold"].map(|name| sku[name].as_str());
    assert_eq!(books, ["7", "0", "3"]);
}

#[test]
fn operators_requests_are_remembered_for_a_day_and_then_the_oldest_goes() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene {
        wire: Wire::new(redis.connect()),
        count: 0,
    };
    let steps = steps(1, 5);
    scene.does(open(1, "open-one", 10, false), 16);
    for number in 1..OPS_REMEMBERED_MAX {
        scene.does(set_mode(1, &format!("mode-{number}"), Mode::Normal), 16);
    }
    scene.refuses(restock(1, "restock-1", 1), &[10]);
    scene.refuses(open(1, "open-one", 10, false), &[16]); // remembered all the same
    let ops_key = steps.key("ops");
    let oldest = scene.wire.ask(&["HGET", &ops_key, "r:open-one"]);
    let (at, content) = oldest.text().split_once(' ').unwrap();
    let aged = at.parse::<u64>().unwrap() - OPS_REMEMBERED_MS;
    let aged = format!("{aged} {content}");
    scene.wire.ask(&["HSET", &ops_key, "r:open-one", &aged]);
    scene.does(restock(1, "restock-1", 1), 16);
    let fields = scene.wire.ask(&["HLEN", &ops_key]);
    let wanted = 2 * OPS_REMEMBERED_MAX as i64 + 2; // two for each, and the numbers of the first and the next
    assert_eq!(fields, Reply::Integer(wanted));
    scene.does(restock(1, "restock-1", 1), 16);
    let sku = scene.wire.hash(&steps.key("sku"));
    assert_eq!(sku["total"], "11", "a repeat adds nothing");
}

#[test]
fn times_never_run_back() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene {
        wire: Wire::new(redis.connect()),
        count: 0,
    };
    let steps = steps(1, 5);
    scene.does(open(1, "open-one", 10, false), 16);
    // As after a failover to a server whose clock is behind.
    let ahead = "1899999999999";
    scene.wire.ask(&["HSET", &steps.key("sku"), "now", ahead]);
    scene.does(reserve(1, 1, "request-1", 1), 0);
    scene.does(release(1, 1), 13);
    let record = scene.wire.ask(&["HGET", &steps.key("res"), "1"]);
    assert!(
        record.text().starts_with(&format!("3 1 {ahead} {ahead} ")),
        "{record:?}"
    );
}

#[test]
fn messages_are_handed_to_one_store_and_its_newest_run_only() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene {
        wire: Wire::new(redis.connect()),
        count: 0,
    };
    let steps = steps(1, 5);
    let take = |store, run, count| Take {
        maker: Maker { store, run },
        count,
        claim_from: Some(StreamId::default()),
        idle_ms: 0,
        done: &[],
        look_at: &[],
    };
    scene.writes_nothing(&[7], |out| steps.push_take(&take(5, 9, 64), out));
    scene.does(open(1, "open-one", 3, false), 16);
    scene.does(reserve(1, 1, "request-1", 1), 0);
    let reply = scene.wire.run(|out| steps.push_take(&take(5, 9, 64), out));
    assert!(matches!(&reply, Reply::List(items) if items[0] == Reply::Integer(20)));
    for (store, run) in [(6, 99), (5, 8)] {
        let before = scene.wire.everything();
        let reply = scene
            .wire
            .run(|out| steps.push_take(&take(store, run, 64), out));
        assert!(matches!(&reply, Reply::List(items) if items[0] == Reply::Integer(21)));
        assert!(before == scene.wire.everything(), "{store} {run}");
    }
    // More than a page, which no program of ours asks for.
    let before = scene.wire.everything();
    let reply = scene.wire.run(|out| steps.push_take(&take(5, 9, 65), out));
    assert!(matches!(&reply, Reply::Error(error) if error.starts_with("WEIRARGS")));
    assert!(before == scene.wire.everything());
    // The next run takes over.
    let reply = scene.wire.run(|out| steps.push_take(&take(5, 10, 64), out));
    assert!(matches!(&reply, Reply::List(items) if items[0] == Reply::Integer(20)));
}
