//! A SKU's books after a failover, on a real Redis: fence, offers and a new home, each with what it must not do (F6).
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod lua_part;
mod redis_part;

use lua_part::{Reply, Wire};
use redis_part::Redis;
use weir_core::ask::{LedgerOp, Open, OpsRef, ReservationState, Reserve, Restock};
use weir_core::order::contract::{Money, ORDER_MESSAGE_VERSION, OrderMessage, Restocked};
use weir_core::redis::link::greeting::HomeId;
use weir_core::redis::offer::Offer;
use weir_core::redis::reply::outbox;
use weir_core::redis::step::{Maker, Rehomed, SkuSteps, StepPlan, Stock};
use weir_core::time::WallMs;
use weir_proto::ids::{ActivityId, Nonce, RequestId, ReservationId, SkuId, SkuKey, UserId};

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
const PRICE: Money = Money {
    minor: 100,
    currency: *b"CNY",
};

/// Whose orders they are.
const MAKER: Maker = Maker { store: 7, run: 2 };

fn server(name: &str) -> HomeId {
    HomeId::new(name.as_bytes()).unwrap()
}

fn reserve(user: u64) -> Reserve {
    Reserve {
        sku: SKU,
        user: UserId(user),
        request_id: RequestId::new(format!("request-{user}").as_bytes()).unwrap(),
        nonce: Nonce::new(format!("nonce-{user}").as_bytes()).unwrap(),
        nonce_until: WallMs(0),
        quantity: 1,
    }
}

/// What was told to that user: reservation `number`, by now in `state`.
fn offer(number: u64, user: u64, state: ReservationState) -> Offer {
    let asked = reserve(user);
    Offer {
        message: OrderMessage {
            version: ORDER_MESSAGE_VERSION,
            reservation: ReservationId(number),
            sku: SKU,
            user: asked.user,
            quantity: asked.quantity,
            request_id: asked.request_id,
            unit_price: PRICE,
            reserved_at: WallMs(1_796_000_000_000 + number),
        },
        nonce: Some(asked.nonce),
        state,
    }
}

/// A SKU at a server: three units, and users 1 and 2 have one each.
struct Scene {
    wire: Wire,
    steps: SkuSteps,
}

impl Scene {
    fn new(redis: &Redis) -> Self {
        let mut scene = Self {
            wire: Wire::new(redis.connect()),
            steps: SkuSteps::new(StepPlan {
                sku: SKU,
                reservations_max: 100,
                unit_price: PRICE,
                keep_until: WallMs(1_900_000_000_000),
                policy: 1,
                ids_above: 0,
            }),
        };
        let open = Open {
            target: OpsRef {
                sku: SKU,
                request_id: RequestId::new(b"open-one").unwrap(),
            },
            stock: 3,
            quantity_max: 1,
            once_per_activity: false,
        };
        let steps = &scene.steps;
        let opened = scene
            .wire
            .run(|out| steps.push(&LedgerOp::Open(open), &server("old:run"), out));
        assert_eq!(opened.integers()[0], 16);
        assert_eq!(scene.reserve(1, "old:run")[0], 0);
        assert_eq!(scene.reserve(2, "old:run")[0], 0);
        scene
    }

    /// As an asker does who takes the server for the one of that name.
    fn reserve(&mut self, user: u64, at: &str) -> Vec<i64> {
        let (steps, op) = (&self.steps, LedgerOp::Reserve(reserve(user)));
        let reply = self.wire.run(|out| steps.push(&op, &server(at), out));
        reply.integers()
    }

    fn offer(&mut self, here: &str, offer: Offer) -> Vec<i64> {
        let steps = &self.steps;
        let reply = self
            .wire
            .run(|out| steps.push_offer(&server(here), &offer, out));
        reply.integers()
    }

    fn fence(&mut self, here: &str, heard: u64) -> Vec<i64> {
        let steps = &self.steps;
        let reply = self
            .wire
            .run(|out| steps.push_fence(&server(here), heard, out));
        reply.integers()
    }

    fn rehome(&mut self, from: Option<&str>, here: &str) -> Vec<i64> {
        let steps = &self.steps;
        let how = from.map_or(Rehomed::Mended(MAKER), |from| Rehomed::Moved(server(from)));
        let reply = self
            .wire
            .run(|out| steps.push_rehome(&how, &server(here), 0, out));
        reply.integers()
    }

    fn restock(&mut self, name: &str, units: u64) -> Vec<i64> {
        let target = OpsRef {
            sku: SKU,
            request_id: RequestId::new(name.as_bytes()).unwrap(),
        };
        let (steps, op) = (&self.steps, LedgerOp::Restock(Restock { target, units }));
        self.wire
            .run(|out| steps.push(&op, &HomeId::default(), out))
            .integers()
    }

    fn restore(&mut self, here: &str, total: u64) -> Vec<i64> {
        self.try_restore(here, total, &[]).integers()
    }

    /// With the restocks that the order store knows.
    fn try_restore(&mut self, here: &str, total: u64, restocks: &[Restocked]) -> Reply {
        let steps = &self.steps;
        let stock = Stock {
            total,
            quantity_max: 1,
            once_per_activity: false,
        };
        let stock = (&stock, &MAKER);
        self.wire
            .run(|out| steps.push_restore(&server(here), stock, restocks, 0, out))
    }

    fn field(&mut self, name: &str) -> String {
        let reply = self.wire.ask(&["HGET", "{a1:s1}:sku", name]);
        reply.text().to_owned()
    }

    /// Units: all, free, held, sold.
    fn books(&mut self) -> [u64; 4] {
        ["total", "free", "held", "sold"].map(|name| self.field(name).parse().unwrap())
    }
}

#[test]
fn a_fence_keeps_everybody_out_until_the_books_have_a_new_home() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene::new(&redis);
    // Where the books are at home there is nothing to fence.
    assert_eq!(scene.fence("old:run", 1), [17, 1, 1, 0]);
    assert_eq!(scene.fence("new:run", 7), [17, 1, 2, 1]);
    assert_eq!(scene.reserve(3, "old:run"), [8, 2, 1]);
    let since = scene.field("fenced");
    assert_eq!(scene.fence("new:run", 9), [17, 1, 3, 1], "it hears of 9");
    assert_eq!(scene.fence("new:run", 9), [17, 1, 3, 0]);
    assert_eq!(
        scene.field("fenced"),
        since,
        "the first word counts for the time"
    );
    // A third server takes over meanwhile: its fence begins anew.
    assert_eq!(scene.fence("third:run", 0)[3], 1);
    assert!(scene.field("fenced") >= since);
    // Nobody but the fenced server becomes the home, and a fenced one is nobody's gift.
    assert_eq!(scene.rehome(None, "new:run")[3], 0);
    assert_eq!(scene.rehome(Some("old:run"), "new:run")[3], 0);
    // Nor does one become it whose orders are another store's, or were another run's.
    scene
        .wire
        .ask(&["HSET", "{a1:s1}:sku", "maker", "8", "run", "1"]);
    assert_eq!(scene.rehome(None, "third:run")[3], 0);
    scene
        .wire
        .ask(&["HSET", "{a1:s1}:sku", "maker", "7", "run", "3"]);
    assert_eq!(scene.rehome(None, "third:run")[3], 0);
    // Who takes over from a store that is lost for good begins its runs anew.
    scene.wire.ask(&["HDEL", "{a1:s1}:sku", "maker"]);
    let next: u64 = scene.field("next").parse().unwrap();
    let home = scene.rehome(None, "third:run");
    assert_eq!(
        (home[1], home[3]),
        (1_009, 1),
        "above every epoch that was heard of"
    );
    assert_eq!(scene.field("home"), "third:run");
    assert!(
        scene.field("next").parse::<u64>().unwrap() > next + 5_000,
        "numbers of lost grants stay theirs"
    );
    assert_eq!(
        scene.reserve(3, "old:run"),
        [8, 2, 1],
        "it slept through the failovers"
    );
    assert_eq!(scene.reserve(3, "third:run")[0], 0);
    assert_eq!(
        scene.reserve(3, "old:run")[0],
        1,
        "a repeat gets its answer"
    );
    // A slot that moves takes the name of its new server along, once.
    assert_eq!(scene.rehome(Some("third:run"), "fourth:run")[3], 1);
    assert_eq!(scene.rehome(Some("third:run"), "fifth:run")[3], 0);
    assert_eq!(scene.field("home"), "fourth:run");
    // Somebody was shown a larger epoch than the books have: they are lifted above it.
    assert_eq!(scene.fence("fourth:run", 9_999)[3], 1);
    assert_eq!(scene.rehome(None, "fourth:run")[1], 10_999);
    assert_eq!(scene.fence("fourth:run", 9_999)[3], 0);
}

#[test]
fn what_was_lost_is_put_in_once_and_what_is_there_goes_only_forward() {
    use ReservationState::{Closed, Confirmed, PaidLate, Reserved, Settled};
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene::new(&redis);
    assert_eq!(
        scene.offer("new:run", offer(3, 3, Reserved)),
        [7],
        "no fence"
    );
    scene.fence("new:run", 0);
    assert_eq!(scene.offer("old:run", offer(3, 3, Reserved))[0], 13);
    assert_eq!(scene.books(), [3, 0, 3, 0]);
    // Again, from another instance; and those that were never lost.
    assert_eq!(scene.offer("new:run", offer(3, 3, Reserved)), [11, 3, 0, 1]);
    assert_eq!(scene.offer("new:run", offer(1, 1, Reserved)), [11, 1, 0, 1]);
    // No unit is left for a fourth while the fence stands: it waits.
    assert_eq!(scene.offer("new:run", offer(4, 4, Reserved)), [9]);
    // An order that was closed frees its unit once, and the fourth gets it.
    assert_eq!(scene.offer("new:run", offer(1, 1, Closed)), [13, 1, 3, 1]);
    assert_eq!(scene.offer("new:run", offer(1, 1, Closed)), [11, 1, 3, 1]);
    assert_eq!(scene.offer("new:run", offer(4, 4, Reserved)), [13, 4, 0, 1]);
    // Paid, and never unpaid again.
    assert_eq!(
        scene.offer("new:run", offer(2, 2, Confirmed)),
        [13, 2, 1, 1]
    );
    assert_eq!(scene.offer("new:run", offer(2, 2, Settled)), [13, 2, 2, 1]);
    for earlier in [Reserved, Confirmed, Closed] {
        assert_eq!(scene.offer("new:run", offer(2, 2, earlier)), [11, 2, 2, 1]);
    }
    assert_eq!(scene.offer("new:run", offer(1, 1, PaidLate)), [13, 1, 5, 1]);
    assert_eq!(scene.books(), [3, 0, 2, 1]);
    // Another order of a user who holds one waits behind the fence, too: the other may have been closed.
    let second = Offer {
        message: OrderMessage {
            request_id: RequestId::new(b"request-other").unwrap(),
            ..offer(9, 2, Reserved).message
        },
        ..offer(9, 2, Reserved)
    };
    assert_eq!(scene.offer("new:run", second), [3, 2, 2, 1]);
    // Every grant that has no order is in the outbox, and each repeat is answered as it was.
    let pending = scene.wire.ask(&["ZRANGE", "{a1:s1}:pending", "0", "-1"]);
    assert_eq!(pending.texts(), ["3", "4"]);
    assert_eq!(scene.reserve(3, "new:run"), [1, 3, 0, 1]);
    scene.rehome(None, "new:run");
    assert_eq!(scene.reserve(5, "new:run")[0], 2, "sold out");
}

#[test]
fn what_comes_too_late_gets_a_unit_or_is_failed_for_good() {
    use ReservationState::{Failed, Reserved};
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene::new(&redis);
    scene.fence("new:run", 0);
    scene.rehome(None, "new:run");
    // One unit is free: the first one has it, and takes the last.
    assert_eq!(scene.offer("new:run", offer(3, 3, Reserved)), [13, 3, 0, 1]);
    assert_eq!(scene.field("sold_out"), "1");
    assert_eq!(scene.offer("new:run", offer(4, 4, Reserved)), [13, 4, 4, 1]);
    assert_eq!(scene.offer("new:run", offer(4, 4, Reserved)), [11, 4, 4, 1]);
    assert_eq!(scene.books(), [3, 0, 3, 0]);
    let lookup = scene.wire.ask(&["HGET", "{a1:s1}:res", "4"]);
    assert!(lookup.text().starts_with("4 1 "), "{lookup:?}");
    // A number that was given again meanwhile stays with the one that has it.
    assert_eq!(scene.offer("new:run", offer(3, 6, Failed))[2], 4);
    let kept = scene.wire.ask(&["HGET", "{a1:s1}:res", "3"]);
    assert!(kept.text().contains(" request-3 "), "{kept:?}");
}

#[test]
fn a_stock_that_is_gone_comes_back_with_what_was_sold_of_it() {
    use ReservationState::{Closed, Confirmed, Settled};
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene::new(&redis);
    scene.wire.ask(&["FLUSHALL"]);
    assert_eq!(scene.fence("new:run", 4), [7], "there is nothing to fence");
    assert_eq!(scene.restore("new:run", 5)[3], 1);
    assert_eq!(scene.reserve(7, "new:run"), [8, 2, 1]);
    for order in [
        offer(1, 1, Settled),
        offer(2, 2, Confirmed),
        offer(3, 3, Closed),
    ] {
        assert_eq!(scene.offer("new:run", order)[0], 13);
    }
    assert_eq!(scene.books(), [5, 3, 1, 1]);
    // A restock that was lost; no units twice.
    assert_eq!(scene.restore("new:run", 7)[3], 1);
    assert_eq!(scene.restore("new:run", 7)[3], 0);
    assert_eq!(scene.restore("new:run", 6)[3], 0);
    assert_eq!(scene.books(), [7, 5, 1, 1]);
    scene.rehome(None, "new:run");
    assert_eq!(scene.restore("new:run", 99)[3], 0, "only behind a fence");
    assert_eq!(scene.reserve(1, "new:run"), [1, 1, 2, 1]);
    assert_eq!(scene.reserve(7, "new:run")[0], 0);
}

fn now_ms(scene: &mut Scene) -> u64 {
    let seconds = scene.wire.ask(&["TIME"]).texts()[0].parse::<u64>();
    seconds.unwrap() * 1000
}

fn restocked(name: &str, units: u64, at_ms: u64) -> Restocked {
    Restocked {
        sku: SKU,
        request_id: RequestId::new(name.as_bytes()).unwrap(),
        units,
        at: WallMs(at_ms),
    }
}

#[test]
fn a_restock_that_a_failover_lost_counts_once_though_it_is_repeated() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene::new(&redis);
    let now = now_ms(&mut scene);
    // Of three restocks this server has the first; the next two went with the one before, and a fourth is its own.
    scene.restock("restock-1", 2);
    scene.restock("restock-4", 7);
    assert_eq!(scene.books(), [12, 10, 2, 0]);
    scene.fence("new:run", 0);
    let known = [
        restocked("restock-1", 2, now),
        restocked("restock-2", 5, now),
        restocked("restock-3", 1, now),
    ];
    let restored = scene.try_restore("new:run", 11, &known).integers();
    assert_eq!(restored[3], 1);
    assert_eq!(
        scene.books(),
        [18, 16, 2, 0],
        "3 + 2 + 7 here, 5 and 1 lost"
    );
    // Told again, also when one more was lost: nothing twice.
    assert_eq!(scene.try_restore("new:run", 11, &known).integers()[3], 0);
    assert_eq!(scene.books(), [18, 16, 2, 0]);
    scene.rehome(None, "new:run");
    for (name, units) in [
        ("restock-1", 2),
        ("restock-2", 5),
        ("restock-3", 1),
        ("restock-4", 7),
    ] {
        assert_eq!(scene.restock(name, units), [16, 18, 16, 2, 0, 0], "{name}");
    }
    assert_eq!(
        scene.restock("restock-2", 6),
        [4],
        "the same name, other units"
    );
    assert_eq!(scene.field("restocked"), "15");
    let expires = scene.wire.ask(&["PEXPIRETIME", "{a1:s1}:ops"]);
    assert_eq!(expires, Reply::Integer(1_900_000_000_000));
}

#[test]
fn restocks_of_a_stock_that_is_gone_are_in_its_total() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene::new(&redis);
    let now = now_ms(&mut scene);
    scene.wire.ask(&["FLUSHALL"]);
    let known = [restocked("restock-1", 2, now)];
    assert_eq!(scene.try_restore("new:run", 5, &known).integers()[3], 1);
    assert_eq!(scene.books(), [5, 5, 0, 0]);
    scene.rehome(None, "new:run");
    assert_eq!(scene.restock("restock-1", 2), [16, 5, 5, 0, 0, 0]);
    assert_eq!(scene.restock("restock-2", 2), [16, 7, 7, 0, 0, 0]);
}

#[test]
fn a_restock_that_a_server_may_have_forgotten_is_not_added_again() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene::new(&redis);
    scene.restock("restock-1", 2);
    let now = now_ms(&mut scene);
    scene.fence("new:run", 0);
    // Its log was full once, and the oldest went.
    let day = 24 * 3600 * 1000;
    let oldest = format!("{} restock 2", now - day);
    let ops = "{a1:s1}:ops";
    scene
        .wire
        .ask(&["HSET", ops, "first", "1", "r:restock-1", &oldest]);
    let known = [
        restocked("restock-0", 4, now - 2 * day),
        restocked("restock-2", 1, now),
    ];
    assert_eq!(scene.try_restore("new:run", 5, &known).integers()[3], 1);
    assert_eq!(scene.books(), [6, 4, 2, 0], "only what the log should have");
    // Without any log nothing is known to be missing but what the total says.
    scene.wire.ask(&["DEL", ops]);
    assert_eq!(scene.try_restore("new:run", 7, &known).integers()[3], 1);
    assert_eq!(scene.books(), [7, 5, 2, 0]);
    assert_eq!(scene.restock("restock-0", 4), [16, 7, 5, 2, 0, 0]);
    // Nor is what is older than a log that was made anew.
    scene.wire.ask(&["DEL", ops]);
    assert_eq!(scene.restock("restock-3", 1)[1], 8);
    let old = [restocked("restock-0", 4, now - day)];
    assert_eq!(scene.try_restore("new:run", 8, &old).integers()[3], 0);
    assert_eq!(scene.books(), [8, 6, 2, 0]);
}

#[test]
fn a_stock_key_that_was_deleted_alone_is_not_made_anew_beside_what_it_sold() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene::new(&redis);
    let _ = scene.wire.ask(&["DEL", "{a1:s1}:sku"]);
    for name in ["pending", "user", "req", "res", "ops"] {
        let before = scene.wire.everything();
        let refused = scene.try_restore("new:run", 3, &[]);
        let Reply::Error(text) = &refused else {
            panic!("two of its units are held, and all three would be sold: {refused:?}");
        };
        let is_told = text.starts_with("WEIRBOOKS {a1:s1}:sku is gone") && text.contains("delete");
        assert!(is_told && text.contains("{a1:s1}:res"), "{text}");
        assert_eq!(scene.wire.everything(), before);
        scene.wire.ask(&["DEL", &format!("{{a1:s1}}:{name}")]);
    }
    assert_eq!(scene.try_restore("new:run", 3, &[]).integers()[3], 1);
    assert_eq!(scene.books(), [3, 3, 0, 0]);
    scene.offer("new:run", offer(1, 1, ReservationState::Reserved));
    assert_eq!(scene.books(), [3, 2, 1, 0]);
}

#[test]
fn a_page_of_the_outbox_tells_restocks_by_name_until_it_has_told_all() {
    let Some(redis) = Redis::start() else { return };
    let mut scene = Scene::new(&redis);
    for number in 0..20 {
        scene.restock(&format!("restock-{number}"), number + 1);
    }
    let mut told = Vec::new();
    let mut request = 0;
    for (count, is_last) in [(15, false), (5, true), (0, true)] {
        let steps = &scene.steps;
        steps.push_outbox((WallMs(0), 0), 10, request, &mut scene.wire.out);
        scene.wire.send();
        let (page, restocks) = scene.wire.next(|value| {
            let page = outbox(SKU, 0, value).unwrap().unwrap();
            let restocks = page.restocks().unwrap();
            (
                (page.next_request, page.has_all_restocks, page.total),
                restocks,
            )
        });
        assert_eq!((restocks.len(), page.1, page.2), (count, is_last, 213));
        told.extend(restocks);
        request = page.0;
    }
    assert_eq!(request, 21, "one opened it");
    let now = now_ms(&mut scene);
    for (number, restock) in told.iter().enumerate() {
        assert_eq!(restock.request_id.as_str(), format!("restock-{number}"));
        assert_eq!(restock.units, number as u64 + 1);
        assert!(restock.at.0 > now - 60_000);
    }
}
