//! Looks at Redis before anything starts: each thing that is wrong is one message with its remedy, and nothing was let in.
//!
//! Called by [`super::start`]. Blocking, with a deadline for each step, on a connection of its own. What can go wrong
//! later is the clerk's: it keeps the gate closed and says so in the metrics and in `/readyz`.

pub mod books;
mod fault;
mod limiter;
mod nodes;
mod shelf;
mod slots;
mod stream;

pub use fault::RedisError;

use super::ServeError;
use super::resolver::resolve;
use crate::config::RedisPlan;
use crate::orders::store::{LastOrder, OrderStore};
use crate::private_redis::link::Link;
use fault::Why;
use std::net::SocketAddr;
use std::time::Duration;
use weir_core::redis::endpoint::Endpoint;
use weir_core::redis::reply;
use weir_core::redis::script::Script;
use weir_core::redis::step::{SkuSteps, StepPlan};
use weir_core::time::WallMs;
use weir_core::tls::TlsFault;
use weir_io::clock;
use weir_proto::ids::SkuKey;
use weir_proto::resp::{self, Value};

/// Versions from which the Lua engine has no known hole: CVE-2025-49844, -46817, -46818 and -46819 (redis.io security
/// advisories of October 2025), by major and minor number.
const MENDED: [(u64, u64, u64); 5] = [(6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)];

/// What the order store calls a ledger in Redis; an embedded ledger's number is random.
const REDIS_LEDGER: i64 = -6_379;

/// The section of the keys of a ledger's Redis.
const LEDGER: &str = "redis";

/// What was seen.
#[derive(Default)]
pub(super) struct Seen {
    /// What an operator should know although weir starts.
    pub notes: Vec<String>,
    /// The one server's name for itself, as its books carry it; a cluster has one for each master.
    pub home: String,
    /// The masters of a cluster, which the nodes that the configuration names may be none of.
    pub masters: Vec<Endpoint>,
    /// SKUs that are not there.
    pub absent: Vec<SkuKey>,
}

/// Looks at every server that the configuration names. Of a cluster one that answers is enough: the others are found
/// when they are back.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn examine(plan: &RedisPlan) -> Result<Seen, RedisError> {
    let mut seen = Seen::default();
    let mut away = Vec::new();
    for server in &plan.desk.servers {
        match look_at(plan, server, &mut seen) {
            Err(error) if plan.desk.is_cluster && error.is_away() => away.push(error),
            looked => looked?,
        }
    }
    if away.len() == plan.desk.servers.len() {
        return Err(away.swap_remove(0));
    }
    slots::greet_masters(plan, &seen, &mut away)?;
    let notes = away
        .iter()
        .map(|error| format!("{error} (weir starts without it)"));
    seen.notes.extend(notes);
    limiter::examine(plan, &mut seen.notes)?;
    Ok(seen)
}

fn look_at(plan: &RedisPlan, server: &Endpoint, seen: &mut Seen) -> Result<(), RedisError> {
    let mut visit = Visit::begin(plan, server)?;
    visit.greet(plan)?;
    let (home, replicas) = visit.look_around(plan, &mut seen.notes)?;
    visit.look_at_safety(plan, &replicas, &mut seen.notes)?;
    if plan.desk.is_cluster {
        let masters = visit.look_at_slots()?;
        let new = |node: &&Endpoint| !seen.masters.contains(node);
        let new: Vec<Endpoint> = masters.iter().filter(new).cloned().collect();
        seen.masters.extend(new);
        return Ok(());
    }
    visit.look_at_keys(plan, &mut seen.absent)?;
    visit.look_at_permissions(plan)?;
    seen.home = home;
    Ok(())
}

/// Sees to it that these orders are those of a ledger in Redis.
///
/// # Errors
/// They were made with an embedded ledger; or the order store cannot be read or written.
pub(super) fn pair(plan: &RedisPlan, orders: &OrderStore) -> Result<(), ServeError> {
    match orders.ledger_id()? {
        Some(REDIS_LEDGER) => return Ok(()),
        None if !orders.has_rows()? => {}
        Some(_) | None => return Err(fault_of(plan, Why::Embedded).into()),
    }
    Ok(orders.belong_to(REDIS_LEDGER)?)
}

fn fault_of(plan: &RedisPlan, why: Why) -> RedisError {
    RedisError {
        section: LEDGER,
        server: plan.desk.servers[0].to_string(),
        why,
    }
}

/// Holds the last order of each SKU against Redis, and gives the SKUs that have orders: what Redis does not have of
/// them, it has lost. What will be mended is told in `notes`.
///
/// # Errors
/// The order store cannot be read, Redis does not answer, or its reservations are not those of these orders.
pub(super) fn compare(
    plan: &RedisPlan,
    seen: &Seen,
    orders: &OrderStore,
    notes: &mut Vec<String>,
) -> Result<Vec<SkuKey>, ServeError> {
    if !plan.desk.is_cluster {
        let mut visit = Visit::begin(plan, &plan.desk.servers[0])?;
        visit.greet(plan)?;
        visit.look_at_stream(plan)?;
    }
    let mut have_orders = Vec::new();
    for steps in &plan.steps {
        let Some(last) = orders.last_order(steps.sku)? else {
            if orders.was_restocked(steps.sku)? {
                have_orders.push(steps.sku); // its first stock is not all of it
            }
            continue;
        };
        have_orders.push(steps.sku);
        if plan.desk.is_cluster {
            continue; // the clerk finds the node that has it
        }
        let is_mended = match seen.absent.contains(&steps.sku) {
            true => true,
            false => {
                let mut visit = Visit::begin(plan, &plan.desk.servers[0])?;
                visit.greet(plan)?;
                visit.look_at_last(steps, &last, &seen.home)?
            }
        };
        if is_mended {
            notes.push(format!(
                "Redis was restarted or replaced since activity {}, SKU {} was sold there: its books are mended from the orders here, and it sells again in {} s",
                steps.sku.activity,
                steps.sku.sku,
                plan.freeze_ms.div_ceil(1000)
            ));
        }
    }
    Ok(have_orders)
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
        let tls = plan.tls.as_ref().map(|client| (client, &server.host));
        let link = Link::connect_as(to, patience, tls);
        let link = link.map_err(|error| {
            fail(match fault::of_io(error, Why::Connect) {
                Why::Tls(TlsFault::Silent) if speaks_plainly(to, patience) => {
                    Why::Tls(TlsFault::NotTls)
                }
                why => why,
            })
        })?;
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
        let reply = self.link.ask_frame(frame);
        reply.map_err(|error| self.fail(fault::of_link(error, self.link.is_encrypted())))
    }

    /// As [`Self::ask`], with an error reply made into what is wrong.
    fn must(&mut self, command: &'static str, parts: &[&[u8]]) -> Result<Vec<u8>, RedisError> {
        let mut frame = Vec::new();
        resp::command(&mut frame, parts);
        self.must_frame(command, &frame)
    }

    fn must_frame(&mut self, command: &'static str, frame: &[u8]) -> Result<Vec<u8>, RedisError> {
        let reply = self.ask_frame(frame)?;
        self.checked(command, reply)
    }

    /// A reply that is no error; an error reply made into what is wrong.
    fn checked(&self, command: &'static str, reply: Vec<u8>) -> Result<Vec<u8>, RedisError> {
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

    /// Gives the server's name for itself, and how many replicas it has.
    fn look_around(
        &mut self,
        plan: &RedisPlan,
        notes: &mut Vec<String>,
    ) -> Result<(String, String), RedisError> {
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
                "Redis at {} has version {version}, whose number has known holes in its Lua engine: accept_lua_holes says that it is mended",
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
        let history = value(&replication, "master_replid");
        let name = format!("{history}:{}", value(&server, "run_id"));
        Ok((name, value(&replication, "connected_slaves")))
    }

    /// Settings that decide what a failover or a full memory can lose; a user that may not read them is told nothing.
    fn look_at_safety(
        &mut self,
        plan: &RedisPlan,
        replicas_there: &str,
        notes: &mut Vec<String>,
    ) -> Result<(), RedisError> {
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
        let number = |text: &Option<String>| text.as_ref()?.parse::<u64>().ok();
        let lag_s = setting("min-replicas-max-lag")?;
        let node_timeout = setting("cluster-node-timeout")?;
        let wait = plan.desk.wait.map_or(0, |wait| u64::from(wait.replicas));
        if replicas_there.parse().unwrap_or(0) < wait {
            notes.push(format!(
                "Redis at {} has {replicas_there} replicas, and redis.wait_replicas wants {wait}: nothing is sold there before it has them",
                self.server
            ));
        }
        let old_master_ms = number(&lag_s).map_or(0, |lag_s| lag_s * 1000)
            + number(&node_timeout)
                .filter(|_| plan.desk.is_cluster)
                .unwrap_or(0);
        if plan.desk.is_cluster && plan.freeze_ms < old_master_ms {
            notes.push(format!(
                "Redis at {} may take writes for {} s after another master has taken its place (min-replicas-max-lag and cluster-node-timeout): set redis.freeze to that or more",
                self.server,
                old_master_ms.div_ceil(1000)
            ));
        }
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

    /// Whether the books are to be mended (`true`), or are at home and have this order.
    fn look_at_last(
        &mut self,
        steps: &StepPlan,
        last: &LastOrder,
        home: &str,
    ) -> Result<bool, RedisError> {
        let frames = SkuSteps::new(*steps);
        let (sku, reservations) = (frames.key("sku"), frames.key("res"));
        let at = self.must("HGET", &[b"HGET", sku.as_bytes(), b"home"])?;
        let is_home = resp::read(&at).text() == Some(home.as_bytes());
        let number = last.reservation.0.saturating_sub(steps.ids_above);
        let field = number.to_string();
        let asked = [&b"HGET"[..], reservations.as_bytes(), field.as_bytes()];
        let record = self.must("HGET", &asked)?;
        let found = resp::read(&record).text().map(|record| {
            let read = reply::reservation(steps.sku, steps.ids_above, number, record);
            read.is_ok_and(|(message, _)| {
                message.user == last.user
                    && message.request_id.as_bytes() == last.request_id.as_bytes()
            })
        });
        match found {
            Some(false) => Err(self.fail(Why::NotTheirs(steps.sku))),
            None if is_home && last.is_live && steps.keep_until > clock::read().wall => {
                Err(self.fail(Why::NotTheirs(steps.sku)))
            }
            Some(true) | None => Ok(!is_home),
        }
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
            steps.push_outbox((WallMs(0), 0), 1, 0, &mut frame);
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

/// A Redis that knows no TLS waits for the line end of a client's first words, for ever: it is asked in its own.
fn speaks_plainly(to: SocketAddr, patience: Duration) -> bool {
    let link = Link::connect(to, patience);
    link.is_ok_and(|mut link| link.ask(&[b"PING"]).is_ok())
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
