//! `weir serve` with its ledger in a real Redis that is reached by TLS: it sells, shows who it is where it is asked, and
//! says of each certificate, key, port and file that is wrong what is wrong with it (issue: Redis, TLS).
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod bad_input_world;
mod redis_part;

use bad_input_world::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use redis_part::{Redis, free_port};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use weir::private_redis::cluster::{Cluster, Ports, Shape};

/// A directory of this test for certificates; removed when it is dropped.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let name = format!("redis-tls-{name}-{}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// An authority; its certificate is in `NAME.pem`.
    fn authority(&self, name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Names of authorities are told apart by it.
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(self.0.join(format!("{name}.pem")), certificate.pem()).unwrap();
        Issuer::new(params, key)
    }

    /// A certificate for `host` in `NAME.pem` and its key in `NAME.key`.
    fn leaf(&self, name: &str, host: &str, by: &Issuer<'_, KeyPair>, has_expired: bool) {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        if has_expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, by).unwrap();
        fs::write(self.0.join(format!("{name}.pem")), certificate.pem()).unwrap();
        let path = self.0.join(format!("{name}.key"));
        let _ = fs::remove_file(&path);
        fs::write(&path, key.serialize_pem()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    }

    /// Words for a `redis-server` that has `NAME`'s certificate, and also listens at `port` by TLS.
    fn words(&self, port: u16, name: &str, auth_clients: &str) -> Vec<String> {
        let words = [
            ("tls-port", port.to_string()),
            ("tls-cert-file", self.path(&format!("{name}.pem"))),
            ("tls-key-file", self.path(&format!("{name}.key"))),
            ("tls-ca-cert-file", self.path("ca.pem")),
            ("tls-auth-clients", auth_clients.to_owned()),
        ];
        let words = words
            .into_iter()
            .flat_map(|(name, value)| [format!("--{name}"), value]);
        words.collect()
    }

    /// A server as [`Self::words`] says, and its port of TLS.
    fn redis(&self, name: &str, auth_clients: &str) -> Option<(Redis, u16)> {
        let port = free_port();
        let words = self.words(port, name, auth_clients);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Some((Redis::start_with(&words)?, port))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A shop whose ledger is at `server`, with `lines` in `[redis]`.
fn shop(name: &str, server: &str, lines: &str) -> Shop {
    let shop = Shop::new(&format!("redis-tls-{name}"));
    shop.edit("# kind = \"embedded\"", "kind = \"redis\"");
    let servers = format!("servers = [\"{server}\"]\naccept_lua_holes = true\n{lines}");
    shop.set("redis", &servers);
    shop
}

/// Keys of a section and their values.
type Keys<'a> = &'a [(&'a str, &'a str)];

fn refused(shop: &Shop, wanted: &[&str]) {
    let said = shop.refusal();
    for words in wanted {
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
    assert!(!said.contains("-----"), "{said}");
}

/// Submits until it is sold and its order is made.
fn buy(wire: &mut Wire, buyer: &Buyer, user: u64) {
    let submit = buyer.submit(user);
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = wire.ask(&buyer.bytes(&submit));
        match answer.code().as_str() {
            "SECKILL_QUEUED" | "REQUEST_REPLAYED" => break,
            other => assert!(Instant::now() < end, "{other}: {answer:?}"),
        }
    }
    loop {
        let answer = wire.ask(&buyer.status(&submit));
        if answer.json()["status"] == "CREATED" {
            return;
        }
        assert!(Instant::now() < end, "{answer:?}");
    }
}

/// Where weir's connections to `redis` came in: port of each.
fn ports_of_weir(redis: &Redis) -> Vec<u16> {
    let list = redis.cli(&["CLIENT", "LIST"]);
    let ours = list.lines().filter(|line| line.contains(" name=weir "));
    let port = |line: &str| {
        let word = line.split(' ').find_map(|word| word.strip_prefix("laddr="));
        word.and_then(|addr| addr.rsplit_once(':')?.1.parse().ok())
    };
    ours.map(|line| port(line).unwrap()).collect()
}

#[test]
fn a_sale_and_its_buckets_are_reached_by_tls_each_with_its_own_settings() {
    let files = Files::new("sale");
    let ca = files.authority("ca");
    files.leaf("server", "127.0.0.1", &ca, false);
    files.leaf("weir", "weir.test", &ca, false);
    let other = Files::new("sale-buckets");
    let other_ca = other.authority("ca");
    other.leaf("server", "127.0.0.1", &other_ca, false);
    let (Some((redis, port)), Some((buckets, buckets_port))) =
        (files.redis("server", "yes"), other.redis("server", "no"))
    else {
        return;
    };
    let lines = format!(
        "tls = true\ntls_ca = \"{}\"\ntls_cert = \"{}\"\ntls_key = \"{}\"",
        files.path("ca.pem"),
        files.path("weir.pem"),
        files.path("weir.key")
    );
    let shop = shop("sale", &format!("127.0.0.1:{port}"), &lines);
    let lines = format!(
        "servers = [\"127.0.0.1:{buckets_port}\"]\naccept_lua_holes = true\ntls = true\ntls_ca = \"{}\"",
        other.path("ca.pem")
    );
    shop.set("limiter", &lines);
    shop.edit(
        "[[activity.sku]]\n",
        "[[activity.sku]]\nbudget = \"1000/s\"\n",
    );
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    for user in 1..=30 {
        buy(&mut wire, &buyer, user);
    }
    assert_eq!(redis.cli(&["HGET", "{a1:s1}:sku", "free"]), "70");
    assert_eq!(buckets.cli(&["EXISTS", "{a1:s1}:lease"]), "1");
    for (redis, port) in [(&redis, port), (&buckets, buckets_port)] {
        let ports = ports_of_weir(redis);
        assert!(
            !ports.is_empty() && ports.iter().all(|at| *at == port),
            "{ports:?}"
        );
    }
    // A connection that is cut is made again, by TLS.
    redis.cli(&["CLIENT", "KILL", "LADDR", &format!("127.0.0.1:{port}")]);
    buy(&mut wire, &buyer, 31);
    assert_eq!(redis.cli(&["HGET", "{a1:s1}:sku", "free"]), "69");
    running.stop();
}

#[test]
fn what_is_wrong_with_a_certificate_or_a_port_is_said_before_anything_starts() {
    let files = Files::new("wrong");
    let (ca, stranger) = (files.authority("ca"), files.authority("stranger"));
    files.leaf("server", "127.0.0.1", &ca, false);
    files.leaf("named", "redis.test", &ca, false);
    files.leaf("old", "127.0.0.1", &ca, true);
    files.leaf("weir", "weir.test", &stranger, false);
    let Some((redis, port)) = files.redis("server", "no") else {
        return;
    };
    let trusting = format!("tls = true\ntls_ca = \"{}\"", files.path("ca.pem"));
    let at = |port: u16| format!("127.0.0.1:{port}");
    let server = format!("Redis at {}: ", at(port));
    // An authority that has signed nothing here; and those of the system, or none in it.
    let lines = format!("tls = true\ntls_ca = \"{}\"", files.path("stranger.pem"));
    let untrusted = shop("untrusted", &at(port), &lines);
    refused(
        &untrusted,
        &[&server, "none of our authorities", "tls_ca", "[redis]"],
    );
    // A plain port with TLS, and a port of TLS without.
    let plain = shop("plain", &at(redis.port), &trusting);
    refused(&plain, &["does not speak TLS", "set tls = false"]);
    let without = shop("without", &at(port), "");
    refused(&without, &[&server, "set redis.tls = true"]);
    // The buckets' own keys.
    let buckets = shop("buckets", &at(port), &trusting);
    buckets.set("limiter", &format!("servers = [\"{}\"]\n{lines}", at(port)));
    refused(&buckets, &["none of our authorities", "[limiter]"]);
    // Another host's name; a certificate of the past.
    let Some((_named, port)) = files.redis("named", "no") else {
        return;
    };
    let named = shop("named", &at(port), &trusting);
    refused(&named, &["made out to another host", "subjectAltName"]);
    let Some((_old, port)) = files.redis("old", "no") else {
        return;
    };
    let old = shop("old", &at(port), &trusting);
    refused(&old, &["has expired"]);
    // A server that wants to know who we are, and one that does not know who signed it.
    let Some((_asking, port)) = files.redis("server", "yes") else {
        return;
    };
    let nobody = shop("nobody", &at(port), &trusting);
    refused(
        &nobody,
        &["wants a certificate of weir", "tls_cert and tls_key"],
    );
    let lines = format!(
        "{trusting}\ntls_cert = \"{}\"\ntls_key = \"{}\"",
        files.path("weir.pem"),
        files.path("weir.key")
    );
    let unknown = shop("unknown", &at(port), &lines);
    refused(
        &unknown,
        &["did not take the certificate of weir", "tls_cert"],
    );
}

#[test]
fn files_that_are_missing_or_hold_something_else_are_named_with_their_keys() {
    let files = Files::new("files");
    let ca = files.authority("ca");
    files.leaf("weir", "weir.test", &ca, false);
    files.leaf("other", "weir.test", &ca, false);
    fs::write(files.0.join("empty.pem"), "nothing\n").unwrap();
    let shop = shop("files", "127.0.0.1:1", "");
    let before = fs::read_to_string(shop.toml()).unwrap();
    let path = |name: &str| files.path(name);
    let (weir, key) = (path("weir.pem"), path("weir.key"));
    let open = path("open.key");
    fs::copy(&key, &open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let cases: [(Keys<'_>, &[&str]); 9] = [
        (
            &[("tls_ca", &path("no.pem"))],
            &["redis.tls_ca", "no.pem", "cannot be read"],
        ),
        (
            &[("tls_ca", &path("empty.pem"))],
            &["redis.tls_ca", "empty.pem", "holds no certificate"],
        ),
        (&[("tls_cert", &weir)], &["redis.tls_cert", "needs tls_key"]),
        (&[("tls_key", &key)], &["redis.tls_key", "needs tls_cert"]),
        (
            &[("tls_cert", &path("empty.pem")), ("tls_key", &key)],
            &["redis.tls_cert", "empty.pem", "BEGIN CERTIFICATE"],
        ),
        (
            &[("tls_cert", &weir), ("tls_key", &open)],
            &["redis.tls_key", "chmod 400"],
        ),
        (
            &[("tls_cert", &weir), ("tls_key", &path("no.key"))],
            &["redis.tls_key", "no.key", "does not exist"],
        ),
        (
            &[("tls_cert", &weir), ("tls_key", &path("other.key"))],
            &["redis.tls_key", "not the key of the certificate"],
        ),
        (
            &[("tls", "false"), ("tls_ca", &path("ca.pem"))],
            &["redis.tls_ca", "needs tls = true"],
        ),
    ];
    for (keys, wanted) in cases {
        fs::write(shop.toml(), &before).unwrap();
        let is_off = keys[0].0 == "tls";
        let has_ca = keys.iter().any(|(name, _)| *name == "tls_ca");
        let mut lines = format!("tls = {}\n", !is_off);
        if !has_ca {
            lines += &format!("tls_ca = \"{}\"\n", path("ca.pem"));
        }
        for (name, value) in keys.iter().filter(|(name, _)| *name != "tls") {
            lines += &format!("{name} = \"{value}\"\n");
        }
        shop.set("redis", &lines);
        refused(&shop, wanted);
    }
}

#[test]
fn nothing_is_said_to_a_stranger_that_takes_the_servers_place_and_the_right_one_sells_on() {
    let files = Files::new("renewed");
    let (ca, stranger) = (files.authority("ca"), files.authority("stranger"));
    files.leaf("server", "127.0.0.1", &ca, false);
    let port = free_port();
    let words = files.words(port, "server", "no");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(mut redis) = Redis::start_with(&words) else {
        return;
    };
    let lines = format!(
        "tls = true\ntls_ca = \"{}\"\nfreeze = \"200ms\"",
        files.path("ca.pem")
    );
    let shop = shop("renewed", &format!("127.0.0.1:{port}"), &lines);
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    buy(&mut wire, &buyer, 1);
    files.leaf("server", "127.0.0.1", &stranger, false);
    redis.begin_anew();
    running.until_ready_is(503);
    // It is there, and no word is said to it beyond the handshake.
    let refused = wire.ask(&buyer.bytes(&buyer.submit(2)));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(ports_of_weir(&redis), [0_u16; 0]);
    files.leaf("server", "127.0.0.1", &ca, false);
    redis.begin_anew();
    running.until_ready_is(200);
    buy(&mut running.wire(), &buyer, 2);
    running.stop();
}

/// A cluster whose nodes have these certificates, and its ports of TLS. With `tells` they tell each other those ports.
fn cluster(files: &Files, leaves: [&str; 3], tells: bool) -> (Cluster, Vec<u16>) {
    let shape = Shape {
        masters: 3,
        replicas: 0,
        node_timeout_ms: 1_000,
        options: &[],
        place: None,
    };
    let mut tls_ports = Vec::new();
    let cluster = Cluster::start_behind(shape, |index, ports| {
        tls_ports.truncate(index); // of a try that failed
        let tls_port = free_port();
        tls_ports.push(tls_port);
        let mut words = files.words(tls_port, leaves[index], "no");
        if !tells {
            return Ok((ports, words));
        }
        words.extend(["--tls-cluster", "yes"].map(str::to_owned));
        let found_at = Ports {
            clients: tls_port,
            ..ports
        };
        Ok((found_at, words))
    });
    (cluster.unwrap(), tls_ports)
}

fn lines_of_cluster(files: &Files) -> String {
    format!(
        "cluster = true\ntls = true\ntls_ca = \"{}\"",
        files.path("ca.pem")
    )
}

#[test]
fn what_a_cluster_does_not_tell_or_cannot_show_is_said_before_anything_starts() {
    if !redis_part::is_here() {
        return;
    }
    let files = Files::new("cluster-wrong");
    let ca = files.authority("ca");
    files.leaf("server", "127.0.0.1", &ca, false);
    files.leaf("other", "redis.example", &ca, false);
    let lines = lines_of_cluster(&files);
    for (leaves, tells, wanted) in [
        (["server"; 3], false, "tls-cluster yes"),
        (
            ["server", "other", "server"],
            true,
            "made out to another host",
        ),
    ] {
        let (cluster, ports) = cluster(&files, leaves, tells);
        let shop = shop("wrong", &format!("127.0.0.1:{}", ports[0]), &lines);
        refused(&shop, &[wanted]);
        drop(cluster);
    }
}

#[test]
fn nodes_of_a_cluster_are_verified_by_the_addresses_that_it_announces() {
    if !redis_part::is_here() {
        return;
    }
    let files = Files::new("cluster");
    let ca = files.authority("ca");
    files.leaf("server", "127.0.0.1", &ca, false);
    let (cluster, tls_ports) = cluster(&files, ["server"; 3], true);
    // One that does not serve the SKU's slot: the other's name comes from its map.
    let serves = |node: &weir::private_redis::Server| {
        let mut link = node.connect().unwrap();
        link.text("GET {a1:s1}:nothing")
            .is_err_and(|error| !error.0.contains("MOVED"))
    };
    let other = cluster.nodes.iter().position(|node| !serves(node)).unwrap();
    let shop = shop(
        "cluster",
        &format!("127.0.0.1:{}", tls_ports[other]),
        &lines_of_cluster(&files),
    );
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    for user in 1..=5 {
        buy(&mut running.wire(), &buyer, user);
    }
    running.stop();
    // What looks at the books beside the sale goes the same way.
    let mut command = Command::new(weir());
    command.args(["reconcile", "--config"]).arg(shop.toml());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
