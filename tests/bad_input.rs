//! Issue 3 §8 on the built program: whatever an operator does wrong ends in one clear message and exit code 2; whatever a
//! buyer sends gets its answer and harms nobody else; a disk that fails stops grants, not the server; an end is orderly;
//! no secret is ever shown.
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

#[path = "bad_input_world/mod.rs"]
mod bad_input_world;
#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/say.rs"]
mod say;

use bad_input_world::*;
use recorder::{FailSync, Recorder};
use rusqlite::Connection;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Asserts that `text` says each of `parts`.
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

// (a) The operator's.

#[test]
fn serve_refuses_what_config_check_refuses() {
    let shop = Shop::new("config");
    let good = fs::read_to_string(shop.toml()).unwrap();
    for (section, from, to, parts) in [
        (
            "server",
            "shards = 1",
            "shards = ",
            &["weir.toml", "not valid TOML", "line "][..],
        ),
        (
            "server",
            "shards = 1",
            "listen_adress = \"x\"",
            &["line ", "server.listen_adress", "unknown key"],
        ),
        (
            "keys",
            "ticket-1.key",
            "ticket-9.key",
            &["keys.ticket", "ticket-9.key does not exist", "weir keygen"],
        ),
        (
            "server",
            "shards = 1",
            "data_dir = \"/proc/weir\"",
            &[
                "server.data_dir",
                "/proc",
                "cannot be written",
                "choose another path",
            ],
        ),
        (
            "ops",
            "127.0.0.1:0",
            "0.0.0.0:0",
            &[
                "ops.listen",
                "reachable from outside",
                "token_file",
                "127.0.0.1",
            ],
        ),
        (
            "server",
            "shards = 1",
            "shards = 64\nconns_max = 65536",
            &[
                "server.conns_max",
                "64 shards",
                "MiB are available",
                "lower",
            ],
        ),
    ] {
        fs::write(shop.toml(), &good).unwrap();
        shop.edit_in(section, from, to);
        let output = run(&[weir()], &shop);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.starts_with("weir: "), "{text}");
        says(&text, parts);
    }
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let shop = Shop::new("key-mode");
    let key = shop.path("keys/ticket-1.key");
    let secret = fs::read_to_string(&key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o444)).unwrap();
    let text = shop.refusal();
    says(&text, &["keys.ticket", "mode 0444", "chmod 400"]);
    assert!(!text.contains(secret.trim()), "{text}");
}

#[test]
fn tables_that_do_not_fit_the_memory_are_refused() {
    let shop = Shop::new("memory");
    let slots = ["ip", "user", "device", "status"].map(|name| format!("{name}_slots = 67108864"));
    shop.set("limits", &slots.join("\n"));
    shop.edit("shards = 1", "shards = 64");
    let text = shop.refusal();
    says(
        &text,
        &["64 shards of ", "MiB are available", "limits.*_slots"],
    );
}

#[test]
fn ports_that_are_taken_are_named() {
    let shop = Shop::new("ports");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let remedy = format!("ss -ltnp 'sport = :{}'", taken.local_addr().unwrap().port());
    let good = fs::read_to_string(shop.toml()).unwrap();
    for section in ["server", "ops"] {
        fs::write(shop.toml(), &good).unwrap();
        shop.edit_in(section, "127.0.0.1:0", &addr);
        let name = format!("{section}.listen");
        says(&shop.refusal(), &[&name, &addr, "another program", &remedy]);
    }
}

#[test]
fn a_second_weir_takes_neither_the_port_nor_the_directory() {
    let (first, second) = (Shop::new("first"), Shop::new("second"));
    let running = first.start();
    // Our listeners share their port among shards (SO_REUSEPORT); a second program must not slip in.
    for addr in [running.listen, running.ops] {
        let good = fs::read_to_string(second.toml()).unwrap();
        second.edit("listen = \"127.0.0.1:0\"", &format!("listen = \"{addr}\""));
        says(
            &second.refusal(),
            &[&addr.to_string(), "another program listens"],
        );
        fs::write(second.toml(), good).unwrap();
    }
    let text = first.refusal();
    says(
        &text,
        &[
            "another weir is using",
            &format!("(pid {})", running.pid()),
            "Stop it first",
        ],
    );
    running.stop();
    first.start().stop();
}

#[test]
fn files_of_a_newer_weir_or_of_another_program_are_left_alone() {
    let shop = Shop::new("files");
    shop.start().stop();
    for (name, foreign) in [
        ("ledger.sqlite", "is not a ledger"),
        ("orders.sqlite", "not an order store"),
    ] {
        let path = shop.path("data").join(name);
        let whole = fs::read(&path).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        drop(connection);
        says(&shop.refusal(), &[name, "version 99", "newer weir"]);

        fs::write(&path, "a shopping list\n".repeat(100)).unwrap();
        says(&shop.refusal(), &[name, foreign, "another directory"]);

        fs::remove_file(&path).unwrap();
        let other = Connection::open(&path).unwrap();
        other
            .execute("CREATE TABLE recipes (name TEXT)", [])
            .unwrap();
        drop(other);
        says(&shop.refusal(), &[name, foreign, "another directory"]);

        fs::write(&path, &whole).unwrap();
        let _ = fs::remove_file(shop.path("data").join(format!("{name}-wal")));
        shop.start().stop();
    }
}

#[test]
fn a_damaged_ledger_names_the_place_and_the_remedy() {
    let shop = Shop::new("damaged");
    let buyer = Buyer::of(&shop);
    let running = shop.start();
    let mut wire = running.wire();
    for user in 1..=5 {
        assert_eq!(wire.ask(&buyer.bytes(&buyer.submit(user))).status, 202);
    }
    running.stop();
    let path = shop.path("data/ledger.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute(
            "UPDATE batches SET bytes = zeroblob(length(bytes)) WHERE seq = 2",
            [],
        )
        .unwrap();
    drop(connection);
    says(
        &shop.refusal(),
        &[
            "ledger.sqlite is damaged",
            "seq 2",
            "Copy the whole directory first",
            "backup",
            "seq >= 2",
        ],
    );
    // SQLite's own pages.
    let mut bytes = fs::read(&path).unwrap();
    let page = bytes.len() / 4;
    bytes[page..].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    says(&shop.refusal(), &["ledger.sqlite is damaged", "backup"]);
}

#[test]
fn stores_of_two_directories_do_not_go_together() {
    let (shop, other) = (Shop::new("mixed"), Shop::new("mixed-other"));
    for (shop, user) in [(&shop, 1), (&other, 2)] {
        let buyer = Buyer::of(shop);
        let running = shop.start();
        let mut wire = running.wire();
        assert_eq!(wire.ask(&buyer.bytes(&buyer.submit(user))).status, 202);
        running.stop();
    }
    let orders = shop.path("data/orders.sqlite");
    let ours = fs::read(&orders).unwrap();
    fs::copy(other.path("data/orders.sqlite"), &orders).unwrap();
    says(
        &shop.refusal(),
        &[
            "orders.sqlite",
            "ledger.sqlite",
            "belong to different sales",
            "backup",
        ],
    );
    fs::remove_file(&orders).unwrap();
    says(
        &shop.refusal(),
        &["orders.sqlite", "is missing or new", "backup"],
    );
    fs::write(&orders, ours).unwrap();
    shop.start().stop();
}

#[test]
fn a_sku_that_left_the_file_is_named_and_its_books_are_kept() {
    let shop = Shop::new("sku-gone");
    let buyer = Buyer::of(&shop);
    let running = shop.start();
    let mut wire = running.wire();
    assert_eq!(wire.ask(&buyer.bytes(&buyer.submit(7))).status, 202);
    running.stop();
    let (before, sku) = {
        let text = fs::read_to_string(shop.toml()).unwrap();
        let (before, sku) = text.split_once("[[activity.sku]]").unwrap();
        (before.to_owned(), sku.to_owned())
    };
    let renamed = sku.replacen("\nid = 1\n", "\nid = 2\n", 1);
    assert_ne!(renamed, sku);
    fs::write(shop.toml(), format!("{before}[[activity.sku]]{renamed}")).unwrap();
    let running = shop.start();
    assert_eq!(running.until_ready_is(200).status, 200);
    says(
        &running.stop(),
        &[
            "activity 1, SKU 1",
            "weir.toml",
            "no longer names",
            "add it",
        ],
    );
    fs::write(shop.toml(), format!("{before}[[activity.sku]]{sku}")).unwrap();
    let running = shop.start();
    let mut wire = running.wire();
    assert_eq!(
        wire.ask(&buyer.bytes(&buyer.submit(7))).code(),
        "REQUEST_REPLAYED"
    );
    running.stop();
}

#[test]
fn a_low_limit_of_open_files_names_ulimit() {
    let shop = Shop::new("nofile");
    let text = refusal(
        &["sh", "-c", "ulimit -n 64; exec \"$0\" \"$@\"", weir()],
        &shop,
    );
    says(
        &text,
        &["server.conns_max", "the limit is 64", "ulimit -Hn"],
    );
    // Below what the program needs without any connection there is nothing to lower.
    assert!(!text.contains("conns_max to 0"), "{text}");
}

#[test]
fn a_clock_that_was_never_set_is_refused() {
    let shop = Shop::new("clock");
    let shim = compile("old_clock", &["-shared", "-fPIC"]);
    let preload = format!("LD_PRELOAD={}", shim.display());
    let text = refusal(&["env", &preload, weir()], &shop);
    let _ = fs::remove_file(shim);
    says(&text, &["clock is before 2025", "NTP"]);
}

/// R66: a container's default.
#[test]
fn io_uring_forbidden_runs_on_epoll_and_names_the_cause_and_the_remedy() {
    let shop = Shop::new("no-uring");
    let wrapper = compile("no_uring", &[]);
    for refused in ["all", "setup", "register", "enter"] {
        let mut command = Command::new(&wrapper);
        command.args([refused, weir(), "serve", "--config"]);
        command.arg(shop.toml());
        let running = Running::of(command);
        let metrics = running.get_ops("/metrics").body;
        says(&metrics, &["weir_driver_info{driver=\"epoll\"} 1"]);
        let said = running.stop();
        let why = said.lines().find(|line| line.contains("epoll"));
        says(
            why.unwrap_or(&said),
            &[
                "weir: runs on epoll, not on uring",
                "io_uring is forbidden here",
                "seccomp",
                "kernel.io_uring_disabled=0",
            ],
        );
    }
    let _ = fs::remove_file(wrapper);
}

/// R66: who asks for a driver by name gets that one or an end with EX_CONFIG, so that a supervisor does not try again.
#[test]
fn a_driver_that_was_asked_for_and_cannot_run_ends_with_78() {
    let shop = Shop::new("forced");
    let wrapper = compile("no_uring", &[]);
    let ends_with_78 = |program: &[&str], parts: &[&str]| {
        let output = run(program, &shop);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{text}");
        says(text.lines().last().unwrap_or_default(), parts);
    };
    for (driver, call) in [
        ("uring", "all"),
        ("uring", "enter"),
        ("monoio", "all"),
        ("monoio", "enter"),
    ] {
        shop.set("server", &format!("driver = \"{driver}\""));
        let forbidden = [wrapper.to_str().unwrap(), call, weir()];
        ends_with_78(
            &forbidden,
            &["weir: driver", driver, "seccomp", "--driver auto"],
        );
        shop.edit(&format!("driver = \"{driver}\"\n"), "");
    }
    let _ = fs::remove_file(wrapper);
    if !weir_io::choice::HAS_GLOMMIO {
        shop.set("server", "driver = \"glommio\"");
        ends_with_78(&[weir()], &["built without glommio", "--features glommio"]);
    }
}

#[test]
fn every_driver_of_this_build_serves_and_says_which_it_is() {
    let shop = Shop::new("drivers");
    for name in ["uring", "epoll", "monoio", "glommio"] {
        if name == "glommio" && !weir_io::choice::HAS_GLOMMIO {
            continue;
        }
        let mut command = shop.command();
        command.args(["--driver", name]);
        let running = Running::of(command);
        let answer = running
            .wire()
            .ask(b"GET /nothing HTTP/1.1\r\nHost: shop\r\n\r\n");
        assert_eq!(answer.status, 404, "{name}: {answer:?}");
        let metrics = running.get_ops("/metrics").body;
        says(
            &metrics,
            &[&format!("weir_driver_info{{driver=\"{name}\"}} 1")],
        );
        running.stop();
    }
}

#[test]
fn without_locked_memory_the_server_serves_or_says_why() {
    let shop = Shop::new("memlock");
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "ulimit -l 0; exec \"$0\" \"$@\"",
            weir(),
            "serve",
            "--config",
        ])
        .arg(shop.toml());
    // Rings count against it before Linux 5.12 only; weir needs 6.1.
    Running::of(command).stop();
}

// (b) The disk fails while it runs.

/// What every failure of the ledger's disk must look like from outside.
fn is_closed_but_up(running: &mut Running, buyer: &Buyer) {
    let ready = running.until_ready_is(503);
    assert_eq!(ready.status, 503, "{ready:?}");
    says(&ready.body, &["store", "until a restart"]);
    assert_eq!(running.get_ops("/healthz").status, 200);
    let mut wire = running.wire();
    for user in [900_001, 900_002] {
        let answer = wire.ask(&buyer.bytes(&buyer.submit(user)));
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (503, "DEPENDENCY_UNAVAILABLE"),
            "{answer:?}"
        );
        assert!(answer.field("Retry-After").is_some(), "{answer:?}");
    }
    assert!(running.is_up());
}

/// Submits until one is not QUEUED; who was told QUEUED, and that last answer.
fn buy_until_refused(
    running: &Running,
    buyer: &Buyer,
    users: std::ops::Range<u64>,
) -> (Vec<Submit>, Answer) {
    let mut queued = Vec::new();
    let mut wire = running.wire();
    for user in users {
        let submit = buyer.submit(user);
        let answer = wire.ask(&buyer.bytes(&submit));
        if answer.code() != "SECKILL_QUEUED" {
            return (queued, answer);
        }
        queued.push(submit);
    }
    panic!("the store took all of it");
}

/// Everyone who was told QUEUED still has what they were told.
fn all_kept(running: &Running, buyer: &Buyer, queued: &[Submit]) {
    let mut wire = running.wire();
    for submit in queued {
        let answer = wire.ask(&buyer.status(submit));
        let state = answer.json()["status"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            ["RESERVED", "QUEUED", "CREATED"].contains(&state.as_str()),
            "{}: {answer:?}",
            submit.user
        );
    }
}

#[test]
fn a_failed_sync_of_the_ledger_stops_grants_and_is_never_retried() {
    fails_to_sync("ledger.sqlite-wal", 24);
}

#[test]
fn a_failed_sync_of_the_orders_stops_grants_and_is_never_retried() {
    // A grant whose order nobody can make would be a promise that nobody keeps.
    fails_to_sync("orders.sqlite-wal", 12);
}

/// The `nth` sync of the file fails: grants stop, nothing is synced again, and a restart goes on with all that was told.
fn fails_to_sync(suffix: &'static str, nth: u32) {
    let shop = Shop::new(suffix);
    shop.edit("stock = 100", "stock = 100000");
    let recorder = Recorder::build();
    let data = shop.path("data");
    let mut command = shop.command();
    recorder.watch(&mut command, &data, &shop.path("record"));
    Recorder::fail_sync(&mut command, &FailSync { nth, suffix });
    let mut running = Running::of(command);
    let buyer = Buyer::of(&shop);
    let (queued, last) = buy_until_refused(&running, &buyer, 1..20_000);
    assert!(!queued.is_empty());
    // Whether it is on the disk nobody knows; or what failed held a step of the worker, and no buyer's.
    let told = (last.status, last.code());
    assert!(
        [(202, "SECKILL_PENDING"), (503, "DEPENDENCY_UNAVAILABLE")]
            .iter()
            .any(|&(status, code)| told == (status, code.to_owned())),
        "{last:?}"
    );
    is_closed_but_up(&mut running, &buyer);
    running.stop();
    let log = fs::read(shop.path("record")).unwrap();
    assert_eq!(
        syncs_after_failure(&log, suffix),
        0,
        "no sync after the failed one"
    );

    let running = shop.start();
    all_kept(&running, &buyer, &queued);
    let mut wire = running.wire();
    assert_eq!(
        wire.ask(&buyer.bytes(&buyer.submit(950_000))).code(),
        "SECKILL_QUEUED"
    );
    running.stop();
}

/// Syncs of files that end in `suffix` after the first that failed (the recorder's format: see recorder.c).
fn syncs_after_failure(log: &[u8], suffix: &str) -> usize {
    let (mut at, mut failed, mut count) = (0, false, 0);
    while at + 24 <= log.len() {
        let path_bytes = usize::from(u16::from_le_bytes([log[at + 2], log[at + 3]]));
        let data_bytes = u64::from_le_bytes(log[at + 16..at + 24].try_into().unwrap()) as usize;
        let path = String::from_utf8_lossy(&log[at + 24..at + 24 + path_bytes]);
        if path.ends_with(suffix) {
            count += usize::from(failed && log[at] == b'S');
            failed |= log[at] == b'F';
        }
        at += 24 + path_bytes + data_bytes;
    }
    assert!(failed, "the sync was made to fail");
    count
}

/// A small file system of its own, mounted while it lives.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// `None`, and the reason, where it cannot be mounted.
    fn mount(at: &std::path::Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=3m,mode=0700", "weir-test"])
            .arg(at)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            other => {
                say::skip(&format!(
                    "a full disk needs a small file system, which only root may mount: {other:?}"
                ));
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Takes what is left of the disk; the copy ends with "no space left".
fn fill(ballast: &std::path::Path) {
    let mut zeros = std::io::Read::take(fs::File::open("/dev/zero").unwrap(), 64 << 20);
    let filled = std::io::copy(&mut zeros, &mut fs::File::create(ballast).unwrap());
    assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn a_full_disk_stops_grants_and_a_restart_with_room_goes_on() {
    let shop = Shop::new("full");
    shop.edit("stock = 100", "stock = 100000");
    let Some(disk) = SmallDisk::mount(&shop.path("data")) else {
        return;
    };
    let ballast = disk.0.join("ballast");
    fill(&ballast);
    says(
        &shop.refusal(),
        &["no space left", "data/ledger.", "Free some space"],
    );
    fs::remove_file(&ballast).unwrap();
    let mut running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut queued = vec![buyer.submit(1)];
    let first = running.wire().ask(&buyer.bytes(&queued[0]));
    assert_eq!(first.code(), "SECKILL_QUEUED");
    fill(&ballast);
    let (more, last) = buy_until_refused(&running, &buyer, 2..20_000);
    queued.extend(more);
    assert!(
        ["SECKILL_PENDING", "DEPENDENCY_UNAVAILABLE"].contains(&last.code().as_str()),
        "{last:?}"
    );
    is_closed_but_up(&mut running, &buyer);
    // Asked for what is committed, it says that it cannot read now, and nothing false.
    let mut wire = running.wire();
    let answer = wire.ask(&buyer.status(&queued[0]));
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (503, "DEPENDENCY_UNAVAILABLE"),
        "{answer:?}"
    );
    running.stop();
    fs::remove_file(ballast).unwrap();
    let running = shop.start();
    all_kept(&running, &buyer, &queued);
    running.stop();
    drop(disk);
}

/// Compiles a C file of tests/hostile.
fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let made =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    recorder::compiler::compile(&format!("tests/hostile/{name}.c"), &made, flags);
    made
}
