//! The ledger over Redis as one part sees it: asks in, answers out, one link per node.
//!
//! Its owner hands it the events of its connections and takes [`Desk::next_answer`] and [`Desk::next_news`]. Invariants: every ask gets exactly one answer; an ask that was written to a link is
//! never written again unless the server said that it did not execute it (NOSCRIPT, MOVED, ASK; at most `ASK_HOPS_MAX`
//! times, within its deadline); what was written and not answered is [`Outcome::Unknown`]; what was not written is
//! [`Outcome::Failed`]. Deliberately not here: what the client hears, and how an unknown is looked up (the shard).

mod counts;
mod errors;
mod homes;
mod hops;
mod links;
mod news;
mod routes;
mod wait;

use super::breaker::{self, Breaker, Gate};
use super::endpoint::{Endpoint, Host};
use super::link::fault::LinkFault;
use super::link::greeting::{HomeId, ServerFacts, Words};
use super::link::{Link, Patience};
use super::offer::Offer;
use super::reply::{self, Asked};
use super::script::Script;
use super::step::{SkuSteps, StepPlan};
use crate::ask::{Answer, Ask, Failure, LedgerAnswer, LedgerOp, Outcome};
use crate::limits::{
    ASK_HOPS_MAX, LINK_SENT_MAX, REDIS_NODES_MAX, SLOTS_REFRESH_EVERY_MS, SLOTS_REFRESH_MIN_MS,
};
use crate::mail::Addr;
use crate::port::Effects;
use crate::rng::Rng;
use crate::time::{Mono, Now};
use crate::tls::{TlsId, TlsPeer};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
pub use counts::DeskCounts;
pub use errors::ERROR_WORDS;
use homes::{Home, Standing};
pub use news::{News, OutboxFound, PageState, Pull, SkuPage};
use routes::{Route, Routes};
use wait::Batch;
pub use wait::Wait;
use weir_proto::ids::SkuKey;
use weir_proto::resp::{self, Value};

/// What a desk is made of.
#[derive(Clone, Debug)]
pub struct DeskConfig {
    /// The server, or with `is_cluster` the nodes to begin with; at least one.
    pub servers: Vec<Endpoint>,
    /// The servers are nodes of one Redis Cluster.
    pub is_cluster: bool,
    /// Links are encrypted, by these settings; `None`: they are not.
    pub tls: Option<TlsId>,
    /// What is told to a client stands only once so many replicas have it; `None`: once the master has it.
    pub wait: Option<Wait>,
    /// Grants that were told are kept for [`Desk::next_grant`].
    pub remembers: bool,
    /// Events are listened to, as hints to pull a snapshot.
    pub hears_events: bool,
    /// Who we are.
    pub words: Words,
    /// How long a link waits.
    pub patience: Patience,
    /// Things that one link may have under way; 8..=4,096. What is asked beyond is told to come again.
    pub under_way_max: usize,
    /// When a node that fails is left alone.
    pub breaker: breaker::Policy,
    /// Chance of back-off.
    pub seed: u64,
}

/// An ask on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    ask: Ask,
    /// How often it came back unexecuted.
    hops: u8,
    /// It goes to a node that only takes it after ASKING.
    is_asking: bool,
}

/// What a desk sends on a link.
#[derive(Debug)]
enum Sent {
    Ask(Flight),
    /// Comes before an ask that was told ASK.
    Asking,
    Load(Script),
    Slots,
    /// Something read or stepped for the SKU at that place.
    Pull(u16, Pull),
    /// Whether the server is still the master that it was; books are read right behind it.
    Role,
    /// The books of the SKU at that place, before anything rests on them.
    Books(u16),
    /// The books of that SKU get the node's name.
    Named(u16),
    /// Whether the node still has the slot of that SKU, and is still the master that it was.
    HomeSlot(u16),
    /// `about`: the place of the node that has it now.
    HomeRole {
        sku: u16,
        about: u16,
    },
    /// A write before WAIT.
    Mark,
    /// How many replicas have everything before it.
    Wait,
}

/// One SKU: its frames, its slot, and the channel of its events.
#[derive(Debug)]
struct SkuAt {
    steps: SkuSteps,
    slot: u16,
    channel: String,
    home: Home,
}

/// One node.
#[derive(Debug)]
struct Node {
    endpoint: Endpoint,
    /// The address of its name was asked for.
    is_resolving: bool,
    link: Link<Sent>,
    /// Asks that this node has certainly not executed and that wait for it: for its greeting, or for a script.
    parked: VecDeque<Flight>,
    /// Scripts whose SCRIPT LOAD is under way.
    loading: u32,
    breaker: Breaker,
    /// It said that it takes no writes: nothing new goes to it, and it is greeted again once it has answered all.
    is_retired: bool,
    /// How often its link became ready.
    greetings: u64,
    /// Its role was asked for then, on the link of that greeting: what is read in the same turn comes behind the answer.
    role_asked: Option<(Mono, u64)>,
    /// The server that it is, and when it was met first.
    met: Option<(HomeId, Mono)>,
    /// What waits for its replicas.
    batch: Batch,
}

/// See the module.
#[derive(Debug)]
pub struct Desk {
    config: DeskConfig,
    skus: Vec<SkuAt>,
    nodes: Vec<Node>,
    routes: Routes,
    answers: VecDeque<(Addr, Answer)>,
    news: VecDeque<News>,
    grants: VecDeque<Offer>,
    rng: Rng,
    tokens: u64,
    /// The slot map is asked for then.
    refresh_at: Mono,
    refreshed_at: Option<Mono>,
    counts: DeskCounts,
    link_faults: BTreeMap<&'static str, u64>,
}

impl Desk {
    /// A desk whose links connect at the first [`Self::turn`].
    pub fn new(config: DeskConfig, plans: &[StepPlan]) -> Self {
        debug_assert!(
            (8..=LINK_SENT_MAX).contains(&config.under_way_max),
            "what DeskConfig says"
        );
        let skus = plans.iter().map(|plan| {
            let steps = SkuSteps::new(*plan);
            let channel = steps.key("events");
            SkuAt {
                slot: resp::key_slot(channel.as_bytes()),
                steps,
                channel,
                home: Home::default(),
            }
        });
        let routes = Routes::new(config.is_cluster);
        let mut desk = Self {
            skus: skus.collect(),
            nodes: Vec::new(),
            routes,
            answers: VecDeque::with_capacity(config.under_way_max),
            news: VecDeque::new(),
            grants: VecDeque::new(),
            rng: Rng::new(config.seed),
            tokens: 0,
            refresh_at: Mono(0),
            refreshed_at: None,
            counts: DeskCounts::default(),
            link_faults: BTreeMap::new(),
            config,
        };
        if desk.config.hears_events {
            let channels = desk.skus.iter().map(|sku| sku.channel.clone());
            desk.config.words.channels = channels.collect();
        }
        for server in desk.config.servers.clone() {
            desk.node_at(&server);
        }
        desk
    }

    /// Its connects are numbered above `number`, so that one handler can have two desks.
    pub fn number_connects_above(&mut self, number: u64) {
        self.tokens = number;
    }

    /// True when every node that this desk knows can be asked.
    pub fn is_ready(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.all(|node| node.link.is_ready() && !node.is_retired) && self.routes.is_known()
    }

    /// True when the server of `sku` can be asked now, be it as a probe of its breaker.
    pub fn can_ask(&self, now: Now, sku: SkuKey) -> bool {
        let node = self.sku_of(sku).and_then(|place| self.node_of(place));
        node.is_some_and(|index| {
            let node = &self.nodes[index];
            node.link.is_ready() && !node.is_retired && node.breaker.would_pass(now.mono)
        })
    }

    /// Each node and why it cannot be asked at present (`None`: it can).
    pub fn nodes(&self) -> impl Iterator<Item = (&Endpoint, Option<LinkFault>)> {
        self.nodes.iter().map(|node| {
            let fault = node.link.last_fault().filter(|_| !node.link.is_ready());
            (&node.endpoint, fault)
        })
    }

    /// Servers that have a SKU's slot and not its books: another run, another history of writes, or a new master for
    /// which the one before it does not vouch. No grant is asked of them until the books are mended.
    pub fn changed(&self) -> impl Iterator<Item = (&Endpoint, &ServerFacts)> {
        let nodes = self.nodes.iter().enumerate();
        let changed = nodes.filter(|(index, _)| self.is_stranger(*index));
        changed.map(|(_, node)| (&node.endpoint, node.link.facts()))
    }

    /// The next grant that was told, with [`DeskConfig::remembers`].
    pub fn next_grant(&mut self) -> Option<Offer> {
        self.grants.pop_front()
    }

    /// The next answer, and who asked; every ask gets one.
    pub fn next_answer(&mut self) -> Option<(Addr, Answer)> {
        self.answers.pop_front()
    }

    /// Sends an ask, or answers it at once when it cannot be sent.
    pub fn ask(&mut self, now: Now, ask: Ask, fx: &mut Effects) {
        let flight = Flight {
            ask,
            hops: 0,
            is_asking: false,
        };
        let Some(sku) = self.sku_of(ask.op.sku()) else {
            return self.end(&flight, Outcome::Failed(Failure::UnknownSku));
        };
        match self.node_of(sku) {
            Some(node) => self.launch(now, node, flight, fx),
            None => self.end(&flight, Outcome::Failed(Failure::Unavailable)),
        }
    }

    /// The node that owns the slot of the SKU at that place.
    fn node_of(&self, sku: usize) -> Option<usize> {
        match self.routes.of(self.skus[sku].slot) {
            Route::Only => Some(0),
            Route::Nowhere => None,
            Route::Node(endpoint) => self.index_at(endpoint),
        }
    }

    fn index_at(&self, endpoint: &Endpoint) -> Option<usize> {
        let mut nodes = self.nodes.iter();
        nodes.position(|node| node.endpoint == *endpoint)
    }

    fn sku_of(&self, key: SkuKey) -> Option<usize> {
        self.skus.iter().position(|sku| sku.steps.plan().sku == key)
    }

    /// Writes a flight to a node, or parks it while the node is being greeted.
    fn launch(&mut self, now: Now, index: usize, flight: Flight, fx: &mut Effects) {
        if now.mono > flight.ask.deadline {
            return self.end(&flight, Outcome::Failed(Failure::Late));
        }
        let node = &mut self.nodes[index];
        let is_usable = node.link.is_ready() && !node.is_retired;
        // A node that is being greeted, and a script that is being loaded, are worth waiting for.
        let is_coming = match is_usable {
            true => node.loading & Script::of(&flight.ask.op).bit() != 0,
            false => node.link.is_coming(),
        };
        if is_coming && node.parked.len() < self.config.under_way_max {
            node.parked.push_back(flight);
            return;
        }
        if !is_usable {
            return self.end(&flight, Outcome::Failed(Failure::Unavailable));
        }
        let Some(sku) = self.sku_of(flight.ask.op.sku()) else {
            return self.end(&flight, Outcome::Failed(Failure::UnknownSku));
        };
        let needs = needs_trust(&flight.ask.op);
        if needs || matches!(flight.ask.op, LedgerOp::Lookup(_)) {
            match self.standing(now, sku, index, flight.is_asking, fx) {
                Standing::Fine => {}
                Standing::Changed if !needs => {} // what is there may be found
                Standing::Open if self.nodes[index].parked.len() < self.config.under_way_max => {
                    self.nodes[index].parked.push_back(flight);
                    return;
                }
                Standing::Open => return self.end(&flight, Outcome::Failed(Failure::Busy)),
                Standing::Changed => return self.end(&flight, Outcome::Failed(Failure::Frozen)),
            }
        }
        let node = &mut self.nodes[index];
        if flight.hops == 0 && node.breaker.gate(now.mono) == Gate::Refuse {
            self.counts.broken += 1;
            return self.end(&flight, Outcome::Failed(Failure::Unavailable));
        }
        // What is parked will be sent, too: together they fit the ring.
        let wanted = node.parked.len() + 1 + usize::from(flight.is_asking);
        if node.link.room() < wanted {
            return self.end(&flight, Outcome::Failed(Failure::Busy));
        }
        let home = self.name_for(sku, index, flight.is_asking);
        let (node, steps) = (&mut self.nodes[index], &self.skus[sku].steps);
        if flight.is_asking {
            let asking = node.link.send(now, Sent::Asking, fx, |out| {
                resp::command(out, &[b"ASKING"]);
            });
            if asking.is_err() {
                return self.end(&flight, Outcome::Failed(Failure::Busy));
            }
        }
        let sent = node.link.send(now, Sent::Ask(flight), fx, |out| {
            steps.push(&flight.ask.op, &home, out);
        });
        match sent {
            Ok(()) if flight.hops == 0 => self.counts.asks += 1,
            Ok(()) => self.counts.resends += 1,
            Err(_) => self.end(&flight, Outcome::Failed(Failure::Busy)),
        }
    }

    fn end(&mut self, flight: &Flight, outcome: Outcome) {
        match outcome {
            Outcome::Done(_) => self.counts.done += 1,
            Outcome::Failed(_) => self.counts.failed += 1,
            Outcome::Unknown => self.counts.unknown += 1,
        }
        let answer = Answer {
            id: flight.ask.id,
            outcome,
        };
        self.answers.push_back((flight.ask.from, answer));
    }

    /// The node at that endpoint, made if it is new; `None` when there is no room for one more.
    fn node_at(&mut self, endpoint: &Endpoint) -> Option<usize> {
        if let Some(index) = self.index_at(endpoint) {
            return Some(index);
        }
        if self.nodes.len() == REDIS_NODES_MAX {
            return None;
        }
        let to = address_of(endpoint);
        let tls = self.config.tls.map(|settings| TlsPeer {
            settings,
            host: endpoint.host.clone(),
        });
        self.nodes.push(Node {
            endpoint: endpoint.clone(),
            is_resolving: false,
            link: Link::new(
                to,
                self.config.words.clone(),
                self.config.patience,
                self.config.under_way_max,
            )
            .over_tls(tls),
            parked: VecDeque::new(),
            loading: 0,
            breaker: Breaker::new(self.config.breaker),
            is_retired: false,
            greetings: 0,
            role_asked: None,
            met: None,
            batch: Batch::default(),
        });
        Some(self.nodes.len() - 1)
    }

    fn replied(&mut self, now: Now, index: usize, to: Sent, value: &Value<'_>, fx: &mut Effects) {
        match to {
            Sent::Ask(flight) => self.ask_replied(now, index, flight, value, fx),
            Sent::Asking => {
                if !matches!(value, Value::Simple(b"OK")) {
                    self.counts.faults += 1; // the ask behind it hears MOVED
                }
            }
            Sent::Load(script) => self.loaded(now, index, script, value, fx),
            Sent::Slots => self.slots_came(now, index, value, fx),
            Sent::Pull(sku, pull) => self.pulled(now, index, (sku, pull), value, fx),
            Sent::Role => self.role_came(now, index, value),
            Sent::Books(sku) => self.books_came(now, index, sku, Some(value), fx),
            Sent::Named(sku) => self.named(now, index, sku, Some(value), fx),
            Sent::Mark => self.marked(now, index, value, fx),
            Sent::Wait => self.waited(index, value),
            Sent::HomeSlot(sku) => self.home_slot_came(index, sku, value),
            Sent::HomeRole { sku, about } => {
                self.home_role_came(now, index, (sku, about), Some(value), fx);
            }
        }
        self.close_retired(now, index, fx);
    }

    fn ask_replied(
        &mut self,
        now: Now,
        index: usize,
        flight: Flight,
        value: &Value<'_>,
        fx: &mut Effects,
    ) {
        if let Value::Error(error) = value {
            return self.refused(now, index, flight, error, fx);
        }
        // An answer after its deadline helps nobody: for the breaker it is none.
        let in_time = now.mono <= flight.ask.deadline;
        self.nodes[index].breaker.heard(now.mono, in_time);
        let sku = self.sku_of(flight.ask.op.sku());
        let ids_above = sku.map_or(0, |sku| self.skus[sku].steps.plan().ids_above);
        match reply::answer(Asked::of(&flight.ask.op), ids_above, value) {
            Ok(decided) => {
                if let Some(sku) = sku {
                    let sold_out = match decided.answer {
                        LedgerAnswer::SoldOut { epoch } => Some(epoch),
                        _ => decided.sells_out,
                    };
                    self.heard_from(now, sku, index, sold_out);
                }
                // A server that may lack grants cannot say that there is none.
                let is_hollow = matches!(decided.answer, LedgerAnswer::NotFound)
                    && sku.is_some_and(|sku| !self.is_fine(sku, index));
                match is_hollow {
                    true => self.end(&flight, Outcome::Failed(Failure::Frozen)),
                    false => self.decided(index, flight, &decided),
                }
                if let Some(epoch) = decided.sells_out {
                    self.hint(flight.ask.op.sku(), epoch);
                }
            }
            Err(_) => {
                self.end(&flight, Outcome::Unknown);
                self.lose(now, index, LinkFault::WrongShape, fx);
            }
        }
    }

    /// Sends what was parked, in order.
    fn unpark(&mut self, now: Now, index: usize, fx: &mut Effects) {
        let parked = core::mem::take(&mut self.nodes[index].parked);
        for flight in parked {
            self.launch(now, index, flight, fx);
        }
    }

    /// What is parked was not executed, and now it will not be.
    fn fail_parked(&mut self, index: usize) {
        while let Some(flight) = self.nodes[index].parked.pop_front() {
            self.end(&flight, Outcome::Failed(Failure::Unavailable));
        }
    }

    /// Parked asks whose deadline has passed are not sent.
    fn drop_expired(&mut self, now: Now, index: usize) {
        let parked = &self.nodes[index].parked;
        if !parked.iter().any(|flight| flight.ask.deadline < now.mono) {
            return;
        }
        let parked = core::mem::take(&mut self.nodes[index].parked);
        for flight in parked {
            if flight.ask.deadline < now.mono {
                self.end(&flight, Outcome::Failed(Failure::Late));
            } else {
                self.nodes[index].parked.push_back(flight);
            }
        }
    }

    /// When [`Self::turn`] has something to do.
    pub fn next_deadline(&self) -> Option<Mono> {
        let links = self
            .nodes
            .iter()
            .filter_map(|node| node.link.next_deadline());
        let parked = self.nodes.iter().flat_map(|node| &node.parked);
        let expiries = parked.map(|flight| flight.ask.deadline.plus_ns(1));
        let refresh = self.refresh_deadline();
        links.chain(expiries).chain(refresh).min()
    }
}

/// The address of an endpoint that needs no resolving.
fn address_of(endpoint: &Endpoint) -> Option<SocketAddr> {
    match endpoint.host {
        Host::Ip(ip) => Some(SocketAddr::new(ip, endpoint.port)),
        Host::Name(_) => None,
    }
}

/// True for steps that rest on every grant being there. A lookup may find what is there; an operator acts on purpose.
const fn needs_trust(op: &LedgerOp) -> bool {
    matches!(
        op,
        LedgerOp::Reserve(_)
            | LedgerOp::Confirm(_)
            | LedgerOp::Settle(_)
            | LedgerOp::Release(_)
            | LedgerOp::PaidLate(_)
            | LedgerOp::Restock(_)
    )
}
