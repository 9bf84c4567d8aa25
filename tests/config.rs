//! The configuration and its commands as an operator meets them: the built program, real files, real messages.
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir::config::{self, Footprint, Host};
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::ShardId;
use weir_core::limit::rule::Kind;
use weir_core::time::WallMs;
use weir_proto::ids::UserId;
use weir_proto::ticket::{Expect, authenticate, verify};

/// A directory of its own for each test, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("weir-config-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// With a starter made by `weir init`.
    fn with_starter(name: &str) -> Self {
        let place = Self::new(name);
        let output = weir(&["init", place.path("shop").to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn toml(&self) -> PathBuf {
        self.path("shop/weir.toml")
    }

    /// Replaces `from` by `to` in the starter; `from` must be there.
    fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.toml()).unwrap();
        assert!(text.contains(from), "the starter has {from:?}");
        fs::write(self.toml(), text.replacen(from, to, 1)).unwrap();
    }

    fn check(&self) -> Output {
        weir(&["config", "check", "--config", self.toml().to_str().unwrap()])
    }

    /// What `config check` complains about; asserts exit code 2 and the prefix.
    fn complaint(&self) -> String {
        complaint(&self.check())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .output()
        .unwrap()
}

fn complaint(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("weir: "), "{text}");
    assert!(
        output.stdout.is_empty(),
        "a failure prints nothing on standard output"
    );
    text
}

fn host() -> Host {
    Host {
        cpus_count: 3,
        memory_bytes: None,
        descriptors_max: None,
        wall_ms: 1_796_040_000_000,
    }
}

fn line_of(path: &Path, part: &str) -> usize {
    let text = fs::read_to_string(path).unwrap();
    text.lines().position(|line| line.contains(part)).unwrap() + 1
}

#[test]
fn the_starter_checks_clean_and_means_what_it_says() {
    let place = Place::with_starter("starter");
    let output = place.check();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let plan = config::load(&place.toml(), &host()).unwrap();
    assert_eq!(plan.shards_count, 2, "auto leaves one of three cores");
    let [activity] = &plan.sale.activities[..] else {
        panic!("one activity")
    };
    assert_eq!(activity.closes_at.since(activity.opens_at), 24 * 3_600_000);
    assert_eq!(activity.skus[0].first_stock, 100);
    assert_eq!(
        (
            activity.skus[0].unit_price.minor,
            &activity.skus[0].unit_price.currency
        ),
        (1990, b"CNY")
    );
    let now = Host::read().wall_ms;
    assert!(
        activity.opens_at <= WallMs(now) && WallMs(now) < activity.closes_at,
        "open now"
    );
    assert_eq!(plan.store.ledger(), place.path("shop/data/ledger.sqlite"));
    assert!(plan.shard.payment_key.is_some());
    for key in ["keys/ticket-1.key", "keys/payment.key"] {
        let mode = fs::metadata(place.path("shop").join(key))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o400, "{key}");
    }
}

#[test]
fn limits_are_divided_among_shards_exactly() {
    let place = Place::with_starter("split");
    place.edit("# shards = \"auto\"", "shards = 3");
    place.edit("# user_rate = \"2/s\"", "user_rate = \"0.5/s\"");
    place.edit("# user_burst = 3", "user_burst = 7");
    let plan = config::load(&place.toml(), &host()).unwrap();
    let shard = plan.shard_config(ShardId(2), 5, 9);
    assert_eq!(
        (shard.shard, shard.shard_boot, shard.seed),
        (ShardId(2), 5, 9)
    );
    let rate = shard.user.rule.policy().rate();
    assert_eq!(
        rate,
        Rate {
            tokens: 1,
            per_ns: 6_000_000_000
        },
        "0.5/s over 3 shards"
    );
    assert_eq!(shard.user.rule.policy().capacity(), 7);
}

#[test]
fn a_dimension_names_its_kind_of_rule_and_its_shadow_and_their_memory_counts() {
    let place = Place::with_starter("kinds");
    let footprint = |place: &Place| {
        let plan = config::load(&place.toml(), &host()).unwrap();
        (Footprint::of(&plan).shard_bytes, plan)
    };
    let (plain, plan) = footprint(&place);
    assert_eq!(plan.shard.user.rule.kind(), Kind::Gcra, "the default");
    assert_eq!(plan.shard.user.shadow, None);
    let slots = plan.shard.user.slots as u64;

    place.edit("[limits]", "[limits]\nuser_policy = \"sliding-log\"");
    let (with_log, plan) = footprint(&place);
    assert_eq!(plan.shard.user.rule.kind(), Kind::SlidingLog);
    assert_eq!(
        with_log - plain,
        slots * 8 * (1 + 3),
        "a word and one per token of the burst"
    );

    place.edit("[limits]", "[limits]\nuser_shadow_burst = 2");
    let (with_shadow, plan) = footprint(&place);
    let shadow = plan.shard.user.shadow.unwrap();
    assert_eq!(
        shadow.kind(),
        Kind::SlidingLog,
        "what is not said is as in the live limit"
    );
    assert_eq!(shadow.policy().capacity(), 2);
    assert_eq!(shadow.policy().rate(), plan.shard.user.rule.policy().rate());
    assert!(with_shadow - with_log >= slots * (16 + 8 * 3));

    place.edit(
        "[limits]",
        "[limits]\nip_policy = \"sliding-log\"\ndevice_policy = \"bucket\"",
    );
    let text = place.complaint();
    for part in [
        "limits.ip_policy",
        "at most 64; use a smaller burst, or sliding-counter",
        "limits.device_policy",
        "\"leaky-bucket\"",
    ] {
        assert!(text.contains(part), "{part} is in {text}");
    }
}

#[test]
fn init_never_touches_what_is_there() {
    let place = Place::with_starter("again");
    let before = fs::read(place.path("shop/keys/ticket-1.key")).unwrap();
    let again = weir(&["init", place.path("shop").to_str().unwrap()]);
    assert!(complaint(&again).contains("is not empty"));
    let key = place.path("shop/keys/ticket-1.key");
    assert!(complaint(&weir(&["keygen", key.to_str().unwrap()])).contains("exists already"));
    assert_eq!(fs::read(&key).unwrap(), before);
    assert!(complaint(&weir(&["init", key.to_str().unwrap()])).contains("is a file"));
    fs::create_dir(place.path("empty")).unwrap();
    assert!(
        weir(&["init", place.path("empty").to_str().unwrap()])
            .status
            .success()
    );
}

#[test]
fn unknown_keys_name_line_and_nearest() {
    let place = Place::with_starter("unknown");
    place.edit(
        "# listen = \"127.0.0.1:8080\"",
        "lisen = \"127.0.0.1:8080\"",
    );
    place.edit("stock = 100", "stok = 100\nopens_at = 7");
    place.edit("[limits]", "[limit]");
    let text = place.complaint();
    let at = |part| format!("line {}: ", line_of(&place.toml(), part));
    for expected in [
        format!(
            "{}server.lisen: unknown key; did you mean listen?",
            at("lisen =")
        ),
        format!(
            "{}activity[0].sku[0].stok: unknown key; did you mean stock?",
            at("stok =")
        ),
        "activity[0].sku[0].opens_at: unknown key here; opens_at belongs in [activity]".to_owned(),
        "activity[0].sku[0].stock: is missing".to_owned(),
        format!(
            "{}limit: unknown section; did you mean limits?",
            at("[limit]")
        ),
    ] {
        assert!(text.contains(&expected), "{expected}\nin\n{text}");
    }
    assert!(text.contains("5 problems"), "all in one go:\n{text}");
}

#[test]
fn signed_requests_are_off_until_a_key_is_named() {
    let place = Place::with_starter("signed");
    let plan = || config::load(&place.toml(), &host()).unwrap();
    assert!(plan().shard.signature.is_none());
    for name in ["request-1.key", "request-2.key"] {
        weir::keys::create(&place.path("shop/keys").join(name)).unwrap();
    }
    place.edit(
        "payment = \"keys/payment.key\"",
        "request = [\"keys/request-1.key\", \"keys/request-2.key\"]",
    );
    assert_eq!(plan().shard.signature.unwrap().skew_ms, 30_000);
    place.edit("[limits]", "[limits]\nsignature_skew = \"10s\"");
    let signature = plan().shard.signature.unwrap();
    assert_eq!(signature.skew_ms, 10_000);
    let shown = format!("{signature:?}");
    assert!(
        shown.contains("request-1") && shown.contains("request-2"),
        "{shown}"
    );
}

#[test]
fn a_problem_is_one_line_whatever_a_quoted_key_holds() {
    let text = "[\"a\\nb\"]\n[server]\n\"li\\u001bsten\" = 1\n";
    let problems = config::read(text, Path::new("weir.toml"), &host()).unwrap_err();
    let shown: Vec<String> = problems.list.iter().map(ToString::to_string).collect();
    assert!(
        shown[0].starts_with("line 1: a\\nb: unknown section"),
        "{shown:?}"
    );
    assert!(
        shown
            .iter()
            .any(|line| line.contains("server.li\\u{1b}sten: unknown key")),
        "{shown:?}"
    );
    assert!(!shown.concat().chars().any(char::is_control), "{shown:?}");
}

/// Each: what to change in the starter, and what the one message must say.
const BAD: &[(&str, &str, &[&str])] = &[
    ("[server]", "[server", &["not valid TOML", "line "]),
    (
        "[server]",
        "[server]\nconns_max = 16\nconns_max = 17",
        &["not valid TOML", "line "],
    ),
    (
        "[server]",
        "[server]\nconns_max = 15",
        &["server.conns_max", "16 to 65536", "15"],
    ),
    (
        "[limits]",
        "[limits]\nban_first = \"1ms\"",
        &["limits.ban_first", "from 1s"],
    ),
    (
        "[limits]",
        "[limits]\nban_max = \"5s\"",
        &["limits.ban_max", "shorter than ban_first"],
    ),
    (
        "[limits]",
        "[limits]\nsku_inflight_min = 8192\ninflight_max = 64",
        &["limits.sku_inflight_min", "more than the 64"],
    ),
    (
        "[deny]",
        "[deny]\nnetworks = [\"10.0.0.1/8\"]",
        &["deny.networks", "did you mean 10.0.0.0/8"],
    ),
    (
        "[deny]",
        "[deny]\nusers = [\"42\", \"alice\"]",
        &["deny.users", "entry 2", "an id of digits"],
    ),
    (
        "[server]",
        "[server]\nconns_max = -1",
        &["server.conns_max", "-1"],
    ),
    (
        "[server]",
        "[server]\nconns_max = \"many\"",
        &["server.conns_max", "whole number"],
    ),
    (
        "[server]",
        "[server]\nshards = 0",
        &["server.shards", "\"auto\" or a whole number from 1 to 64"],
    ),
    (
        "[server]",
        "[server]\ndriver = \"kqueue\"",
        &["server.driver", "\"auto\"", "\"uring\"", "\"epoll\""],
    ),
    (
        "[server]",
        "[server]\nlisten = \"localhost:80\"",
        &["server.listen", "127.0.0.1:8080"],
    ),
    (
        "[server]",
        "[server]\nlisten = \"127.0.0.1:9090\"",
        &["ops.listen", "different ports"],
    ),
    (
        "[server]",
        "[server]\nhead_timeout = \"999ms\"",
        &["server.head_timeout", "1s to 9s"],
    ),
    (
        "[server]",
        "[server]\nidle_timeout = 5",
        &["server.idle_timeout", "a duration"],
    ),
    (
        "[server]",
        "[server]\ntrusted = [\"10.0.0.1/8\"]",
        &["server.trusted", "did you mean 10.0.0.0/8"],
    ),
    (
        "[server]",
        "[server]\norigins = [\"https://shop.example/\"]",
        &["server.origins", "no slash"],
    ),
    (
        "[server]",
        "[server]\nclient_address = \"forwarded\"",
        &["server.trusted", "is empty"],
    ),
    (
        "[server]",
        "[server]\ndata_dir = \"/proc/weir\"",
        &["server.data_dir", "/proc", "another path"],
    ),
    (
        "[server]",
        "[server]\ndata_dir = \"weir.toml\"",
        &["server.data_dir", "not a directory"],
    ),
    (
        "[ops]",
        "[ops]\nlisten = \"0.0.0.0:9090\"",
        &["ops.listen", "token_file"],
    ),
    (
        "[ops]",
        "[ops]\ntoken_file = \"none\"",
        &["ops.token_file", "does not exist", "weir keygen"],
    ),
    (
        "[limits]",
        "[limits]\nip_rate = \"5/w\"",
        &["limits.ip_rate", "is not a rate", "0.5/s"],
    ),
    (
        "[limits]",
        "[limits]\nip_rate = \"0/s\"",
        &["limits.ip_rate", "above 0"],
    ),
    (
        "[limits]",
        "[limits]\nip_rate = \"3000001/s\"",
        &["limits.ip_rate", "ceiling"],
    ),
    (
        "[limits]",
        "[limits]\nip_burst = 0",
        &["limits.ip_burst", "1 to 3000000"],
    ),
    (
        "[limits]",
        "[limits]\nuser_rate = \"0.0001/d\"\nuser_burst = 3000000",
        &["limits.user_rate", "user_burst"],
    ),
    (
        "[limits]",
        "[limits]\nrequest_budget = \"2s\"",
        &["limits.request_budget", "1900ms"],
    ),
    (
        "[limits]",
        "[limits]\ninflight_max = 8192\nstatus_inflight_max = 8192",
        &["limits.inflight_max", "mailbox"],
    ),
    (
        "[log]",
        "[log]\nadmitted_every = true",
        &["log.admitted_every", "true"],
    ),
    (
        "ticket = [\"keys/ticket-1.key\"]",
        "ticket = []",
        &["keys.ticket", "1 to 2 key files"],
    ),
    (
        "ticket = [\"keys/ticket-1.key\"]",
        "",
        &["keys.ticket", "is missing", "Example"],
    ),
    (
        "ticket = [\"keys/ticket-1.key\"]",
        "ticket = [\"keys/none.key\"]",
        &["keys.ticket", "none.key does not exist", "weir keygen"],
    ),
    (
        "ticket = [\"keys/ticket-1.key\"]",
        "ticket = [\"a=keys/ticket-1.key\", \"a=keys/ticket-1.key\"]",
        &["keys.ticket", "same id"],
    ),
    (
        "payment = \"keys/payment.key\"",
        "payment = \"keys/ticket-1.key\"",
        &["keys.payment", "of its own"],
    ),
    (
        "payment = \"keys/payment.key\"",
        "payment = \"keys/payment.key\"\nrequest = [\"keys/ticket-1.key\"]",
        &["keys.request", "a ticket key", "of its own"],
    ),
    (
        "payment = \"keys/payment.key\"",
        "payment = \"keys/payment.key\"\nrequest = [\"keys/payment.key\"]",
        &["keys.request", "the payment key", "of its own"],
    ),
    (
        "payment = \"keys/payment.key\"",
        "payment = \"keys/payment.key\"\nrequest = []",
        &["keys.request", "1 to 2 key files"],
    ),
    (
        "payment = \"keys/payment.key\"",
        "payment = \"keys/payment.key\"\nrequest = [\"keys/no.key\"]",
        &["keys.request", "does not exist", "weir keygen"],
    ),
    (
        "[limits]",
        "[limits]\nsignature_skew = \"6m\"",
        &["limits.signature_skew", "1s to 5m"],
    ),
    (
        "payment = \"keys/payment.key\"",
        "payment = \"keys\"",
        &["keys.payment", "not an ordinary file"],
    ),
    (
        "id = 1",
        "id = 0",
        &["activity[0].id", "1 to 9223372036854775807"],
    ),
    (
        "path_id = \"",
        "path_id = \"a b",
        &["activity[0].path_id", "A-Z"],
    ),
    (
        "opens_at = ",
        "opens_at = 2999-01-01T00:00:00Z #",
        &["activity[0].closes_at", "later than opens_at"],
    ),
    (
        "opens_at = ",
        "opens_at = 2026-11-30T20:00:00 #",
        &["activity[0].opens_at", "offset"],
    ),
    (
        "opens_at = ",
        "opens_at = \"soon\" #",
        &["activity[0].opens_at", "RFC 3339"],
    ),
    (
        "device_salt = \"",
        "device_salt = \"zz",
        &["activity[0].device_salt", "64 hexadecimal", "not shown"],
    ),
    (
        "[[activity.sku]]\n",
        "[activity.sku]\n",
        &["activity[0].sku", "[[activity.sku]]"],
    ),
    (
        "stock = 100",
        "stock = 1048577",
        &["activity[0].sku[0].stock", "0 to 1048576"],
    ),
    (
        "price = \"19.90 CNY\"",
        "price = 19.90",
        &["activity[0].sku[0].price", "19.90 CNY"],
    ),
    (
        "price = \"19.90 CNY\"",
        "price = \"19.901 CNY\"",
        &["activity[0].sku[0].price", "3 decimals"],
    ),
    (
        "price = \"19.90 CNY\"",
        "price = \"92233720368547758 CNY\"\nquantity_max = 2",
        &["activity[0].sku[0].price", "quantity_max"],
    ),
    (
        "# budget = \"40000/s\"",
        "budget = \"fast\"",
        &["activity[0].sku[0].budget", "is not a rate"],
    ),
];

#[test]
fn every_bad_file_gets_one_clear_message_and_exit_code_2() {
    let place = Place::with_starter("bad");
    let good = fs::read_to_string(place.toml()).unwrap();
    for (from, to, expected) in BAD {
        fs::write(place.toml(), &good).unwrap();
        place.edit(from, to);
        let output = place.check();
        assert_eq!(output.status.code(), Some(2), "{to}");
        let text = complaint(&output);
        for part in *expected {
            assert!(text.contains(part), "{to}: {part:?} is not in\n{text}");
        }
        let is_parse = expected[0] == "not valid TOML" || to.contains("[activity.sku]");
        assert!(
            is_parse || text.lines().count() == 1,
            "one message for {to}:\n{text}"
        );
    }
}

#[test]
fn problems_of_several_sections_come_together() {
    let place = Place::with_starter("together");
    place.edit("[server]", "[server]\nconns_max = 1");
    place.edit("[limits]", "[limits]\nip_rate = \"x\"");
    place.edit(
        "ticket = [\"keys/ticket-1.key\"]",
        "ticket = [\"keys/none.key\"]",
    );
    place.edit("opens_at = ", "opens_at = 2999-01-01T00:00:00Z #");
    let text = place.complaint();
    for key in [
        "4 problems",
        "server.conns_max",
        "limits.ip_rate",
        "keys.ticket",
        "closes_at",
    ] {
        assert!(text.contains(key), "{key} is not in\n{text}");
    }
}

#[test]
fn ids_and_paths_are_unique_among_activities() {
    let place = Place::with_starter("unique");
    let more = "\n[[activity]]\nid = 1\npath_id = \"other\"\nopens_at = 0\ncloses_at = 1\n[[activity.sku]]\nid = 5\nstock = 1\nprice = \"1 CNY\"\n[[activity.sku]]\nid = 5\nstock = 1\nprice = \"1 CNY\"\n";
    let text = fs::read_to_string(place.toml()).unwrap() + more;
    fs::write(place.toml(), text).unwrap();
    let text = place.complaint();
    assert!(
        text.contains("activity[1].id: 1 is an earlier activity's id"),
        "{text}"
    );
    assert!(
        text.contains("activity[1].sku[1].id: 5 is an earlier SKU's id"),
        "{text}"
    );
}

#[test]
fn key_files_are_read_with_suspicion_and_never_shown() {
    let place = Place::with_starter("keys");
    let key = place.path("shop/keys/ticket-1.key");
    let original = fs::read_to_string(&key).unwrap();
    for mode in [0o440, 0o404, 0o644, 0o600] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        if mode == 0o600 {
            assert!(place.check().status.success());
            continue;
        }
        let text = place.complaint();
        assert!(
            text.contains(&format!("mode {mode:04o}")) && text.contains("chmod 400"),
            "{text}"
        );
        assert!(!text.contains(original.trim()), "the secret is in {text}");
    }
    let canary = "c0ffee0ddba11deadbeefc0ffee0ddba11dead";
    let cases: [(Vec<u8>, &str); 6] = [
        (canary.as_bytes().to_vec(), "32 to 64 bytes"),
        (format!("{canary}{canary}zz").into_bytes(), "32 to 64 bytes"),
        ([canary.as_bytes(), &[0xff, 0xfe]].concat(), "not text"),
        (vec![b'0'; 64], "one byte over and over"),
        (Vec::new(), "32 to 64 bytes"),
        (canary.repeat(200).into_bytes(), "more than 4096 bytes"),
    ];
    for (content, expected) in cases {
        fs::write(&key, &content).unwrap();
        let text = place.complaint();
        assert!(text.contains(expected), "{expected} is not in {text}");
        assert!(!text.contains("c0ffee"), "the content is in {text}");
    }
}

#[test]
fn no_secret_is_in_debug_or_output() {
    let place = Place::with_starter("secrets");
    let canary = "5ec7e7ca0a7a5ec7e7ca0a7a5ec7e7ca0a7a5ec7e7ca0a7a5ec7e7ca0a7a1234";
    for name in ["ticket-1.key", "payment.key", "ops.token"] {
        let path = place.path("shop/keys").join(name);
        let _ = fs::remove_file(&path);
        let content = if name == "payment.key" {
            canary.replace('5', "6")
        } else {
            canary.to_owned()
        };
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    }
    place.edit("[ops]", "[ops]\ntoken_file = \"keys/ops.token\"");
    let plan = config::load(&place.toml(), &host()).unwrap();
    assert!(plan.ops.token.as_ref().unwrap().matches(canary.as_bytes()));
    assert!(!plan.ops.token.as_ref().unwrap().matches(b"other"));
    let toml = place.toml();
    let toml = toml.to_str().unwrap();
    place.edit("device_salt = \"", "device_salt = \"5ec7e7ca0a7a");
    let shown = [
        format!("{plan:?} {:?} {:?}", plan.ops, plan.keys()),
        format!("{:?}", config::load(&place.toml(), &host()).unwrap_err()),
        format!("{:?}", weir(&["config", "check", "--config", toml])),
        format!("{:?}", weir(&["ticket", "--config", toml, "--user", "7"])),
    ];
    for text in shown {
        assert!(
            !text.contains("5ec7e7ca") && !text.contains("6ec7e7ca"),
            "{text}"
        );
    }
}

#[test]
fn tickets_of_both_forms_are_good_for_what_they_say() {
    let place = Place::with_starter("ticket");
    let toml = place.toml();
    let toml = toml.to_str().unwrap();
    let plan = config::load(&place.toml(), &Host::read()).unwrap();
    let activity = &plan.sale.activities[0];
    for form in ["compact", "jws"] {
        let output = weir(&[
            "ticket",
            "--config",
            toml,
            "--activity",
            "1",
            "--sku",
            "1",
            "--user",
            "42",
            "--device",
            "phone",
            "--ttl",
            "10m",
            "--form",
            form,
        ]);
        let ticket = String::from_utf8(output.stdout).unwrap();
        let ticket = ticket.trim_end().as_bytes();
        let claims = authenticate(ticket, plan.keys()).unwrap();
        assert_eq!(claims.expires_at_ms - claims.not_before_ms, 600_000);
        let expect = |device| Expect {
            activity: activity.id,
            sku: activity.skus[0].id,
            user: UserId(42),
            activity_version: activity.version,
            path_id: activity.path_id,
            device,
            device_salt: &activity.device_salt,
            wall_ms: Host::read().wall_ms,
            leeway_ms: 0,
        };
        assert!(
            verify(ticket, plan.keys(), &expect(Some(b"phone"))).is_ok(),
            "{form}"
        );
        assert!(
            verify(ticket, plan.keys(), &expect(Some(b"other"))).is_err(),
            "{form}"
        );
    }
    let bad: [(&[&str], &str); 7] = [
        (&["--user", "0"], "9223372036854775807"),
        (&["--user", "1", "--ttl", "2h"], "from 1ms to 1h"),
        (&["--user", "1", "--ttl", "5"], "such as 500ms"),
        (&["--user", "1", "--form", "paper"], "compact or jws"),
        (
            &["--user", "1", "--activity", "9"],
            "9 is none of them; the file has activities 1",
        ),
        (
            &["--user", "1", "--sku", "9"],
            "9 is none of them; the activity has SKUs 1",
        ),
        (&["--user", "1", "--device", ""], "1 to 128 bytes"),
    ];
    for (args, expected) in bad {
        let text = complaint(&weir(&[&["ticket", "--config", toml], args].concat()));
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

#[test]
fn the_command_line_helps_a_stranger() {
    for args in [
        &["--help"][..],
        &["help", "init"],
        &["ticket", "--help"],
        &["--version"],
    ] {
        let output = weir(args);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{args:?}"
        );
    }
    let wrong = complaint(&weir(&["confg"]));
    assert!(wrong.contains("config"), "suggests: {wrong}");
    assert!(complaint(&weir(&["config", "check"])).contains("--config"));
    assert!(complaint(&weir(&["config", "explain", "lisen"])).contains("server.listen"));
    let missing = complaint(&weir(&[
        "config",
        "check",
        "--config",
        "/nowhere/weir.toml",
    ]));
    assert!(
        missing.contains("does not exist") && missing.contains("weir init"),
        "{missing}"
    );
    assert!(
        complaint(&weir(&["config", "check", "--config", "/tmp"])).contains("not an ordinary file")
    );
    let all = String::from_utf8(weir(&["config", "explain"]).stdout).unwrap();
    assert!(all.contains("server.conns_max   (default 4096)") && all.contains("[[activity.sku]]"));
}

#[test]
fn a_plan_that_does_not_fit_the_machine_says_what_to_lower() {
    let place = Place::with_starter("fit");
    let plan = config::load(&place.toml(), &host()).unwrap();
    assert_eq!(config::check(&plan, &host()), []);
    let small = Host {
        memory_bytes: Some(64 << 20),
        descriptors_max: Some(1024),
        wall_ms: 0,
        ..host()
    };
    let problems = config::check(&plan, &small);
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(text.len(), 3, "{text:?}");
    assert!(
        text[0].contains("64 MiB are available") && text[0].contains("lower server.conns_max"),
        "{text:?}"
    );
    assert!(
        text[1].contains("the limit is 1024") && text[1].contains("conns_max to 314"),
        "{text:?}"
    );
    assert!(text[2].contains("clock"), "{text:?}");
}

#[test]
fn with_direct_descriptors_the_limit_of_open_files_bounds_one_shard_and_without_them_all() {
    let place = Place::with_starter("direct");
    let toml = place.toml();
    let text = std::fs::read_to_string(&toml).unwrap();
    std::fs::write(&toml, text.replace("\n[io]\n", "\n[io]\ndirect = true\n")).unwrap();
    let mut plan = config::load(&toml, &host()).unwrap();
    assert!(plan.direct);
    let limit = |descriptors_max| Host {
        descriptors_max: Some(descriptors_max),
        ..host()
    };
    (plan.shards_count, plan.shard.conns_max) = (8, 4096);
    assert_eq!(config::check(&plan, &limit(4160)), []);
    let problems = config::check(&plan, &limit(4159));
    assert!(
        problems[0].to_string().contains("lower conns_max to 4095"),
        "{problems:?}"
    );
    let (bounded, note) = plan.without_direct(4160);
    assert!(!bounded.direct && bounded.descriptors_max() <= 4160);
    assert!(
        bounded.shard.conns_max == 370 && note.contains("370 on each of 8"),
        "{note}"
    );
    let (bounded, _) = plan.without_direct(1 << 20);
    assert_eq!(bounded.shard.conns_max, 4096);
    let said = weir(&["config", "check", "--config", toml.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("in a table of 4160 places"), "{said}");
}

#[test]
fn reconcile_and_export_read_the_files_of_a_stopped_server() {
    let place = Place::with_starter("books");
    let toml = place.toml();
    let toml = toml.to_str().unwrap();
    let reconcile = || weir(&["reconcile", "--config", toml]);
    let export = || weir(&["export", "orders", "--config", toml, "--csv"]);
    assert!(complaint(&reconcile()).contains("ledger.sqlite"));
    assert!(complaint(&export()).contains("orders.sqlite"));

    let dir = place.path("shop/data");
    let server = weir::store::LedgerStore::open(&weir::store::StoreConfig::new(&dir)).unwrap();
    let orders = weir::orders::schema::open(&dir.join("orders.sqlite")).unwrap();
    assert!(
        complaint(&reconcile()).contains("stop it first"),
        "while a server holds the directory"
    );
    drop(server);
    let fine = reconcile();
    let text = String::from_utf8_lossy(&fine.stdout).into_owned();
    assert!(
        fine.status.success() && text.contains("The books balance."),
        "{fine:?}"
    );

    let csv = export();
    assert!(csv.status.success());
    assert!(
        csv.stdout
            .starts_with(b"reservation_id,activity_id,sku_id,")
    );

    orders
        .execute("INSERT INTO stock VALUES (1, 1, 5, 2)", [])
        .unwrap();
    let differs = reconcile();
    assert_eq!(differs.status.code(), Some(1), "{differs:?}");
    assert!(String::from_utf8_lossy(&differs.stderr).starts_with("weir: "));
    let json = weir(&["reconcile", "--config", toml, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (json.status.code(), &report["balanced"]),
        (Some(1), &serde_json::Value::Bool(false))
    );
}
