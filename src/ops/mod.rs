//! The operator's listener: health, metrics, tickets, steps on SKUs. A [`Handler`] on its own thread and socket (design §10).
//!
//! Called by the program's boot; asks shards, owner and worker by mail and never blocks them. Loopback by default; on
//! another address a token is required ([`guard`]). One request per connection, absolute deadlines, everything bounded
//! ([`limits`]): it is for machines and people at low rates, not for buyers. Every step of an operator is written to the
//! audit log before it is taken. Give the driver [`limits::OPS_CONNS_MAX`] connections and this part its own drain
//! switch, thrown last: it stops at once, so that `/readyz` can say that the others drain.

mod audit;
mod budget;
mod conns;
pub mod drivers;
pub mod entropy;
mod gates;
mod gather;
mod guard;
pub mod limits;
pub mod metrics;
pub mod page;
mod policy;
pub mod process;
mod ready;
mod refusal;
mod reply;
mod route;
mod steps;
mod tickets;

pub use audit::{AuditError, AuditLog};
pub use guard::TokenNeeded;
pub use steps::BooksAt;

use self::conns::{Conns, Phase};
use self::entropy::Entropy;
use self::gather::{Gather, Wanted};
use self::guard::Guard;
use self::limits::{BODY_MS_MAX, LINGER_BYTES_MAX, LINGER_MS_MAX, OPS_CONNS_MAX};
use self::page::{Page, mode_text};
use self::refusal::{Fault, Refusal};
use self::reply::Reply;
use self::route::Route;
use self::steps::Steps;
use crate::deny::DenyBook;
use crate::keys::OpsToken;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use weir_core::limit::dimension::Dim;
use weir_core::limit::rule::Rule;
use weir_core::mail::{Addr, Mail};
use weir_core::port::{ConnId, Effects, Event, Handler, Input};
use weir_core::sale::Sale;
use weir_core::stats::{Label, Sample};
use weir_core::time::{Mono, Now};
use weir_proto::http::date::DateCache;
use weir_proto::http::response::{CONTINUE, ContentType, Status};
use weir_proto::http::{Field, Parsed, Request};
use weir_proto::ids::SkuKey;
use weir_proto::limits::BODY_BYTES_MAX;
use weir_proto::ticket::KeyRing;

/// Samples that no part gives by mail: of drivers, of the post office, of the process.
pub type Source = Box<dyn Fn() -> Vec<Sample> + Send>;

/// What the listener is made of.
pub struct OpsConfig {
    /// Where it listens, as bound: the host that clients may name.
    pub listen: SocketAddr,
    /// Required off loopback; checked wherever there is one.
    pub token: Option<OpsToken>,
    /// What is sold.
    pub sale: Arc<Sale>,
    /// Keys of tickets.
    pub keys: Arc<KeyRing>,
    /// 32 bytes of the system's entropy, fresh for this start.
    pub entropy: Entropy,
    /// Parts that give counters and must be ready: shards, owner, store, worker, log.
    pub parts: Vec<Addr>,
    /// Further samples for `/metrics`.
    pub sources: Vec<Source>,
    /// Where the books are, which some steps are about.
    pub books: BooksAt,
    /// Where steps are written down.
    pub audit: AuditLog,
    /// Each dimension's rule as the shards were started with it.
    pub rules: [Rule; Dim::ALL.len()],
    /// Who is denied; the shards were given its list when they were made.
    pub deny: DenyBook,
    /// Keys the hash that stands for a user, as in the admission log.
    pub user_hash_key: [u8; 32],
    /// Different from every earlier run's.
    pub boot: u64,
}

impl fmt::Debug for OpsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpsConfig")
            .field("listen", &self.listen)
            .field("token", &self.token)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

/// What the listener itself counts.
#[derive(Debug, Default)]
struct Counts {
    tickets_issued: u64,
    /// Answers by class of status: 2xx, 4xx, 5xx.
    answers: [u64; 3],
}

/// See the module.
pub struct OpsListener {
    guard: Guard,
    sale: Arc<Sale>,
    keys: Arc<KeyRing>,
    entropy: Entropy,
    sources: Vec<Source>,
    conns: Conns,
    gather: Gather,
    steps: Steps,
    rules: [Rule; Dim::ALL.len()],
    deny: DenyBook,
    deny_due: Option<Mono>,
    budgets: Vec<budget::Asked>,
    user_hash_key: [u8; 32],
    counts: Counts,
    date: DateCache,
    draining: bool,
    stopped: bool,
}

impl fmt::Debug for OpsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpsListener")
            .field("guard", &self.guard)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

/// What came of a request at once.
enum Served {
    Now(Reply),
    /// Another part was asked.
    Later,
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    not_ready: Vec<ready::NotReady>,
}

#[derive(Serialize)]
struct SkuState {
    activity_id: u64,
    sku_id: u64,
    mode: Option<&'static str>,
    stock_epoch: u64,
    books: audit::BooksLine,
}

impl OpsListener {
    /// A listener that has not started.
    ///
    /// # Errors
    /// `TokenNeeded` when others can reach `listen` and there is no token.
    pub fn new(config: OpsConfig) -> Result<Self, TokenNeeded> {
        Ok(Self {
            guard: Guard::new(config.listen, config.token)?,
            sale: config.sale,
            keys: config.keys,
            entropy: config.entropy,
            sources: config.sources,
            conns: Conns::new(OPS_CONNS_MAX),
            gather: Gather::new(&config.parts),
            // Ids of different runs must not meet: the owner outlives no run, but its mail could.
            steps: Steps::new(config.audit, config.boot << 32, config.books),
            rules: config.rules,
            deny: config.deny,
            deny_due: None,
            budgets: Vec::new(),
            user_hash_key: config.user_hash_key,
            counts: Counts::default(),
            date: DateCache::default(),
            draining: false,
            stopped: false,
        })
    }

    fn received(&mut self, now: Now, id: ConnId, mut input: Input<'_>, fx: &mut Effects) {
        let bytes = input.bytes();
        let Some(conn) = self.conns.get_mut(id) else {
            input.consume(bytes.len());
            return;
        };
        if matches!(conn.phase, Phase::Answer | Phase::Linger) {
            // One request per connection: what follows it is dropped, within a bound.
            conn.drained_bytes += bytes.len();
            input.consume(bytes.len());
            if conn.drained_bytes > LINGER_BYTES_MAX {
                fx.close(id);
            }
            return;
        }
        match conn.parser.parse(bytes) {
            Parsed::NeedMore | Parsed::Continue if input.ended() => fx.close(id),
            Parsed::NeedMore => self.note_body(now, id),
            Parsed::Continue => {
                fx.outbox(id).extend_from_slice(CONTINUE);
                self.note_body(now, id);
            }
            Parsed::Reject(reject) => {
                input.consume(bytes.len());
                self.answer(now, id, &Refusal::from(reject).reply(), fx);
            }
            Parsed::Done { request, .. } => {
                conn.head_only = request.method == weir_proto::http::Method::Head;
                conn.phase = Phase::Answer;
                conn.due = None; // the part that is asked has its deadline
                let peer = conn.peer;
                let served = self.serve(now, id, peer, &request, fx);
                input.consume(bytes.len());
                match served {
                    Ok(Served::Later) => {}
                    Ok(Served::Now(reply)) => self.answer(now, id, &reply, fx),
                    Err(refusal) => self.answer(now, id, &refusal.reply(), fx),
                }
            }
        }
    }

    /// The head is complete: the body has a deadline of its own, set once.
    fn note_body(&mut self, now: Now, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && conn.phase == Phase::Head
            && conn.parser.is_in_body()
        {
            conn.phase = Phase::Body;
            conn.due = Some(now.mono.plus_ms(BODY_MS_MAX));
        }
    }

    fn serve(
        &mut self,
        now: Now,
        id: ConnId,
        peer: SocketAddr,
        request: &Request<'_>,
        fx: &mut Effects,
    ) -> Result<Served, Refusal> {
        self.guard.check_source(request)?;
        let route = Route::of(request.path);
        if !matches!(route, Some(Route::Healthz | Route::Readyz)) {
            // Before the path is judged: a stranger does not learn what is here.
            self.guard.check_token(request)?;
        }
        let route = route.ok_or(Fault::UnknownPath)?;
        if !route.allows(request.method) {
            return Err(Refusal::method(route.allow()));
        }
        let mut scratch = [0; BODY_BYTES_MAX];
        match route {
            Route::Healthz => {
                let body = Health { status: "ok" };
                return Ok(Served::Now(Reply::json(Status::Ok, &body)));
            }
            Route::Readyz => self.gather.want(id, Wanted::Readiness),
            Route::Metrics => self.gather.want(id, Wanted::Metrics),
            Route::Hot => self.gather.want(id, Wanted::Hot),
            Route::Deny => return Ok(Served::Now(self.deny_page())),
            Route::Gate(act) => {
                check_json(request)?;
                let body = request.body.in_one(&mut scratch);
                return self.gate_act(now, act, peer, body, fx).map(Served::Now);
            }
            Route::Sku(key) => {
                self.sale.sku(key).ok_or(Fault::UnknownSku)?;
                self.gather.want(id, Wanted::Sku(key));
            }
            Route::Tickets => {
                check_json(request)?;
                let body = request.body.in_one(&mut scratch);
                let (sale, keys) = (&self.sale, &self.keys);
                let reply = tickets::mint(now.wall, sale, keys, &mut self.entropy, body)?;
                self.counts.tickets_issued += 1;
                return Ok(Served::Now(reply));
            }
            Route::Limit(dim) => {
                check_json(request)?;
                let body = request.body.in_one(&mut scratch);
                return self.change_limit(now, dim, peer, body, fx).map(Served::Now);
            }
            Route::Budget(key) => {
                check_json(request)?;
                let body = request.body.in_one(&mut scratch);
                self.ask_budget(now, (id, peer), key, body, fx)?;
            }
            Route::Step(key, action) => {
                check_json(request)?;
                let body = request.body.in_one(&mut scratch);
                let step = steps::read(action, key, peer, body)?;
                self.steps.begin(now, &self.sale, step, id, fx)?;
            }
        }
        Ok(Served::Later)
    }

    fn answer(&mut self, now: Now, id: ConnId, reply: &Reply, fx: &mut Effects) {
        let Some(conn) = self.conns.get_mut(id) else {
            return; // the client left
        };
        conn.phase = Phase::Linger;
        conn.due = Some(now.mono.plus_ms(LINGER_MS_MAX));
        let class = match reply.status.code() {
            0..400 => 0,
            400..500 => 1,
            _ => 2,
        };
        self.counts.answers[class] += 1;
        self.date.update(now.wall.0);
        reply.write(fx.outbox(id), &self.date, conn.head_only);
        // Reading goes on until the client ends, so that no reset destroys the answer (field bug R16).
        fx.finish(id);
    }

    fn end_round(&mut self, now: Now, fx: &mut Effects) {
        let Some(clients) = self.gather.end(now.mono) else {
            return;
        };
        for (id, wanted) in clients {
            let reply = match wanted {
                Wanted::Metrics => self.metrics(),
                Wanted::Readiness => self.readiness(),
                Wanted::Hot => self.hot_page(),
                Wanted::Budget => self.budget(now, id),
                Wanted::Sku(key) => self.sku(key).unwrap_or_else(|refusal| refusal.reply()),
            };
            self.answer(now, id, &reply, fx);
        }
    }

    fn metrics(&self) -> Reply {
        let mut page = Page::new();
        let mut silent = 0;
        for part in self.gather.parts() {
            match &part.stats {
                Some(stats) => stats.samples.iter().for_each(|sample| page.add(sample)),
                None => silent += 1,
            }
        }
        for source in &self.sources {
            source().iter().for_each(|sample| page.add(sample));
        }
        let Counts {
            tickets_issued,
            answers: [ok, refused, failed],
        } = self.counts;
        for (name, label, value) in [
            ("seckill_ticket_issued_total", Label::None, tickets_issued),
            ("weir_ops_requests_total", Label::Result("2xx"), ok),
            ("weir_ops_requests_total", Label::Result("4xx"), refused),
            ("weir_ops_requests_total", Label::Result("5xx"), failed),
            ("weir_ops_parts_silent", Label::None, silent),
        ] {
            page.add(&Sample { name, label, value });
        }
        page.add_rates(&self.sale);
        Reply::text(Status::Ok, ContentType::Metrics, page.write().into_bytes())
    }

    fn readiness(&self) -> Reply {
        let not_ready = ready::not_ready(self.gather.parts());
        let ready = not_ready.is_empty();
        let status = if ready {
            Status::Ok
        } else {
            Status::ServiceUnavailable
        };
        Reply::json(status, &Readiness { ready, not_ready })
    }

    fn sku(&self, key: SkuKey) -> Result<Reply, Refusal> {
        let mut parts = self.gather.parts().iter();
        let owner = parts.find(|part| part.addr == Addr::Owner);
        let stats = owner.and_then(|part| part.stats.as_ref());
        let samples = &stats.ok_or(Fault::OwnerSilent)?.samples;
        let value = |name| {
            let is_it = |sample: &&Sample| sample.name == name && sample.label == Label::Sku(key);
            samples.iter().find(is_it).map(|sample| sample.value)
        };
        let mode = samples.iter().find_map(|sample| match sample.label {
            Label::SkuMode(sku, mode) if sku == key => Some(mode_text(mode)),
            _ => None,
        });
        let units = |name| value(name).ok_or(Fault::UnknownSku);
        let body = SkuState {
            activity_id: key.activity.0,
            sku_id: key.sku.0,
            mode,
            stock_epoch: units("seckill_stock_epoch")?,
            books: audit::BooksLine {
                total: units("weir_ledger_units_total")?,
                free: units("weir_ledger_units_free")?,
                held: units("weir_ledger_units_held")?,
                sold: units("weir_ledger_units_sold")?,
                quarantined: units("weir_ledger_units_quarantined")?,
            },
        };
        Ok(Reply::json(Status::Ok, &body))
    }

    fn expire(&mut self, now: Now, fx: &mut Effects) {
        for (id, phase) in self.conns.due(now.mono) {
            match phase {
                Phase::Head | Phase::Body => {
                    self.answer(now, id, &Refusal::from(Fault::TooSlow).reply(), fx);
                }
                Phase::Answer | Phase::Linger => fx.close(id),
            }
        }
        for (id, reply) in self.steps.expire(now) {
            self.answer(now, id, &reply, fx);
        }
    }

    /// SIGTERM: who has not sent a request yet is let go; the others get their answers, in bounded time.
    fn drain(&mut self, fx: &mut Effects) {
        self.draining = true;
        fx.accept(false);
        for conn in self.conns.iter().filter(|conn| conn.phase == Phase::Head) {
            fx.close(conn.id);
        }
    }
}

/// A form or a script of a web page cannot send this type without asking first (Fetch standard, CORS).
fn check_json(request: &Request<'_>) -> Result<(), Refusal> {
    let value = request.field(Field::ContentType).unwrap_or_default();
    let media_type = value.split(|&byte| byte == b';').next().unwrap_or_default();
    if media_type
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
    {
        Ok(())
    } else {
        Err(Fault::ContentType.into())
    }
}

impl Handler for OpsListener {
    fn on_start(&mut self, now: Now, _: &mut Effects) {
        self.date.update(now.wall.0);
        self.set_deny_due(now);
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Accepted { conn, peer } => {
                if !self.conns.open(now.mono, conn, peer) {
                    fx.close(conn);
                }
            }
            Event::Received { conn, input } => self.received(now, conn, input, fx),
            Event::Closed { conn, .. } => {
                self.conns.close(conn);
                self.gather.forget(conn);
                self.steps.forget(conn);
            }
            Event::Mail(Mail::Stats(stats)) => self.gather.take(*stats),
            Event::Mail(Mail::Answer(answer)) => {
                if let Some((id, reply)) = self.steps.answered(now, &answer) {
                    self.answer(now, id, &reply, fx);
                }
            }
            Event::Tick => {
                self.expire(now, fx);
                self.expire_deny(now, fx);
            }
            Event::Drain => self.drain(fx),
            // Nobody else writes to this part, and it connects to nobody.
            Event::Sent { .. }
            | Event::Mail(_)
            | Event::Connected { .. }
            | Event::ConnectFailed { .. } => {}
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        self.end_round(now, fx);
        self.gather.start(now.mono, fx); // after the end: who waited for the next round is in it
        self.end_round(now, fx); // a listener without parts has nobody to wait for
        if self.draining && !self.stopped && self.conns.iter().next().is_none() {
            self.stopped = true;
            fx.stop();
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        [
            self.conns.next_deadline(),
            self.gather.next_deadline(),
            self.steps.next_deadline(),
            self.deny_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
