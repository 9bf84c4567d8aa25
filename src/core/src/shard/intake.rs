//! Bytes to staged requests: stage 1 of the pipeline (parse, method, path, size).
//!
//! Called by the shard for each `Received`. What is refused here is staged as answered, so that replies keep their order.
//! Reading stops while replies are owed beyond the limits, and goes on when they are out.

use super::asks::RequestName;
use super::config::ShardConfig;
use super::conns::{Conns, Phase};
use super::door::{Door, is_proxy};
use super::replies::{Replies, may_read};
use super::reply::{Manner, Reply};
use super::route::Route;
use super::staged::{Call, SignedSpans, Staged, StagedCall, StatusCall, SubmitCall};
use crate::planted::{self, Planted};
use crate::port::{ConnId, Effects, Input};
use crate::time::Now;
use core::fmt::Write;
use core::net::IpAddr;
use weir_proto::addr::proxy::{self, ProxyParsed};
use weir_proto::addr::{Source, client_address};
use weir_proto::answer::{Lang, Reason};
use weir_proto::http::response::{ALLOW_ALL, CONTINUE};
use weir_proto::http::{Connection, Field, Method, Parsed, Request, cors};
use weir_proto::ids::SkuKey;
use weir_proto::limits::{BODY_BYTES_MAX, DEVICE_BYTES_MAX, SIGNATURE_BYTES_MAX, TICKET_BYTES_MAX};
use weir_proto::payment::verify_callback;
use weir_proto::submit::Submit;

/// What a process that makes the orders says to a submit.
const SELLS_NOTHING: &str =
    "this process makes the orders and sells nothing; send submits to the instances that do";
/// What a process that makes no orders says to a payment.
const MAKES_NO_ORDERS: &str =
    "no orders are made here; send payments to the listener of `weir worker`";
/// When to come again with what belongs to another process: behind a proxy the next try may meet it.
const ELSEWHERE_RETRY_MS: u64 = 1_000;

/// The parts of the shard that reading works on.
pub struct Intake<'a> {
    /// What the shard is made of.
    pub config: &'a ShardConfig,
    /// Its connections.
    pub conns: &'a mut Conns,
    /// Where replies wait.
    pub replies: &'a mut Replies,
    /// Where requests wait for the turn's end.
    pub staged: &'a mut Staged,
    /// Who may stay; asked here when the client's address comes with the first bytes.
    pub door: &'a mut Door,
    /// Room to join chunks.
    pub scratch: &'a mut [u8; BODY_BYTES_MAX],
    /// SIGTERM came: every reply closes.
    pub draining: bool,
    /// Say what was read, decide nothing; see `echo`.
    #[cfg(debug_assertions)]
    pub echo: bool,
}

impl Intake<'_> {
    /// Reads what `id` sent. Returns false when reading has to pause.
    pub fn received(
        &mut self,
        now: Now,
        id: ConnId,
        mut input: Input<'_>,
        fx: &mut Effects,
    ) -> bool {
        let Some(conn) = self.conns.get_mut(id) else {
            return true;
        };
        conn.ended |= input.ended();
        let (was_open, first_in) = (conn.parser.is_open(), conn.next_in);
        if conn.phase == Phase::Proxy && !self.proxy_header(now, id, &mut input, fx) {
            return true;
        }
        let mut reads_on = true;
        while self
            .conns
            .get(id)
            .is_some_and(|conn| conn.phase == Phase::Open)
            && !input.bytes().is_empty()
        {
            // Only with bytes left: the driver shows them again, so a paused connection always goes on.
            if !may_read(self.conns, id, fx) || !self.staged.has_room() || !self.replies.has_room()
            {
                reads_on = false;
                break;
            }
            if !self.one_request(now, id, &mut input, fx) {
                break;
            }
        }
        // A request that began in this event has its own deadline, not the one of the request before it.
        let same = was_open
            && self
                .conns
                .get(id)
                .is_some_and(|conn| conn.next_in == first_in);
        self.conns.after_read(now.mono, id, same);
        reads_on
    }

    /// True when the header is read and HTTP follows.
    fn proxy_header(
        &mut self,
        now: Now,
        id: ConnId,
        input: &mut Input<'_>,
        fx: &mut Effects,
    ) -> bool {
        let peer = match self.conns.get(id) {
            Some(conn) => conn.client,
            None => return false,
        };
        match proxy::parse_from(peer, &self.config.trusted, input.bytes()) {
            ProxyParsed::Done { client, consumed } => {
                input.consume(consumed);
                let client = client.map_or(peer, |client| client.ip());
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.client = client;
                    conn.phase = Phase::Open;
                }
                self.enter(now, id, client, fx)
            }
            ProxyParsed::NeedMore => false,
            ProxyParsed::Reject => {
                input.consume(input.bytes().len());
                self.refuse_bytes(now, id, Reply::new(Reason::ProxyHeader));
                false
            }
        }
    }

    /// The door, for a client whom its PROXY header names; false: it was turned away.
    fn enter(&mut self, now: Now, id: ConnId, client: IpAddr, fx: &mut Effects) -> bool {
        if is_proxy(self.config.source, client, &self.config.trusted) {
            return true; // a proxy's own connection, such as its health check
        }
        match self.door.enter(now, client) {
            Ok(hold) => {
                self.conns.put_hold(id, hold);
                true
            }
            Err(refusal) => {
                let room = self.staged.has_room() && self.replies.has_room();
                if self.door.may_tell(room) {
                    self.conns.mark_turned_away(id);
                    self.refuse_bytes(now, id, refusal.into());
                } else {
                    self.conns.give_up(id, fx);
                }
                false
            }
        }
    }

    /// Reads one request; false when there is none (yet).
    fn one_request(
        &mut self,
        now: Now,
        id: ConnId,
        input: &mut Input<'_>,
        fx: &mut Effects,
    ) -> bool {
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        let bytes = input.bytes();
        match conn.parser.parse(bytes) {
            Parsed::NeedMore => false,
            Parsed::Continue => {
                // An interim answer must not overtake the replies that are still owed: it leaves behind the last of
                // them (RFC 9110 §10.1.1).
                if conn.outstanding() == 0 {
                    fx.outbox(id).extend_from_slice(CONTINUE);
                } else {
                    conn.continue_owed = true;
                }
                true
            }
            Parsed::Reject(reject) => {
                input.consume(bytes.len());
                let allow = (reject.status().code() == 405).then_some(ALLOW_ALL);
                let reply = Reply {
                    allow,
                    ..detailed(reject.reason(), &reject.detail())
                };
                self.refuse_bytes(now, id, reply);
                false
            }
            Parsed::Done {
                ref request,
                consumed,
            } => {
                let client = conn.client;
                let connection = if self.draining {
                    Connection::Close
                } else {
                    request.connection()
                };
                let manner = Manner {
                    connection,
                    head_only: request.method == Method::Head,
                    lang: lang_of(request),
                    origin: self.origin_of(request),
                };
                let call = self.call(now, client, request);
                input.consume(consumed);
                self.stage(now, id, manner, call);
                true
            }
        }
    }

    /// Stages the one answer to bytes that are no request; nothing is read after them.
    pub fn refuse_bytes(&mut self, now: Now, id: ConnId, reply: Reply) {
        let manner = Manner {
            connection: Connection::Close,
            head_only: false,
            lang: Lang::default(),
            origin: None,
        };
        let call = self.staged.keep_answer(reply);
        self.stage(now, id, manner, call);
    }

    fn stage(&mut self, now: Now, id: ConnId, manner: Manner, call: Call) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        conn.continue_owed = false; // the body came without it, or never will
        let seq = conn.next_in;
        conn.next_in = conn.next_in.wrapping_add(1);
        if manner.connection == Connection::Close {
            conn.phase = Phase::Closing;
        }
        self.replies.reserve();
        self.staged.push(StagedCall {
            conn: id,
            seq,
            manner,
            arrived: now.mono,
            call,
        });
    }

    fn origin_of(&self, request: &Request<'_>) -> Option<u8> {
        cors::allowed_origin(&self.config.origins, request).map(|index| index as u8) // at most ORIGINS_MAX
    }

    fn call(&mut self, now: Now, client: IpAddr, request: &Request<'_>) -> Call {
        #[cfg(debug_assertions)]
        if self.echo {
            return self
                .staged
                .keep_answer(super::echo::seen(request, self.scratch));
        }
        let route = Route::of(request.path);
        let Some(allow) = route.allow() else {
            return self.staged.keep_answer(Reply::new(Reason::UnknownPath));
        };
        if request.method == Method::Options {
            let allow = (!cors::is_preflight(request)).then_some(allow);
            return self.staged.keep_answer(Reply {
                allow,
                ..Reply::preflight()
            });
        }
        if !route.takes(request.method) {
            return self.staged.keep_answer(Reply {
                allow: Some(allow),
                ..Reply::new(Reason::MethodNotAllowed)
            });
        }
        match route {
            Route::Submit(_) if !self.config.role.sells() => {
                self.elsewhere(Reason::ModeQueueOnly, SELLS_NOTHING)
            }
            Route::Submit(path_id) => self.submit(client, path_id, request),
            Route::Status {
                activity,
                sku,
                request_id,
            } => {
                let (ticket, device) = (self.keep_ticket(request), self.keep_device(request));
                Call::Status(StatusCall {
                    activity,
                    sku,
                    request_id,
                    client: self.client(client, request),
                    ticket,
                    device,
                })
            }
            Route::BadRequestId => self
                .staged
                .keep_answer(Reply::new(Reason::InvalidRequestId)),
            Route::Payment if !self.config.role.makes_orders() => {
                self.elsewhere(Reason::PaymentUnavailable, MAKES_NO_ORDERS)
            }
            Route::Payment => self.payment(now, request),
            Route::Server | Route::Unknown => {
                self.staged.keep_answer(Reply::new(Reason::UnknownPath))
            }
        }
    }

    /// What another process does; whoever sends it again may meet that one.
    fn elsewhere(&mut self, reason: Reason, detail: &str) -> Call {
        self.staged.keep_answer(Reply {
            retry_after_ms: Some(ELSEWHERE_RETRY_MS),
            ..detailed(reason, &detail)
        })
    }

    fn submit(&mut self, client: IpAddr, path_id: &[u8], request: &Request<'_>) -> Call {
        // The path only filters cheap scanners; it authorises nothing (B1).
        let found = self
            .config
            .sale
            .activities
            .iter()
            .position(|activity| activity.path_id.as_bytes() == path_id);
        let any = planted::is(Planted::PathUnchecked).then_some(0);
        let Some(activity_at) = found.or(any) else {
            return self.staged.keep_answer(Reply::new(Reason::WrongPathId));
        };
        if !is_json(request) {
            return self.staged.keep_answer(Reply::new(Reason::BadContentType));
        }
        let body = request.body.in_one(self.scratch);
        match Submit::parse(body, request.field(Field::IdempotencyKey)) {
            Ok(submit) => Call::Submit(SubmitCall {
                activity_at: activity_at as u16,
                client: self.client(client, request),
                name: RequestName {
                    sku: SkuKey {
                        activity: submit.activity,
                        sku: submit.sku,
                    },
                    user: submit.user,
                    request_id: submit.request_id,
                },
                quantity: submit.quantity,
                ticket: self.keep_ticket(request),
                device: self.keep_device(request),
                signed: self.keep_signed(request),
            }),
            Err(error) => self
                .staged
                .keep_answer(detailed(Reason::from(&error), &error)),
        }
    }

    fn payment(&mut self, now: Now, request: &Request<'_>) -> Call {
        let Some(key) = &self.config.payment_key else {
            return self.staged.keep_answer(Reply::new(Reason::UnknownPath));
        };
        if !is_json(request) {
            return self.staged.keep_answer(Reply::new(Reason::BadContentType));
        }
        let body = request.body.in_one(self.scratch);
        match verify_callback(body, request.field(Field::Signature), key, now.wall.0) {
            Ok(callback) => Call::Payment(callback),
            Err(reject) => self
                .staged
                .keep_answer(detailed(Reason::from(&reject), &reject)),
        }
    }

    fn client(&self, peer: IpAddr, request: &Request<'_>) -> IpAddr {
        let trusted = &self.config.trusted;
        match self.config.source {
            Source::Peer | Source::ProxyProtocol => peer,
            Source::XForwardedFor => client_address(
                Source::XForwardedFor,
                peer,
                trusted,
                request.x_forwarded_for(),
            ),
            Source::Forwarded => {
                client_address(Source::Forwarded, peer, trusted, request.forwarded())
            }
        }
    }

    fn keep_ticket(&mut self, request: &Request<'_>) -> super::staged::Span {
        let ticket = request
            .field(Field::Authorization)
            .and_then(bearer)
            .unwrap_or_default();
        self.staged.keep(ticket, TICKET_BYTES_MAX)
    }

    fn keep_device(&mut self, request: &Request<'_>) -> Option<super::staged::Span> {
        request
            .field(Field::Device)
            .map(|device| self.staged.keep(device, DEVICE_BYTES_MAX))
    }

    /// Kept and not yet verified: the limits per instance and address are cheaper and come first.
    fn keep_signed(&mut self, request: &Request<'_>) -> Option<SignedSpans> {
        self.config.signature.as_ref()?;
        let signature = request.field(Field::Signature);
        let query = request.query.unwrap_or_default();
        let mark: &[u8] = if request.query.is_some() { b"?" } else { b"" };
        Some(SignedSpans {
            signature: signature.map(|value| self.staged.keep(value, SIGNATURE_BYTES_MAX)),
            target: self.staged.keep_whole(&[request.path, mark, query]),
            body: self.staged.keep_whole(&[request.body.in_one(self.scratch)]),
        })
    }
}

/// `Bearer` is case-insensitive, one space or more follows (RFC 9110 §11.1, RFC 6750 §2.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_first_chunk()?;
    if scheme != b"Bearer " && !scheme.eq_ignore_ascii_case(b"Bearer ") {
        return None;
    }
    Some(match rest.first() {
        Some(b'!'..) => rest, // one space, as nearly everybody writes it
        _ => rest.trim_ascii_start(),
    })
}

/// `application/json`, parameters allowed (RFC 9110 §8.3.1).
fn is_json(request: &Request<'_>) -> bool {
    let Some(value) = request.field(Field::ContentType) else {
        return false;
    };
    if value == b"application/json" {
        return true; // as nearly everybody writes it
    }
    let media_type = value.split(|&byte| byte == b';').next().unwrap_or_default();
    media_type
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
}

fn lang_of(request: &Request<'_>) -> Lang {
    request
        .field(Field::AcceptLanguage)
        .map(Lang::from_accept_language)
        .unwrap_or_default()
}

fn detailed(reason: Reason, error: &dyn core::fmt::Display) -> Reply {
    let mut reply = Reply::new(reason);
    // Writing into a `Detail` never fails: what is too long is cut.
    let _ = write!(reply.detail, "{error}");
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_is_read_whatever_its_case() {
        assert_eq!(bearer(b"bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Bearer   abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bearer"), None);
    }
}
