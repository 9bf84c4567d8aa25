//! Reserves per second of the embedded ledger, asked at its owner without HTTP, each durable before its answer.
//!
//! `reserve DIR COUNT SERVER_CORE ASKER_CORE`: the real owner and the real store on one core, in an empty directory; an
//! asker on the other keeps as many asks under way as a shard may have, each for a user of its own. Prints one JSON
//! object. `bench/compare.sh` holds it against the same reserve as a Lua script on Redis.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use weir::store::{LedgerStore, StoreConfig};
use weir_core::ask::{Ask, AskId, Failure, LedgerAnswer, LedgerOp, Outcome, Reserve};
use weir_core::ledger::owner::{Owner, OwnerConfig};
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::ShardId;
use weir_core::mail::{Addr, Mail};
use weir_core::order::contract::Money;
use weir_core::port::{Effects, Event, Handler};
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::time::{Mono, Now, WallMs};
use weir_io::drain::DrainSwitch;
use weir_io::mailbox::{MailboxConfig, run_mailbox};
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_proto::ids::{ActivityId, Nonce, PathId, RequestId, SkuId, SkuKey, UserId};

/// What one shard may have waiting at the ledger by default (`limits.inflight_max`).
const UNDER_WAY: u64 = 4_096;
/// Most reserves: the ledger keeps one million units of one SKU, and memory for them.
const COUNT_MAX: u64 = 1_000_000;
const ASK_MS: u64 = 30_000;
const RUN: Duration = Duration::from_secs(90);
const ASKER: Addr = Addr::Shard(ShardId(0));
const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};

fn sale() -> Sale {
    let sku = Sku {
        id: SKU.sku,
        first_stock: COUNT_MAX,
        quantity_max: 1,
        once_per_activity: false,
        unit_price: Money {
            minor: 1_990,
            currency: *b"CNY",
        },
        unpaid_timeout_ms: 12 * 3_600_000,
        budget: Rate::per_second(3_000_000),
        sold_out_ttl_ms: 5_000,
    };
    Sale {
        activities: vec![Activity {
            id: SKU.activity,
            version: 1,
            path_id: PathId::new(b"k3Jx0aQz").expect("eight letters and digits"),
            opens_at: WallMs(0),
            closes_at: WallMs(u64::MAX),
            retention_ms: 0,
            device_salt: [0; 32],
            skus: vec![sku],
        }],
    }
}

/// Asks, and tells the main thread the rate at the end.
struct Asker {
    count: u64,
    asked: u64,
    granted: u64,
    /// Refused for the moment: asked again.
    again: Vec<u64>,
    start: Option<Instant>,
    done: Sender<Result<Duration, String>>,
}

impl Asker {
    fn ask(&self, now: Now, n: u64, fx: &mut Effects) {
        let name = format!("reserve-{n:016x}");
        fx.post(
            Addr::Owner,
            Mail::Ask(Ask {
                from: ASKER,
                id: AskId(n),
                deadline: now.mono.plus_ms(ASK_MS),
                op: LedgerOp::Reserve(Reserve {
                    sku: SKU,
                    user: UserId(1 + n),
                    request_id: RequestId::new(name.as_bytes()).expect("24 letters and digits"),
                    nonce: Nonce::new(name.as_bytes()).expect("24 letters and digits"),
                    nonce_until: now.wall.plus_ms(3_600_000),
                    quantity: 1,
                }),
            }),
        );
    }

    fn answered(&mut self, id: AskId, outcome: Outcome) {
        match outcome {
            Outcome::Done(LedgerAnswer::Granted(_)) => self.granted += 1,
            Outcome::Failed(Failure::Busy) => self.again.push(id.0),
            Outcome::Failed(Failure::Recovering) => {
                self.again.push(id.0);
                self.start = None; // it begins when the owner serves
            }
            // The main thread is there until it has heard one result.
            other => drop(self.done.send(Err(format!("reserve {}: {other:?}", id.0)))),
        }
        if self.granted == self.count
            && let Some(start) = self.start
        {
            let _ = self.done.send(Ok(start.elapsed()));
        }
    }
}

impl Handler for Asker {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}
    fn on_event(&mut self, _now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(Mail::Answer(answer)) => self.answered(answer.id, answer.outcome),
            Event::Drain => fx.stop(),
            _ => {}
        }
    }
    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        self.start.get_or_insert_with(Instant::now);
        for n in std::mem::take(&mut self.again) {
            self.ask(now, n, fx);
        }
        while self.asked < self.count && self.asked - self.granted < UNDER_WAY {
            self.ask(now, self.asked, fx);
            self.asked += 1;
        }
    }
    fn next_deadline(&self) -> Option<Mono> {
        (self.asked == 0).then_some(Mono(0)) // the first turn comes by itself
    }
}

/// Stands where the orders' worker stands, and makes no orders.
struct NoOrders;

impl Handler for NoOrders {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}
    fn on_event(&mut self, _now: Now, event: Event<'_>, fx: &mut Effects) {
        if let Event::Drain = event {
            fx.stop();
        }
    }
    fn on_flush(&mut self, _now: Now, _fx: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

fn run(dir: PathBuf, count: u64, server: usize, asker: usize) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let store = LedgerStore::open(&StoreConfig::new(dir)).map_err(|error| text(&error))?;
    let owner = Owner::new(OwnerConfig {
        sale: Arc::new(sale()),
        shards_count: 1,
        seed: 1,
    });
    let (done, result): (_, Receiver<Result<Duration, String>>) = channel();
    let asking = Asker {
        count,
        asked: 0,
        granted: 0,
        again: Vec::new(),
        start: None,
        done,
    };
    let parts: [(Addr, usize, Box<dyn Handler>); 4] = [
        (Addr::Store, server, Box::new(store)),
        (Addr::Worker, server, Box::new(NoOrders)),
        (Addr::Owner, server, Box::new(owner)),
        (ASKER, asker, Box::new(asking)),
    ];
    let addresses: Vec<Addr> = parts.iter().map(|(addr, ..)| *addr).collect();
    let post = Arc::new(PostOffice::new(addresses).map_err(|error| text(&error))?);
    for (addr, cpu, handler) in parts {
        let post = Arc::clone(&post);
        let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
        std::thread::spawn(move || {
            let config = MailboxConfig {
                addr,
                cpu: Some(cpu),
            };
            let ended = run_mailbox(
                config,
                handler,
                post,
                drain,
                Arc::new(DriverStats::default()),
            );
            if let Err(error) = ended {
                eprintln!("reserve: {addr:?}: {error}");
                std::process::exit(1);
            }
        });
    }
    let took = result
        .recv_timeout(RUN)
        .map_err(|_| format!("{count} reserves took more than {} s", RUN.as_secs()))??;
    let rate = count as f64 / took.as_secs_f64();
    println!("{{\"reserves_per_s\":{rate:.0},\"count\":{count},\"under_way\":{UNDER_WAY}}}");
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.as_slice() {
        [dir, count, server, asker] => match (count.parse(), server.parse(), asker.parse()) {
            (Ok(count), Ok(server), Ok(asker)) if (1..=COUNT_MAX).contains(&count) => {
                run(dir.into(), count, server, asker)
            }
            _ => Err(format!("COUNT must be 1..={COUNT_MAX}, both cores numbers")),
        },
        _ => Err(
            "usage: reserve DIR COUNT SERVER_CORE ASKER_CORE (DIR: empty, on the disk to measure)"
                .to_owned(),
        ),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("reserve: {message}");
            ExitCode::from(1)
        }
    }
}
