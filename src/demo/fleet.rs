//! The servers of a demo: one process that does all, or several instances and their worker on one stock in Redis.
//!
//! Each is this very program as a process of its own ([`Server`]). The worker starts first, because it puts the stock on
//! sale, and ends last, because it makes the orders of what the others sold.

use super::DemoError;
use super::scene::Scene;
use super::server::Server;
use crate::private_redis::link::Link;
use crate::private_redis::{PATIENCE, Server as PrivateRedis};
use serde::Serialize;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitStatus;
use std::time::Instant;
use weir_core::limits::BUCKET_BURST_MS;
use weir_proto::resp::{self, Value};

/// What is left in Redis of the demo's one SKU, TTLs apart.
const KEYS: [&str; 11] = [
    "sku", "res", "req", "nonce", "user", "ops", "pending", "orders", "events", "lease", "lines",
];

/// Which Redis holds the stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisChoice {
    /// One that the demo starts and ends.
    Private,
    /// The one at this host and port.
    At(String),
}

impl RedisChoice {
    /// Reads `auto`, `HOST:PORT` or `redis://HOST:PORT`.
    /// # Errors
    /// What is allowed.
    pub fn read(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Private);
        }
        let plain = text.strip_prefix("redis://").unwrap_or(text);
        let plain = plain.strip_suffix('/').unwrap_or(plain);
        let port = plain.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(_)) => Ok(Self::At(plain.to_owned())),
            _ => Err("must be auto, HOST:PORT or redis://HOST:PORT".to_owned()),
        }
    }
}

/// The Redis of a demo. Nothing of the demo is left there when this is dropped.
#[derive(Debug)]
pub struct Home {
    at: String,
    /// `None`: it is somebody else's.
    private: Option<PrivateRedis>,
}

impl Home {
    /// Starts it, or looks whether the demo may use it.
    /// # Errors
    /// There is none, or a sale of these ids is there already.
    pub fn open(choice: &RedisChoice) -> Result<Self, DemoError> {
        let at = match choice {
            RedisChoice::Private => {
                let server = PrivateRedis::start(&[]).map_err(DemoError::input)?;
                return Ok(Self {
                    at: server.addr().to_string(),
                    private: Some(server),
                });
            }
            RedisChoice::At(at) => at.clone(),
        };
        for name in KEYS {
            let key = key(name);
            let reply = connect(&at)?.say(&format!("EXISTS {key}"));
            let reply =
                reply.map_err(|error| DemoError::Input(format!("Redis at {at}: {error}")))?;
            match resp::read(&reply) {
                Value::Integer(0) => {}
                Value::Integer(_) => {
                    return Err(DemoError::Input(format!(
                        "Redis at {at} has the key {key} already and is left as it is: a sale of activity 1, SKU 1 lies there; use another Redis, or --redis auto"
                    )));
                }
                _ => {
                    return Err(DemoError::Input(format!(
                        "Redis at {at} does not answer EXISTS: does it want a password? The demo has none; use --redis auto"
                    )));
                }
            }
        }
        Ok(Self { at, private: None })
    }

    /// Host and port.
    pub fn at(&self) -> &str {
        &self.at
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.private.is_some() {
            return; // it ends with all that it holds
        }
        let keys: Vec<String> = KEYS.iter().map(|name| key(name)).collect();
        // Whatever cannot be removed ends with the history of the demo's sale.
        if let Ok(mut link) = connect(&self.at) {
            let _ = link.say(&format!("DEL {}", keys.join(" ")));
        }
    }
}

fn key(name: &str) -> String {
    format!("{{a1:s1}}:{name}")
}

fn connect(at: &str) -> Result<Link, DemoError> {
    let wrong = |what: String| DemoError::Input(format!("Redis at {at}: {what}"));
    let mut found = at
        .to_socket_addrs()
        .map_err(|error| wrong(error.to_string()))?;
    let to = found
        .next()
        .ok_or_else(|| wrong("it has no address".to_owned()))?;
    Link::connect(to, PATIENCE).map_err(|error| wrong(error.to_string()))
}

/// What all instances together let pass to the ledger, and what the budget allows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BudgetReport {
    /// Submits per second that may ask the ledger, over all instances.
    pub rate_per_s: u64,
    /// Seconds from the start of the first server to the end of the rush.
    pub seconds: f64,
    /// rate x seconds + the burst of the bucket that they share.
    pub allowed: u64,
    /// Tokens that the instances gave to their shards and did not get back.
    pub admitted: u64,
    /// Of each instance.
    pub by_instance: Vec<u64>,
}

impl BudgetReport {
    /// What of it breaks a promise, in words.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if self.admitted > self.allowed {
            broken.push(format!(
                "the instances let {} submits pass to the ledger, and the budget allows {}",
                self.admitted, self.allowed
            ));
        }
        if self.by_instance.contains(&0) {
            broken.push(format!(
                "an instance sold nothing: {:?} submits were let pass",
                self.by_instance
            ));
        }
        broken
    }
}

impl fmt::Display for BudgetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the instances let {:?} submits pass to the ledger in {:.1} s: {} of at most {} ({}/s)",
            self.by_instance, self.seconds, self.admitted, self.allowed, self.rate_per_s
        )
    }
}

/// See the module.
#[derive(Debug)]
pub struct Fleet {
    sellers: Vec<Server>,
    /// `None`: the one seller makes its orders itself.
    worker: Option<Server>,
    started: Instant,
}

impl Fleet {
    /// Starts every process of `scene` and waits until all serve. `cpu`: the only core of a single server.
    /// # Errors
    /// One does not start; with its own words.
    pub fn start(scene: &Scene, cpu: Option<usize>) -> Result<Self, DemoError> {
        let started = Instant::now();
        let worker = scene.worker.as_ref();
        let worker = worker.map(|file| Server::start("worker", file, None));
        let worker = worker.transpose()?;
        let sellers = scene.sellers.iter();
        let sellers = sellers.map(|file| Server::start("serve", file, cpu));
        Ok(Self {
            sellers: sellers.collect::<Result<_, _>>()?,
            worker,
            started,
        })
    }

    /// Where buyers come in; one or more.
    pub fn listens(&self) -> Vec<SocketAddr> {
        self.sellers.iter().map(|server| server.listen).collect()
    }

    /// Where payments go, when that is elsewhere.
    pub fn payments(&self) -> Option<SocketAddr> {
        self.worker.as_ref().map(|server| server.listen)
    }

    /// CPU time of all so far, microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.all().map(Server::cpu_us).sum()
    }

    /// The end of one that ended by itself, with its last words.
    pub fn ended(&mut self) -> Option<(ExitStatus, String)> {
        let mut all = self.sellers.iter_mut().chain(&mut self.worker);
        all.find_map(|server| server.ended().map(|status| (status, server.last_words())))
    }

    /// One request of the operator, to the process that makes the orders.
    /// # Errors
    /// No connection, or another status.
    pub fn operate(&self, path: &str, body: &str) -> Result<String, DemoError> {
        let server = self.worker.as_ref().unwrap_or(&self.sellers[0]);
        server.operate(path, body)
    }

    /// What the instances let pass until now; `rate_per_s`: all together may.
    /// # Errors
    /// An instance does not show its metrics.
    pub fn spent(&self, rate_per_s: u64) -> Result<BudgetReport, DemoError> {
        let tokens = |server: &Server| {
            let page = server.metrics()?;
            let given = sum(&page, "weir_lease_tokens_granted_total");
            Ok(given.saturating_sub(sum(&page, "weir_lease_tokens_returned_total")))
        };
        let by_instance: Vec<u64> = self.sellers.iter().map(tokens).collect::<Result<_, _>>()?;
        let took = self.started.elapsed(); // after the metrics: what was let pass was let pass before now
        let allowed = u128::from(rate_per_s) * (took.as_millis() + u128::from(BUCKET_BURST_MS));
        Ok(BudgetReport {
            rate_per_s,
            seconds: took.as_secs_f64(),
            allowed: (allowed / 1_000) as u64, // some thousand a second for some minutes
            admitted: by_instance.iter().sum(),
            by_instance,
        })
    }

    /// Ends all in order. What is wrong with their ends, if anything.
    pub fn stop(self) -> Vec<String> {
        let ends = self.sellers.into_iter().map(Server::stop);
        let mut wrong: Vec<String> = ends.flatten().collect();
        wrong.extend(self.worker.and_then(Server::stop));
        wrong
    }

    fn all(&self) -> impl Iterator<Item = &Server> {
        self.sellers.iter().chain(&self.worker)
    }
}

/// A metric of all labels together.
fn sum(page: &str, name: &str) -> u64 {
    let lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let values = lines.filter(|rest| rest.starts_with(['{', ' ']));
    let value = |rest: &str| rest.rsplit_once(' ')?.1.parse::<f64>().ok();
    values.filter_map(value).sum::<f64>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_one_name_are_summed_over_labels() {
        let page = "# HELP a b\na_total{sku=\"1\"} 3\na_total{sku=\"2\"} 4\na_total_more 9\n";
        assert_eq!(sum(page, "a_total"), 7);
        assert_eq!(sum("a_total 5\n", "a_total"), 5);
        assert_eq!(sum(page, "b_total"), 0);
    }

    #[test]
    fn a_redis_is_named_by_its_address() {
        assert_eq!(RedisChoice::read("auto"), Ok(RedisChoice::Private));
        let at = Ok(RedisChoice::At("10.0.0.1:6379".to_owned()));
        assert_eq!(RedisChoice::read("redis://10.0.0.1:6379/"), at);
        assert_eq!(RedisChoice::read("10.0.0.1:6379"), at);
        for wrong in ["", "redis", "redis://user@", "host:port"] {
            assert!(RedisChoice::read(wrong).is_err(), "{wrong}");
        }
    }
}
