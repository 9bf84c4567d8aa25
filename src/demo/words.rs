//! What buyers send, byte by byte: submits with their tickets, status queries, payments.
//!
//! Called by the crowd right before a request leaves. Tickets are functions of the seed, the buyer and the request's
//! number, so a million of them need no memory; one in sixteen is a JWS. Keys and tickets never reach a log.

use crate::config::Plan;
use weir_bench::request::{
    Credentials, Route, put_plain, put_status, put_submit, put_submit_body, put_u64,
};
use weir_core::order::contract::Money;
use weir_core::rng::Rng;
use weir_core::time::Now;
use weir_proto::ids::{ActivityId, PathId, RequestId, ReservationId, SkuId, UserId};
use weir_proto::payment::{PaymentKey, sign_callback};
use weir_proto::submit::{Submit, request_id};
use weir_proto::ticket::{
    Claims, DeviceClaim, MintError, NonceClaim, TicketKey, mint_compact, mint_jws,
};

/// How long before its start the demo's tickets are valid: clocks need not agree to the second.
const TICKET_LEAD_MS: u64 = 60_000;
/// How long tickets are valid; with the lead under the longest window of one hour.
const TICKET_LIFE_MS: u64 = 50 * 60_000;
/// An expired ticket ended so long ago: more than the longest leeway.
const EXPIRED_MS: u64 = 30_000;
/// A path id that is not the sale's.
const WRONG_PATH: &str = "guessed";

/// What is wrong with a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Signed by a stranger.
    Forged,
    /// Too old.
    Expired,
}

/// One request of one buyer.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The buyer's number.
    pub buyer: u32,
    /// Which of the buyer's requests: names the request id.
    pub request: u8,
    /// Which of the buyer's tickets: the request's own, unless it is replayed.
    pub ticket: u8,
    /// Units.
    pub quantity: u32,
}

/// A payment as its provider reports it.
#[derive(Clone, Copy, Debug)]
pub struct Payment {
    /// Names the payment together with the reservation.
    pub number: u8,
    /// For what.
    pub reservation: ReservationId,
    /// Minor units above the price.
    pub surplus: u64,
}

/// Everything that all requests share.
pub struct Words {
    host: String,
    path_id: PathId,
    activity: ActivityId,
    sku: SkuId,
    version: u64,
    price: Money,
    key: TicketKey,
    stranger: TicketKey,
    payment_key: PaymentKey,
    seed: u64,
    start_ms: u64,
    ticket: Vec<u8>,
    body: Vec<u8>,
}

impl Words {
    /// For the sale of `plan` at `host`; `None` when the plan has no payment key or no SKU.
    pub fn new(plan: &Plan, host: String, seed: u64, start_ms: u64) -> Option<Self> {
        let activity = plan.sale.activities.first()?;
        let sku = activity.skus.first()?;
        let key = plan.keys().signing().clone();
        let stranger = TicketKey::new(
            key.kid().as_bytes(),
            &Rng::new(!seed).next_u64().to_be_bytes().repeat(4),
        );
        Some(Self {
            host,
            path_id: activity.path_id,
            activity: activity.id,
            sku: sku.id,
            version: activity.version,
            price: sku.unit_price,
            stranger: stranger.ok()?,
            key,
            payment_key: plan.shard.payment_key.clone()?,
            seed,
            start_ms,
            ticket: Vec::new(),
            body: Vec::new(),
        })
    }

    /// The user of a buyer's number.
    pub const fn user(buyer: u32) -> u64 {
        buyer as u64 + 1
    }

    /// Whether tickets can be minted for this sale at all.
    /// # Errors
    /// Why not.
    pub fn check(&mut self) -> Result<(), MintError> {
        let ask = Ask {
            buyer: 0,
            request: 0,
            ticket: 0,
            quantity: 1,
        };
        self.mint(ask, Flaw::None)?;
        self.mint(Ask { buyer: 1, ..ask }, Flaw::Expired)
    }

    fn mint(&mut self, ask: Ask, flaw: Flaw) -> Result<(), MintError> {
        let mut rng = Rng::new(self.seed ^ (u64::from(ask.buyer) << 8 | u64::from(ask.ticket)));
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
        // The buyer's number itself keeps nonces apart, whatever chance does.
        nonce[8..12].copy_from_slice(&ask.buyer.to_be_bytes());
        nonce[12] = ask.ticket;
        let mut window = (
            self.start_ms - TICKET_LEAD_MS,
            self.start_ms + TICKET_LIFE_MS,
        );
        if flaw == Flaw::Expired {
            window.1 = self.start_ms - EXPIRED_MS;
        }
        let claims = Claims {
            activity: self.activity,
            sku: self.sku,
            user: UserId(Self::user(ask.buyer)),
            activity_version: self.version,
            path_id: self.path_id,
            nonce: NonceClaim::Raw(nonce),
            device: DeviceClaim::Unbound,
            not_before_ms: window.0,
            expires_at_ms: window.1,
        };
        let key = match flaw {
            Flaw::Forged => &self.stranger,
            Flaw::None | Flaw::Expired => &self.key,
        };
        self.ticket.clear();
        if ask.buyer.is_multiple_of(16) {
            mint_jws(&claims, key, &mut self.ticket)
        } else {
            mint_compact(&claims, key, &mut self.ticket)
        }
    }

    fn ticket(&mut self, ask: Ask, flaw: Flaw) {
        self.mint(ask, flaw)
            .expect("the first ticket fitted, and only user, nonce and window differ");
    }

    fn body_of(&self, ask: Ask) -> Submit {
        Submit {
            request_id: name(ask),
            activity: self.activity,
            sku: self.sku,
            user: UserId(Self::user(ask.buyer)),
            quantity: ask.quantity,
            attempt: 0,
        }
    }

    /// A submit.
    pub fn submit(&mut self, ask: Ask, flaw: Flaw, out: &mut Vec<u8>) {
        self.ticket(ask, flaw);
        let route = Route {
            host: &self.host,
            path_id: self.path_id.as_str(),
        };
        let credentials = Credentials {
            ticket: &self.ticket,
            device: None,
        };
        put_submit(out, route, credentials, &self.body_of(ask));
    }

    /// A submit to a path that is not the sale's.
    pub fn wrong_path(&mut self, ask: Ask, out: &mut Vec<u8>) {
        self.ticket(ask, Flaw::None);
        let route = Route {
            host: &self.host,
            path_id: WRONG_PATH,
        };
        let credentials = Credentials {
            ticket: &self.ticket,
            device: None,
        };
        put_submit(out, route, credentials, &self.body_of(ask));
    }

    /// A submit without a ticket.
    pub fn no_ticket(&mut self, ask: Ask, out: &mut Vec<u8>) {
        let submit = self.body_of(ask);
        self.body.clear();
        put_submit_body(&mut self.body, &submit);
        self.post(&format!("/v1/seckill/{}", self.path_id), "", out);
    }

    /// A submit whose body has no quantity.
    pub fn bad_body(&mut self, ask: Ask, out: &mut Vec<u8>) {
        self.ticket(ask, Flaw::None);
        self.body.clear();
        self.body.extend_from_slice(b"{\"request_id\":\"");
        self.body.extend_from_slice(name(ask).as_bytes());
        self.body.extend_from_slice(b"\",\"quantity\":\"many\"}");
        let ticket = String::from_utf8_lossy(&self.ticket).into_owned();
        let authorization = format!("Authorization: Bearer {ticket}\r\n");
        self.post(
            &format!("/v1/seckill/{}", self.path_id),
            &authorization,
            out,
        );
    }

    /// Bytes outside HTTP's grammar; the server answers and closes.
    pub fn bad_bytes(&self, out: &mut Vec<u8>) {
        put_plain(out, "GET", "/", &self.host, "Bad Name: x\r\n");
    }

    /// The status query of a request.
    pub fn status(&mut self, ask: Ask, out: &mut Vec<u8>) {
        self.ticket(ask, Flaw::None);
        let credentials = Credentials {
            ticket: &self.ticket,
            device: None,
        };
        put_status(out, &self.host, credentials, &self.body_of(ask));
    }

    /// A payment callback, signed now.
    pub fn payment(&mut self, now: Now, payment: Payment, out: &mut Vec<u8>) {
        self.body.clear();
        let body = &mut self.body;
        body.extend_from_slice(b"{\"payment_id\":\"pay-");
        put_u64(body, payment.reservation.0);
        body.push(b'-');
        put_u64(body, payment.number.into());
        body.extend_from_slice(
            format!("\",\"reservation_id\":\"{}\"", payment.reservation).as_bytes(),
        );
        for (member, value) in [
            ("activity_id", self.activity.0),
            ("sku_id", self.sku.0),
            ("amount_minor", self.price.minor + payment.surplus),
            ("paid_at_ms", now.wall.0),
        ] {
            body.extend_from_slice(format!(",\"{member}\":").as_bytes());
            put_u64(body, value);
        }
        body.extend_from_slice(b",\"currency\":\"");
        body.extend_from_slice(&self.price.currency);
        body.extend_from_slice(b"\"}");
        let mut signature = Vec::with_capacity(96);
        sign_callback(&self.body, &self.payment_key, now.wall.0, &mut signature);
        let line = format!(
            "X-Weir-Signature: {}\r\n",
            String::from_utf8_lossy(&signature)
        );
        self.post("/v1/payments/callback", &line, out);
    }

    /// POSTs `self.body`; `headers`: whole lines.
    fn post(&self, path: &str, headers: &str, out: &mut Vec<u8>) {
        let length = self.body.len();
        let headers =
            format!("{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n");
        put_plain(out, "POST", path, &self.host, &headers);
        out.extend_from_slice(&self.body);
    }
}

/// The request id of a request: `demo-<buyer>-<request>`.
pub fn name(ask: Ask) -> RequestId {
    let mut bytes = *b"demo-000000000-00";
    let mut rest = ask.buyer;
    for digit in bytes[5..14].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes[15] = b'0' + ask.request / 10 % 10;
    bytes[16] = b'0' + ask.request % 10;
    request_id(&bytes).expect("digits and hyphens are a request id")
}
