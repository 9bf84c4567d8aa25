//! Looks at Redis before anything starts: each thing that is wrong is one message with its remedy, and nothing was let in.
//!
//! Called by [`super::start`]. Blocking, with a deadline for each step, on a connection of its own. What can go wrong
//! later is the clerk's: it keeps the gate closed and says so in the metrics and in `/readyz`.

use super::ServeError;
use super::resolver::resolve;
use crate::config::RedisPlan;
use crate::orders::store::OrderStore;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use weir_core::redis::endpoint::Endpoint;
use weir_core::redis::slots::{SlotMap, SlotsReject};
use weir_core::redis::step::SkuSteps;
use weir_proto::ids::SkuKey;
use weir_proto::limits::RESP_REPLY_BYTES_MAX;
use weir_proto::resp::{self, Scan, Scanner, Value};

/// Versions from which the Lua engine has no known hole: CVE-2025-49844, -46817, -46818 and -46819 (redis.io security
/// advisories of October 2025), by major and minor number.
const MENDED: [(u64, u64, u64); 5] = [(6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)];

/// What is wrong with a server. `Display` never shows a password.
#[derive(Debug)]
pub struct RedisError {
    server: String,
    why: Why,
}

#[derive(Debug)]
enum Why {
    NoAddress,
    Connect(io::Error),
    Io(io::Error),
    NoRedis,
    WrongPassword,
    NeedsPassword,
    Replica(String),
    Loading,
    LuaHoles(String),
    NoCluster,
    IsCluster,
    Uncovered(Vec<String>),
    Slots(SlotsReject),
    Foreign {
        key: String,
        is: String,
        wants: &'static str,
    },
    History(String),
    NotTheirs,
    Refused {
        command: &'static str,
        word: String,
    },
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis at {}: ", self.server)?;
        match &self.why {
            Why::NoAddress => f.write_str(
                "its name has no address; check redis.servers and the resolver of this machine",
            ),
            Why::Connect(error) => write!(
                f,
                "no connection ({error}); start the server, or mend redis.servers"
            ),
            Why::Io(error) => write!(
                f,
                "it was connected and did not answer ({error}); is it a Redis, and is it not overloaded?"
            ),
            Why::NoRedis => {
                f.write_str("what answers there does not speak Redis' protocol; mend redis.servers")
            }
            Why::WrongPassword => f.write_str(
                "it did not take the user and password; check redis.user and the file of redis.password_file",
            ),
            Why::NeedsPassword => f.write_str(
                "it wants a password; name its file in redis.password_file",
            ),
            Why::Replica(master) => write!(
                f,
                "it is a replica and takes no writes; name its master ({master}) in redis.servers"
            ),
            Why::Loading => {
                f.write_str("it is still loading its data; start weir when it has ended")
            }
            Why::LuaHoles(version) => write!(
                f,
                "version {version} has known holes in its Lua engine (CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819). Upgrade to 6.2.20, 7.2.11, 7.4.6, 8.0.4, 8.2.2 or later; if your distribution has mended this version, set redis.accept_lua_holes = true"
            ),
            Why::NoCluster => f.write_str(
                "it is no node of a cluster; set redis.cluster = false, or name a node of the cluster",
            ),
            Why::IsCluster => f.write_str(
                "it is a node of a cluster; set redis.cluster = true",
            ),
            Why::Uncovered(ranges) => write!(
                f,
                "nobody serves slots {} of the cluster; `redis-cli --cluster check` and `fix` mend it",
                ranges.join(", ")
            ),
            Why::Slots(reject) => write!(f, "its map of slots cannot be used: {reject}"),
            Why::Foreign { key, is, wants } => write!(
                f,
                "key {key} is a {is}, and weir keeps a {wants} there: another application uses this database. Choose another one with redis.database, or remove the key"
            ),
            Why::History(history) => write!(
                f,
                "its history of writes ({history}) is not the one that the orders here were made with: it was restarted or replaced, and may lack reservations that buyers were told of. Hold its stock against the orders (free units at most the stock less the live orders); then set redis.history = \"{history}\""
            ),
            Why::NotTheirs => f.write_str(
                "the orders here were made with an embedded ledger; choose another server.data_dir for a sale on Redis",
            ),
            Why::Refused { command, word } => write!(
                f,
                "{command} was refused with {word}; README lists what weir's user must be allowed"
            ),
        }
    }
}

impl std::error::Error for RedisError {}

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
        if plan.desk.is_cluster {
            visit.look_at_slots()?;
        } else {
            visit.look_at_keys(plan, &mut seen.absent)?;
            seen.history = Some(history);
        }
    }
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
            let server = plan.desk.servers[0].to_string();
            return Err(RedisError { server, why }.into());
        }
        None if orders.has_rows()? => {
            let why = Why::NotTheirs;
            let server = plan.desk.servers[0].to_string();
            return Err(RedisError { server, why }.into());
        }
        Some(_) | None => {}
    }
    Ok(orders.belong_to(id)?)
}

/// SKUs whose orders are here and whose stock is not in Redis: they are not put on sale again; `notes` says so.
///
/// # Errors
/// The order store cannot be read.
pub(super) fn lost(
    seen: &Seen,
    orders: &OrderStore,
    notes: &mut Vec<String>,
) -> Result<Vec<SkuKey>, ServeError> {
    let mut lost = Vec::new();
    for sku in &seen.absent {
        if orders.has_sold(*sku)? {
            notes.push(format!(
                "warning: Redis has nothing of activity {}, SKU {}, whose orders are here: it lost its stock, and weir does not sell it again. Restore Redis from a backup",
                sku.activity, sku.sku
            ));
            lost.push(*sku);
        }
    }
    Ok(lost)
}

/// One connection.
struct Visit<'a> {
    server: &'a Endpoint,
    stream: TcpStream,
}

impl<'a> Visit<'a> {
    fn begin(plan: &RedisPlan, server: &'a Endpoint) -> Result<Self, RedisError> {
        let fail = |why| RedisError {
            server: server.to_string(),
            why,
        };
        let patience = Duration::from_millis(plan.desk.patience.greeting_ms_max);
        let to = resolve(server).ok_or_else(|| fail(Why::NoAddress))?;
        let stream = TcpStream::connect_timeout(&to, patience);
        let stream = stream.map_err(|error| fail(Why::Connect(error)))?;
        let set = stream
            .set_read_timeout(Some(patience))
            .and_then(|()| stream.set_write_timeout(Some(patience)));
        set.map_err(|error| fail(Why::Io(error)))?;
        Ok(Self { server, stream })
    }

    fn fail(&self, why: Why) -> RedisError {
        RedisError {
            server: self.server.to_string(),
            why,
        }
    }

    /// One command and its reply, whole.
    fn ask(&mut self, parts: &[&[u8]]) -> Result<Vec<u8>, RedisError> {
        let mut bytes = Vec::new();
        resp::command(&mut bytes, parts);
        let sent = self.stream.write_all(&bytes);
        sent.map_err(|error| self.fail(Why::Io(error)))?;
        let (mut got, mut scanner, mut piece) = (Vec::new(), Scanner::new(), [0; 4096]);
        loop {
            match scanner.scan(&got) {
                Scan::Done { bytes } => {
                    got.truncate(bytes);
                    return Ok(got);
                }
                Scan::Reject(_) => return Err(self.fail(Why::NoRedis)),
                Scan::NeedMore if got.len() > RESP_REPLY_BYTES_MAX => {
                    return Err(self.fail(Why::NoRedis));
                }
                Scan::NeedMore => {}
            }
            match self.stream.read(&mut piece) {
                Ok(0) => {
                    let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(self.fail(Why::Io(closed)));
                }
                Ok(count) => got.extend_from_slice(&piece[..count]),
                Err(error) => return Err(self.fail(Why::Io(error))),
            }
        }
    }

    /// As [`Self::ask`], with an error reply made into what is wrong.
    fn must(&mut self, command: &'static str, parts: &[&[u8]]) -> Result<Vec<u8>, RedisError> {
        let reply = self.ask(parts)?;
        let why = match resp::read(&reply) {
            Value::Error(error) => match error.code {
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
        self.look_at_safety(notes)?;
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

    /// Keys of ours that another application holds would end in WRONGTYPE in the middle of a sale.
    fn look_at_keys(
        &mut self,
        plan: &RedisPlan,
        absent: &mut Vec<SkuKey>,
    ) -> Result<(), RedisError> {
        const KEYS: [(&str, &str); 8] = [
            ("sku", "hash"),
            ("res", "hash"),
            ("req", "hash"),
            ("nonce", "hash"),
            ("user", "hash"),
            ("ops", "hash"),
            ("pending", "zset"),
            ("orders", "stream"),
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
