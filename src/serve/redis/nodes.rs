//! Asks of one SKU's keys, one after the other, at the server that has them: the one server, or the node of a cluster
//! that serves the slot. Called by [`super::shelf`].
//!
//! A cluster tells its map by CLUSTER SLOTS; MOVED corrects it, ASK is followed for one command (redis.io, "Redis cluster
//! specification"). What may pass, such as a node that is away until its replica takes over, is tried again within a
//! bound.

use super::fault::Why;
use super::{RedisError, Visit};
use crate::config::RedisPlan;
use crate::private_redis::link::Link;
use std::time::Duration;
use weir_core::redis::endpoint::{Endpoint, Redirect, RedirectKind};
use weir_core::redis::slots::SlotMap;
use weir_proto::resp::{self, Value};

/// How often one command is sent to a cluster whose slots move or whose nodes are away.
const TRIES: u32 = 40;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(200);

/// A server that was reached, and its connection unless it failed.
struct Node {
    endpoint: Endpoint,
    link: Option<Link>,
    /// Its name for itself, as the books carry it.
    home: String,
}

/// A reply, whole, and who gave it.
pub(super) struct Told {
    pub reply: Vec<u8>,
    /// For [`Nodes::home`].
    pub node: usize,
}

/// What to do after a reply of a cluster.
enum Way {
    Done(Told),
    Moved(Redirect),
    Once(Redirect),
    /// Later, with a new map.
    Again,
}

pub(super) struct Nodes<'a> {
    plan: &'a RedisPlan,
    map: SlotMap,
    nodes: Vec<Node>,
}

impl<'a> Nodes<'a> {
    /// # Errors
    /// None of the servers can be asked, or is of the kind that the configuration says.
    pub(super) fn reach(plan: &'a RedisPlan) -> Result<Self, RedisError> {
        let mut nodes = Self {
            plan,
            map: SlotMap::new(),
            nodes: Vec::new(),
        };
        match plan.desk.is_cluster {
            true => nodes.learn()?,
            false => nodes.visit(&plan.desk.servers[0], |_| Ok(()))?,
        }
        Ok(nodes)
    }

    /// The name for itself of the server that said something.
    pub(super) fn home(&self, node: usize) -> &str {
        &self.nodes[node].home
    }

    /// One command about a key in `slot`.
    ///
    /// # Errors
    /// It is refused, or is not answered within a bound.
    pub(super) fn ask(
        &mut self,
        slot: u16,
        command: &'static str,
        words: &[&[u8]],
    ) -> Result<Told, RedisError> {
        let mut frame = Vec::new();
        resp::command(&mut frame, words);
        if !self.plan.desk.is_cluster {
            let plan = self.plan;
            let reply = self.visit(&plan.desk.servers[0], |visit| {
                visit.must_frame(command, &frame)
            })?;
            return Ok(Told { reply, node: 0 });
        }
        let mut once: Option<Redirect> = None;
        let mut last = self.fault(Why::Moving(slot));
        for attempt in 0..TRIES {
            let is_asking = once.is_some();
            let to = match once.take() {
                Some(redirect) => Some(redirect.endpoint),
                None => self.map.node_of(slot).cloned(),
            };
            let way = match &to {
                Some(to) => self.ask_at(to, is_asking, command, &frame),
                None => Ok(Way::Again),
            };
            match way {
                Ok(Way::Done(told)) => return Ok(told),
                Ok(Way::Once(redirect)) => once = Some(redirect),
                // A map with no room for one more is asked for anew.
                Ok(Way::Moved(moved)) if self.map.moved(slot, &moved.endpoint).is_ok() => {}
                Ok(Way::Moved(_) | Way::Again) => {
                    std::thread::sleep(PAUSE);
                    self.learn()?;
                }
                Err(error) if error.is_away() => {
                    last = error;
                    std::thread::sleep(PAUSE);
                    self.learn()?;
                }
                Err(error) => return Err(error),
            }
            if attempt > TRIES / 2 {
                std::thread::sleep(PAUSE); // two nodes that send to each other do so until they agree
            }
        }
        Err(last)
    }

    fn ask_at(
        &mut self,
        to: &Endpoint,
        is_asking: bool,
        command: &'static str,
        frame: &[u8],
    ) -> Result<Way, RedisError> {
        let reply = self.visit(to, |visit| {
            if is_asking {
                visit.must("ASKING", &[b"ASKING"])?;
            }
            visit.ask_frame(frame)
        })?;
        if let Value::Error(error) = resp::read(&reply) {
            let found = Redirect::parse(&error, to);
            let found = found.map_err(|reject| self.fault(Why::Slots(reject)))?;
            match found {
                Some(redirect) if redirect.kind == RedirectKind::Moved => {
                    return Ok(Way::Moved(redirect));
                }
                Some(redirect) => return Ok(Way::Once(redirect)),
                None if matches!(error.code, b"CLUSTERDOWN" | b"TRYAGAIN" | b"MASTERDOWN") => {
                    return Ok(Way::Again);
                }
                None => {}
            }
        }
        let reply = self.visit(to, |visit| visit.checked(command, reply))?;
        let node = self.nodes.iter().position(|node| node.endpoint == *to);
        let node = node.expect("it was visited just now");
        Ok(Way::Done(Told { reply, node }))
    }

    /// Asks one node after the other for the map, those of the configuration first.
    fn learn(&mut self) -> Result<(), RedisError> {
        let mut known = self.plan.desk.servers.clone();
        known.extend(self.map.masters().iter().cloned());
        let mut first = None;
        for server in &known {
            let told = self.visit(server, |visit| {
                let reply = visit.must("CLUSTER SLOTS", &[b"CLUSTER", b"SLOTS"])?;
                let map = SlotMap::from_reply(resp::read(&reply), server);
                map.map_err(|reject| visit.fail(Why::Slots(reject)))
            });
            match told {
                Ok(map) => {
                    self.map = map;
                    return Ok(());
                }
                Err(error) if error.is_away() => first = first.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(first.unwrap_or_else(|| self.fault(Why::NoAddress)))
    }

    /// Does `step` on the connection to `endpoint`, which is made and greeted first where there is none.
    fn visit<T>(
        &mut self,
        endpoint: &Endpoint,
        step: impl FnOnce(&mut Visit<'_>) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let known = self
            .nodes
            .iter()
            .position(|node| node.endpoint == *endpoint);
        let at = known.unwrap_or_else(|| {
            self.nodes.push(Node {
                endpoint: endpoint.clone(),
                link: None,
                home: String::new(),
            });
            self.nodes.len() - 1
        });
        let node = &mut self.nodes[at];
        let mut visit = match node.link.take() {
            Some(link) => Visit {
                server: endpoint,
                link,
            },
            None => {
                let mut visit = Visit::begin(self.plan, endpoint)?;
                visit.greet(self.plan)?;
                // What it could be warned of here was said when weir started.
                node.home = visit.look_around(self.plan, &mut Vec::new())?.0;
                visit
            }
        };
        // After an error nobody knows what the connection says next.
        let done = step(&mut visit)?;
        node.link = Some(visit.link);
        Ok(done)
    }

    /// What is wrong with the whole of them.
    pub(super) fn fault(&self, why: Why) -> RedisError {
        super::fault_of(self.plan, why)
    }
}
