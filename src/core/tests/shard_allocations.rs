//! No request allocates in proto or core once buffers are warm (Shows 8): counted by this binary's own allocator over
//! every kind of end that a request can have: sold out, granted, replayed, limited, forged, unsigned, wrong path, malformed, status.

#![allow(clippy::unwrap_used, clippy::result_large_err)]

mod shard_kit;

use shard_kit::{
    Kit, OPENS_AT, SKU, config, held, keyed, signatures, signed, status, submit, ticket,
};
use std::cell::Cell;
use std::sync::Arc;
use weir_core::ask::{Answer, LedgerAnswer, Outcome};
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::LeaseGrant;
use weir_core::mail::Mail;
use weir_core::port::{Effects, Event, Handler, Input, Op};
use weir_core::shard::Shard;
use weir_core::time::Now;
use weir_core::view::WinnersFilter;
use weir_proto::ids::UserId;

#[path = "../../../tests/support/counting.rs"]
mod counting;

/// A driver that owns everything it needs beforehand.
struct Quiet {
    shard: Shard,
    fx: Effects,
    now: Now,
    sent: Vec<u8>,
    ops: Vec<Op>,
    replies_count: u64,
}

impl Quiet {
    /// One turn: one request in, its ask answered, its reply out.
    fn turn(&mut self, request: &[u8], answer: LedgerAnswer) {
        let consumed = Cell::new(0);
        let event = Event::Received {
            conn: Kit::conn(0),
            input: Input::new(request, false, &consumed),
        };
        self.shard.on_event(self.now, event, &mut self.fx);
        self.flush(answer);
        assert_eq!(consumed.get(), request.len());
    }

    fn flush(&mut self, answer: LedgerAnswer) {
        self.shard.on_flush(self.now, &mut self.fx);
        let (mut ask, mut draw) = (None, None);
        self.fx.deliver_posts(|_, mail| {
            match mail {
                Mail::Ask(one) => ask = Some(one),
                Mail::LeaseDraw(one) => draw = Some(one),
                _ => {}
            }
            Ok(())
        });
        if let Some(draw) = draw {
            let grant = LeaseGrant {
                sku: SKU,
                owner_boot: 1,
                shard_boot: draw.shard_boot,
                seq: draw.seq,
                tokens: draw.want,
                ttl_ms: 60_000,
                retry_ms: 10,
            };
            self.shard
                .on_event(self.now, Event::Mail(Mail::LeaseGrant(grant)), &mut self.fx);
        }
        if let Some(ask) = ask {
            let mail = Mail::Answer(Answer {
                id: ask.id,
                outcome: Outcome::Done(answer),
            });
            self.shard
                .on_event(self.now, Event::Mail(mail), &mut self.fx);
            self.shard.on_flush(self.now, &mut self.fx);
        }
        while let Some(conn) = self.fx.next_dirty() {
            self.sent.clear();
            self.fx.take_pending(conn, &mut self.sent);
            self.fx.sent(conn, self.sent.len());
            self.replies_count += 1;
            self.shard
                .on_event(self.now, Event::Sent { conn }, &mut self.fx);
        }
        self.ops.clear();
        self.fx.take_ops(&mut self.ops);
        self.now.mono = self.now.mono.plus_ms(1);
        self.now.wall = self.now.wall.plus_ms(1);
    }
}

fn main() {
    let mut config = config();
    config.signature = Some(signatures(&["app-1", "app-2"], 3_600_000)); // the longest way of a request
    config.user = keyed(
        Rate {
            tokens: 1,
            per_ns: 3_600_000_000_000,
        },
        3,
    );
    let mut kit = Kit::open(config);
    kit.connect(0);
    let Kit { shard, fx, now, .. } = kit;
    let mut quiet = Quiet {
        shard,
        fx,
        now,
        sent: Vec::with_capacity(4096),
        ops: Vec::with_capacity(64),
        replies_count: 0,
    };

    let users = 2_000_u64;
    let requests: Vec<Vec<u8>> = (0..users)
        .map(|user| {
            let request = submit(
                user + 1,
                &format!("request-{user:06}"),
                &ticket(user + 1, 1, user % 2 == 0),
            );
            signed(&request, "app-2", OPENS_AT)
        })
        .collect();
    let statuses: Vec<Vec<u8>> = (0..users)
        .map(|user| status(&format!("request-{user:06}"), &ticket(user + 1, 1, true)))
        .collect();
    let forged: Vec<Vec<u8>> = requests
        .iter()
        .map(|bytes| {
            let mut bytes = bytes.clone();
            let end = bytes
                .windows(4)
                .position(|window| window == b"\r\nCo")
                .unwrap()
                - 3;
            bytes[end] = if bytes[end] == b'A' { b'B' } else { b'A' };
            bytes
        })
        .collect();
    let unsigned = submit(1, "request-0000", &ticket(1, 1, true));
    let wrong_path =
        b"POST /v1/seckill/p_nobody HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 2\r\n\r\n{}"
            .to_vec();
    let bad_body = b"POST /v1/seckill/p_7vKh2P HTTP/1.1\r\nHost: weir.test\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"x\":1}\n".to_vec();

    let mut view = None;
    for round in 0..4_u64 {
        // Rounds 0 and 1 warm every buffer up; rounds 2 and 3 are counted, the last one sold out.
        if round == 3 {
            view = Some(Arc::new(WinnersFilter::build(1, [UserId(1)].into_iter())));
        }
        if let Some(winners) = view.take() {
            let view = weir_core::view::SkuView {
                sku: SKU,
                boot: 1,
                version: 9,
                stock_epoch: 1,
                sold_out: true,
                open: true,
                mode: weir_core::ask::Mode::Normal,
                poisoned: false,
                winners,
            };
            quiet
                .shard
                .on_event(quiet.now, Event::Mail(Mail::View(view)), &mut quiet.fx);
        }
        let (before, replies_before) = (counting::allocations(), quiet.replies_count);
        for index in 0..users as usize {
            let answer = if index % 3 == 0 {
                LedgerAnswer::Granted(held(index as u64))
            } else {
                LedgerAnswer::SoldOut { epoch: 1 }
            };
            quiet.turn(&requests[index], answer);
            quiet.turn(&requests[index], answer);
            quiet.turn(&forged[index], answer);
            quiet.turn(&statuses[index], LedgerAnswer::NotFound);
            quiet.turn(&unsigned, answer);
            quiet.turn(&wrong_path, answer);
            quiet.turn(&bad_body, answer);
        }
        let allocations = counting::allocations() - before;
        let replies = quiet.replies_count - replies_before;
        println!("round {round}: {replies} replies, {allocations} allocations");
        assert_eq!(replies, users * 7);
        if round >= 2 {
            assert_eq!(allocations, 0, "a request allocated");
        }
    }
    quiet.shard.audit();
    let reasons = quiet.shard.counters();
    let kinds = reasons.by_reason.iter().filter(|&&count| count > 0).count();
    assert!(kinds >= 9, "only {kinds} kinds of ends were counted");
}
