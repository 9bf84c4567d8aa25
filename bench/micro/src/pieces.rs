//! Pieces without state: the parser, tickets and their bare MACs, the encoder of answers, the winners' filter.
//!
//! Inputs go through `black_box`, so that the compiler cannot know them.

use crate::requests::{Form, key_ring, submit, ticket_key, ticket_of};
use crate::shard_kit::{OPENS_AT, SKU, claims};
use crate::{Scenario, Work};
use std::hint::black_box;
use weir_core::view::WinnersFilter;
use weir_proto::answer::{AnswerBody, Lang, Reason};
use weir_proto::http::date::DateCache;
use weir_proto::http::letter::Letters;
use weir_proto::http::response::{self, Meta, Status};
use weir_proto::http::{Connection, Parsed, RequestParser};
use weir_proto::ids::{PathId, RequestId, UserId};
use weir_proto::ticket::{Expect, KeyRing, TicketKey, verify};

/// The user whose ticket and request are read.
const USER: u64 = 4_711;
/// What a compact ticket's MAC covers: `w1.k1.` and 96 bytes of claims.
const COMPACT_MAC_INPUT_BYTES: usize = 6 + 96;
/// Winners of a sale of ten thousand units.
pub const WINNERS: u64 = 10_000;

pub fn scenarios() -> [Scenario; 10] {
    [
        Scenario::new("parse-jws", 1, || parse(Form::Jws)),
        Scenario::new("parse-compact", 1, || parse(Form::Compact)),
        Scenario::new("mac-hs256", 1, || {
            let token = ticket_of(USER, Form::Jws);
            let end = token.iter().rposition(|&byte| byte == b'.');
            Box::new(Hs256 {
                key: ticket_key(),
                input: token[..end.expect("two dots")].to_vec(),
            })
        }),
        Scenario::new("mac-blake3", 1, || Box::new(Blake3)),
        Scenario::new("ticket-jws", 1, || ticket(Form::Jws)).with_mac("mac-hs256"),
        Scenario::new("ticket-compact", 1, || ticket(Form::Compact)).with_mac("mac-blake3"),
        Scenario::new("encode-sold-out", 1, || Encode::boxed(Some(Letters::new()))),
        Scenario::new("encode-sold-out-general", 1, || Encode::boxed(None)),
        Scenario::new("sold-out-check", 0, || {
            Box::new(SoldOutCheck {
                winners: WinnersFilter::build(7, (1_000_000..1_000_000 + WINNERS).map(UserId)),
                user: 0,
            })
        }),
        Scenario::new("winner-check", 1, || {
            Box::new(WinnerCheck(WinnersFilter::build(
                7,
                (1..=WINNERS).map(UserId),
            )))
        }),
    ]
}

struct Parse(Vec<u8>);

fn parse(form: Form) -> Box<dyn Work> {
    Box::new(Parse(submit(USER, &ticket_of(USER, form))))
}

impl Work for Parse {
    fn once(&mut self) -> u64 {
        let mut parser = RequestParser::default();
        match parser.parse(black_box(&self.0)) {
            Parsed::Done {
                ref request,
                consumed,
            } => {
                black_box(request);
                u64::from(consumed == self.0.len())
            }
            _ => 0,
        }
    }
}

struct Hs256 {
    key: TicketKey,
    input: Vec<u8>,
}

impl Work for Hs256 {
    fn once(&mut self) -> u64 {
        black_box(self.key.hs256(black_box(&self.input)));
        1
    }
}

struct Blake3;

impl Work for Blake3 {
    fn once(&mut self) -> u64 {
        let input = black_box([1; COMPACT_MAC_INPUT_BYTES]);
        black_box(blake3::keyed_hash(black_box(&[7; 32]), &input));
        1
    }
}

struct Ticket {
    token: Vec<u8>,
    ring: KeyRing,
    path_id: PathId,
}

fn ticket(form: Form) -> Box<dyn Work> {
    Box::new(Ticket {
        token: ticket_of(USER, form),
        ring: key_ring(),
        path_id: claims(USER, 1).path_id,
    })
}

impl Work for Ticket {
    fn once(&mut self) -> u64 {
        let expect = Expect {
            activity: SKU.activity,
            sku: SKU.sku,
            user: UserId(USER),
            activity_version: 8,
            path_id: self.path_id,
            device: None,
            device_salt: &[9; 32],
            wall_ms: OPENS_AT + 1_000,
            leeway_ms: 500,
        };
        let claims = verify(black_box(&self.token), &self.ring, black_box(&expect));
        u64::from(black_box(claims).is_ok())
    }
}

/// One answer, by the letters that a shard writes ahead or by the general writers that they are cut from.
struct Encode {
    letters: Option<Letters>,
    out: Vec<u8>,
    date: DateCache,
    request_id: RequestId,
}

impl Encode {
    fn boxed(letters: Option<Letters>) -> Box<dyn Work> {
        let mut date = DateCache::default();
        date.update(OPENS_AT);
        Box::new(Self {
            letters,
            out: Vec::with_capacity(4096),
            date,
            request_id: RequestId::new(b"req-2026-11-30-00004711").expect("visible ASCII"),
        })
    }
}

impl Work for Encode {
    fn once(&mut self) -> u64 {
        self.out.clear();
        let meta = Meta::new(&self.date, Connection::Keep);
        let reason = black_box(Reason::SoldOutLocal);
        let mut body = AnswerBody::new(reason, Lang::default(), self.date.server_time());
        body.request_id = Some(black_box(&self.request_id));
        if let Some(letters) = &self.letters {
            letters.write(&mut self.out, &meta, &body);
        } else {
            let open = response::begin(&mut self.out, Status::of(reason), &meta);
            body.encode(&mut self.out);
            open.finish(&mut self.out);
        }
        u64::from(black_box(&self.out).ends_with(b"}"))
    }
}

struct SoldOutCheck {
    winners: WinnersFilter,
    user: u64,
}

impl Work for SoldOutCheck {
    fn once(&mut self) -> u64 {
        self.user = (self.user + 1) % 500_000; // none of them looks like a winner: the witness says so
        u64::from(
            self.winners
                .may_contain(UserId(1 + black_box(self.user % 64))),
        )
    }
}

struct WinnerCheck(WinnersFilter);

impl Work for WinnerCheck {
    fn once(&mut self) -> u64 {
        u64::from(self.0.may_contain(black_box(UserId(USER))))
    }
}
