//! Looks at Redis before anything starts: each thing that is wrong is one message with its remedy, and nothing was let in.
//!
//! Called by [`super::start`]. Blocking, with a deadline for each step, on a connection of its own. What can go wrong
//! later is the clerk's: it keeps the gate closed and says so in the metrics and in `/readyz`.

pub mod books;
mod fault;
mod limiter;

pub use fault::RedisError;

use super::ServeError;
use super::resolver::resolve;
use crate::config::RedisPlan;
use crate::orders::store::OrderStore;
use crate::private_redis::link::{Link, LinkError};
use fault::Why;
use std::time::Duration;
use weir_core::redis::endpoint::Endpoint;
use weir_core::redis::link::greeting::IdText;
use weir_core::redis::script::Script;
use weir_core::redis::slots::SlotMap;
use weir_core::redis::step::{SkuSteps, StepPlan};
use weir_core::time::WallMs;
use weir_proto::ids::SkuKey;
use weir_proto::resp::{self, Value};

/// Versions from which the Lua engine has no known hole: CVE-2025-49844, -46817, -46818 and -46819 (redis.io security
/// advisories of October 2025), by major and minor number.
const MENDED: [(u64, u64, u64); 5] = [(6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)];

/// Numbers of reservations that are left out behind the highest one with an order: grants that Redis lost before their
/// orders were made have some of them. More than can be under way on a link, and in a page of the outbox.
const NUMBERS_LEFT_OUT: u64 = 10_000;

/// The section of the keys of a ledger's Redis.
const LEDGER: &str = "redis";

/// What was seen.
#[derive(Default)]
pub(super) struct Seen {
    /// What an operator should know although weir starts.
    pub notes: Vec<String>,
    /// The history of writes of the one server; a cluster has one for each master.
    pub history: Option<String>,
    /// SKUs that are not there.
    pub absent: Vec<SkuKey>,
}

/// Looks at every server that the configuration names.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn examine(plan: &RedisPlan) -> Result<Seen, RedisError> {
    let mut seen = Seen::default();
    for server in &plan.desk.servers {
        let mut visit = Visit::begin(plan, server)?;
        visit.greet(plan)?;
        let history = visit.look_around(plan, &mut seen.notes)?;
        visit.look_at_safety(&mut seen.notes)?;
        if plan.desk.is_cluster {
            visit.look_at_slots()?;
        } else {
            visit.look_at_keys(plan, &mut seen.absent)?;
            visit.look_at_permissions(plan)?;
            seen.history = Some(history);
        }
    }
    limiter::examine(plan, &mut seen.notes)?;
    Ok(seen)
}

/// Holds the server's history of writes against the one that these orders were made with, and takes it over when there
/// are none. A server that was restarted, or promoted, has another one and may lack reservations that were acknowledged.
///
/// # Errors
/// They differ, and no operator has said that the new one is trusted; or the order store cannot be read or written.
pub(super) fn pair(plan: &RedisPlan, seen: &Seen, orders: &OrderStore) -> Result<(), ServeError> {
    let Some(history) = &seen.history else {
        return Ok(());
    };
    let hash = blake3::hash(history.as_bytes());
    let (first, _) = hash
        .as_bytes()
        .split_first_chunk()
        .expect("a hash has 32 bytes");
    let id = i64::from_le_bytes(*first);
    match orders.ledger_id()? {
        Some(known) if known == id => return Ok(()),
        Some(_) if plan.history.as_ref() != Some(history) => {
            let why = Why::History(history.clone());
            return Err(fault_of(plan, why).into());
        }
        None if orders.has_rows()? => {
            let why = Why::NotTheirs;
            return Err(fault_of(plan, why).into());
        }
        Some(_) | None => {}
    }
    Ok(orders.belong_to(id)?)
}

fn fault_of(plan: &RedisPlan, why: Why) -> RedisError {
    RedisError {
        section: LEDGER,
        server: plan.desk.servers[0].to_string(),
        why,
    }
}

/// What of Redis is trusted from the start.
#[derive(Default)]
pub(super) struct Trusted {
    /// The history of the one server.
    pub history: Option<IdText>,
    /// SKUs whose orders are here: if Redis does not have them, it has lost them, and they are not put on sale again.
    pub never_open: Vec<SkuKey>,
}

impl Trusted {
    /// Of a server whose orders are not here.
    pub fn of(seen: &Seen) -> Self {
        let history = seen.history.as_ref();
        Self {
            history: history.and_then(|history| IdText::new(history.as_bytes())),
            never_open: Vec::new(),
        }
    }
}

/// Looks at what the orders know: stock that is gone is told in `notes`, and numbers of orders are not given again.
///
/// # Errors
/// The order store cannot be read, or Redis does not take the next number.
pub(super) fn trust(
    plan: &RedisPlan,
    seen: &Seen,
    orders: &OrderStore,
    notes: &mut Vec<String>,
) -> Result<Trusted, ServeError> {
    let mut trusted = Trusted::of(seen);
    for steps in &plan.steps {
        let Some(last) = orders.last_reservation(steps.sku)? else {
            continue;
        };
        trusted.never_open.push(steps.sku);
        if seen.absent.contains(&steps.sku) {
            notes.push(format!(
                "warning: Redis has nothing of activity {}, SKU {}, whose orders are here: it lost its stock, and weir does not sell it again. Restore Redis from a backup",
                steps.sku.activity, steps.sku.sku
            ));
        } else if !plan.desk.is_cluster {
            let server = &plan.desk.servers[0];
            let mut visit = Visit::begin(plan, server)?;
            visit.greet(plan)?;
            visit.raise_next(steps, last.0.saturating_sub(steps.ids_above))?;
        }
    }
    Ok(trusted)
}

/// One connection.
struct Visit<'a> {
    server: &'a Endpoint,
    link: Link,
}

impl<'a> Visit<'a> {
    fn begin(plan: &RedisPlan, server: &'a Endpoint) -> Result<Self, RedisError> {
        let fail = |why| RedisError {
            section: LEDGER,
            server: server.to_string(),
            why,
        };
        let patience = Duration::from_millis(plan.desk.patience.greeting_ms_max);
        let to = resolve(server).ok_or_else(|| fail(Why::NoAddress))?;
        let link = Link::connect(to, patience).map_err(|error| fail(Why::Connect(error)))?;
        Ok(Self { server, link })
    }

    fn fail(&self, why: Why) -> RedisError {
        RedisError {
            section: LEDGER,
            server: self.server.to_string(),
            why,
        }
    }

    /// One command and its reply, whole.
    fn ask(&mut self, parts: &[&[u8]]) -> Result<Vec<u8>, RedisError> {
        let mut frame = Vec::new();
        resp::command(&mut frame, parts);
        self.ask_frame(&frame)
    }

    fn ask_frame(&mut self, frame: &[u8]) -> Result<Vec<u8>, RedisError> {
        self.link.ask_frame(frame).map_err(|error| {
            self.fail(match error {
                LinkError::Io(error) => Why::Io(error),
                LinkError::NoRedis => Why::NoRedis,
            })
        })
    }

    /// As [`Self::ask`], with an error reply made into what is wrong.
    fn must(&mut self, command: &'static str, parts: &[&[u8]]) -> Result<Vec<u8>, RedisError> {
        let mut frame = Vec::new();
        resp::command(&mut frame, parts);
        self.must_frame(command, &frame)
    }

    fn must_frame(&mut self, command: &'static str, frame: &[u8]) -> Result<Vec<u8>, RedisError> {
        let reply = self.ask_frame(frame)?;
        let why = match resp::read(&reply) {
            Value::Error(error) => match error.code {
                b"ERR" if command == "AUTH" => Why::NoPassword,
                b"WRONGPASS" => Why::WrongPassword,
                b"NOAUTH" => Why::NeedsPassword,
                b"LOADING" => Why::Loading,
                code => Why::Refused {
                    command,
                    word: String::from_utf8_lossy(code).into_owned(),
                },
            },
            _ => return Ok(reply),
        };
        Err(self.fail(why))
    }

    fn greet(&mut self, plan: &RedisPlan) -> Result<(), RedisError> {
        if let Some(auth) = &plan.desk.words.auth {
            let password = auth.password.as_bytes();
            match &auth.user {
                Some(user) => self.must("AUTH", &[b"AUTH", user.as_bytes(), password])?,
                None => self.must("AUTH", &[b"AUTH", password])?,
            };
        }
        self.must("PING", &[b"PING"])?;
        if plan.desk.words.database != 0 {
            let database = plan.desk.words.database.to_string();
            self.must("SELECT", &[b"SELECT", database.as_bytes()])?;
        }
        Ok(())
    }

    /// A section of INFO as lines.
    fn info(&mut self, section: &'static str) -> Result<Vec<(String, String)>, RedisError> {
        let reply = self.must("INFO", &[b"INFO", section.as_bytes()])?;
        let value = resp::read(&reply);
        let text = value.text().ok_or_else(|| self.fail(Why::NoRedis))?;
        let text = String::from_utf8_lossy(text);
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Ok(lines
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect())
    }

    /// Gives the history of writes.
    fn look_around(
        &mut self,
        plan: &RedisPlan,
        notes: &mut Vec<String>,
    ) -> Result<String, RedisError> {
        let server = self.info("server")?;
        let replication = self.info("replication")?;
        let value = |lines: &[(String, String)], wanted: &str| {
            let found = lines.iter().find(|(name, _)| name == wanted);
            found.map_or(String::new(), |(_, value)| value.clone())
        };
        let is_cluster = value(&server, "redis_mode") == "cluster";
        if is_cluster != plan.desk.is_cluster {
            let why = if is_cluster {
                Why::IsCluster
            } else {
                Why::NoCluster
            };
            return Err(self.fail(why));
        }
        let version = value(&server, "redis_version");
        if has_lua_holes(&version) {
            if !plan.accept_lua_holes {
                return Err(self.fail(Why::LuaHoles(version)));
            }
            notes.push(format!(
                "Redis at {} has version {version}, whose number has known holes in its Lua engine: redis.accept_lua_holes says that it is mended",
                self.server
            ));
        }
        if value(&replication, "role") != "master" && !is_cluster {
            let (host, port) = (
                value(&replication, "master_host"),
                value(&replication, "master_port"),
            );
            return Err(self.fail(Why::Replica(format!("{host}:{port}"))));
        }
        Ok(value(&replication, "master_replid"))
    }

    /// Settings that decide what a failover or a full memory can lose; a user that may not read them is told nothing.
    fn look_at_safety(&mut self, notes: &mut Vec<String>) -> Result<(), RedisError> {
        let mut setting = |name: &str| -> Result<Option<String>, RedisError> {
            let reply = self.ask(&[b"CONFIG", b"GET", name.as_bytes()])?;
            let items = match resp::read(&reply) {
                Value::Array(items) | Value::Map(items) => items,
                _ => return Ok(None),
            };
            let value = items.into_iter().nth(1);
            let value = value.as_ref().and_then(Value::text);
            Ok(value.map(|text| String::from_utf8_lossy(text).into_owned()))
        };
        let (replicas, policy) = (
            setting("min-replicas-to-write")?,
            setting("maxmemory-policy")?,
        );
        if replicas.as_deref() == Some("0") {
            notes.push(format!(
                "Redis at {} has min-replicas-to-write 0: a failover can lose reservations that were acknowledged. Set it to 1 or more, with a replica, for a sale that matters",
                self.server
            ));
        }
        if policy
            .as_deref()
            .is_some_and(|policy| policy != "noeviction")
        {
            notes.push(format!(
                "Redis at {} has maxmemory-policy {}: it may evict what weir keeps. Set it to noeviction",
                self.server,
                policy.unwrap_or_default()
            ));
        }
        Ok(())
    }

    fn look_at_slots(&mut self) -> Result<(), RedisError> {
        let reply = self.must("CLUSTER SLOTS", &[b"CLUSTER", b"SLOTS"])?;
        let map = SlotMap::from_reply(resp::read(&reply), self.server);
        let map = map.map_err(|reject| self.fail(Why::Slots(reject)))?;
        let uncovered: Vec<String> = map.uncovered().map(|range| range.to_string()).collect();
        if uncovered.is_empty() {
            return Ok(());
        }
        Err(self.fail(Why::Uncovered(uncovered)))
    }

    /// A server that lost grants would give their numbers again, and a new buyer's reservation would meet an old order.
    fn raise_next(&mut self, steps: &StepPlan, last: u64) -> Result<(), RedisError> {
        let key = SkuSteps::new(*steps).key("sku");
        let reply = self.must("HGET", &[b"HGET", key.as_bytes(), b"next"])?;
        let value = resp::read(&reply);
        let next = value
            .text()
            .and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        if next.is_some_and(|next| next <= last) {
            let raised = (last + NUMBERS_LEFT_OUT).to_string();
            self.must(
                "HSET",
                &[b"HSET", key.as_bytes(), b"next", raised.as_bytes()],
            )?;
        }
        Ok(())
    }

    /// What this user may not do would be found out by buyers.
    fn look_at_permissions(&mut self, plan: &RedisPlan) -> Result<(), RedisError> {
        for script in Script::ALL {
            self.must(
                "SCRIPT LOAD",
                &[b"SCRIPT", b"LOAD", script.source().as_bytes()],
            )?;
        }
        for steps in &plan.steps {
            let steps = SkuSteps::new(*steps);
            let mut frame = Vec::new();
            steps.push_snapshot(0, 1, &mut frame);
            self.must_frame("EVALSHA (snapshot)", &frame)?;
            frame.clear();
            steps.push_outbox(WallMs(0), 0, 1, &mut frame);
            self.must_frame("EVALSHA (outbox)", &frame)?;
        }
        // Last: in RESP2 nothing else can be said on this connection afterwards.
        let channels: Vec<String> = plan
            .steps
            .iter()
            .map(|steps| SkuSteps::new(*steps).key("events"))
            .collect();
        let words = channels.iter().map(|channel| channel.as_bytes());
        let words: Vec<&[u8]> = std::iter::once(&b"SUBSCRIBE"[..]).chain(words).collect();
        self.must("SUBSCRIBE", &words).map(drop)
    }

    /// Keys of ours that another application holds would end in WRONGTYPE in the middle of a sale.
    fn look_at_keys(
        &mut self,
        plan: &RedisPlan,
        absent: &mut Vec<SkuKey>,
    ) -> Result<(), RedisError> {
        const KEYS: [(&str, &str); 10] = [
            ("sku", "hash"),
            ("res", "hash"),
            ("req", "hash"),
            ("nonce", "hash"),
            ("user", "hash"),
            ("ops", "hash"),
            ("pending", "zset"),
            ("orders", "stream"),
            ("lease", "hash"),
            ("lines", "hash"),
        ];
        for step in &plan.steps {
            let steps = SkuSteps::new(*step);
            for (name, wants) in KEYS {
                let key = steps.key(name);
                let reply = self.must("TYPE", &[b"TYPE", key.as_bytes()])?;
                let value = resp::read(&reply);
                let is = value.text().ok_or_else(|| self.fail(Why::NoRedis))?;
                let is = String::from_utf8_lossy(is).into_owned();
                if name == "sku" && is == "none" {
                    absent.push(step.sku);
                }
                if is != wants && is != "none" {
                    return Err(self.fail(Why::Foreign { key, is, wants }));
                }
            }
        }
        Ok(())
    }
}

/// True for a version before the mended one of its line; lines that are not in the list are older or newer than all.
fn has_lua_holes(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    let (major, minor, patch): (u64, u64, u64) = (next(), next(), next());
    let line = MENDED
        .iter()
        .find(|mended| (mended.0, mended.1) == (major, minor));
    match line {
        Some(mended) => patch < mended.2,
        None => (major, minor) < (8, 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_judged_by_their_line() {
        for version in [
            "5.0.14", "6.2.19", "7.0.15", "7.2.10", "7.4.5", "8.0.3", "8.2.1",
        ] {
            assert!(has_lua_holes(version), "{version}");
        }
        for version in [
            "6.2.20", "7.2.11", "7.4.6", "8.0.4", "8.2.2", "8.4.0", "9.0.0",
        ] {
            assert!(!has_lua_holes(version), "{version}");
        }
    }
}
