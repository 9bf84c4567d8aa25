//! `deploy/` as an operator uses it: the seccomp profile by running under it, the systemd unit by systemd's own checks.
//!
//! `hostile/under_profile.py` reads the profile and installs that filter. What is missing on this machine is said as
//! SKIPPED, and fails where CI=true.

#![allow(clippy::unwrap_used, clippy::result_large_err)]

#[path = "bad_input_world/mod.rs"]
mod world;

#[path = "support/say.rs"]
mod say;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use world::{Buyer, Running, Shop, weir};

/// What `systemd-analyze security` may find at most, in tenths: 0 is a unit that can do nothing, 100 one without limits.
const EXPOSURE_TENTHS_MAX: u8 = 20;

fn at_root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn profile() -> PathBuf {
    at_root("deploy/seccomp.json")
}

fn profile_json() -> Value {
    serde_json::from_slice(&fs::read(profile()).unwrap()).unwrap()
}

/// A command that begins under a profile; what it is to run comes as arguments.
fn under(profile: &Path) -> Command {
    let mut command = Command::new("python3");
    command
        .arg(at_root("tests/hostile/under_profile.py"))
        .arg(profile);
    command
}

/// `weir serve` on `shop` under a profile.
fn serve_under(profile: &Path, shop: &Shop) -> Running {
    let mut command = under(profile);
    command
        .arg(weir())
        .args(["serve", "--config"])
        .arg(shop.toml());
    Running::of(command)
}

/// The errno of a system call that is made under the profile.
fn errno_of(call: &str) -> String {
    let output = under(&profile()).args(["--call", call]).output().unwrap();
    assert!(output.status.success(), "{call}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The drivers that this build can be told to use and that need no right beyond the profile's.
fn drivers() -> Vec<&'static str> {
    let mut command = Command::new(weir());
    command.args(["config", "explain", "server.driver"]);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let mut drivers = vec!["uring", "monoio", "epoll", "auto"];
    drivers.retain(|name| said.contains(&format!("\"{name}\"")));
    assert_eq!(drivers.first(), Some(&"uring"), "{said}");
    drivers
}

#[test]
fn a_sale_works_under_the_profile_on_every_driver() {
    for driver in drivers() {
        let shop = Shop::new(&format!("profile-{driver}"));
        shop.set("server", &format!("driver = \"{driver}\""));
        sell_under_the_profile(&shop);
    }
}

#[test]
fn a_profile_without_io_uring_leaves_the_sale_on_epoll() {
    let shop = Shop::new("profile-without");
    let path = shop.path("profile.json");
    let mut without = profile_json();
    for entry in without["syscalls"].as_array_mut().unwrap() {
        let names = entry["names"].as_array_mut().unwrap();
        names.retain(|name| !name.as_str().unwrap().starts_with("io_uring_"));
    }
    let entries = without["syscalls"].as_array_mut().unwrap();
    entries.retain(|entry| entry["names"] != serde_json::json!([]));
    fs::write(&path, without.to_string()).unwrap();
    let said = sell_under(&path, &shop);
    assert!(said.contains("weir: runs on epoll, not on uring"), "{said}");
}

fn sell_under_the_profile(shop: &Shop) {
    sell_under(&profile(), shop);
    // The books are read under it too.
    let books = under(&profile())
        .arg(weir())
        .args(["reconcile", "--config"])
        .arg(shop.toml())
        .output()
        .unwrap();
    assert!(books.status.success(), "{books:?}");
}

/// Serves under a profile and sells a little; what the server said.
fn sell_under(profile: &Path, shop: &Shop) -> String {
    let running = serve_under(profile, shop);
    let buyer = Buyer::of(shop);
    let mut wire = running.wire();
    for user in 1..=20 {
        let answer = wire.ask(&buyer.bytes(&buyer.submit(user)));
        assert_eq!(answer.code(), "SECKILL_QUEUED", "{answer:?}");
    }
    assert_eq!(running.until_ready_is(200).status, 200);
    let metrics = running.get_ops("/metrics").body;
    for line in [
        "weir_driver_rings_unrestricted_total 0",
        "weir_driver_cq_overflow_total 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line}");
    }
    running.stop()
}

#[test]
fn what_is_not_in_the_profile_is_refused() {
    for call in [
        "ptrace",
        "process_vm_readv",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "mount",
        "unshare",
        "setns",
        "pivot_root",
        "chroot",
        "keyctl",
        "init_module",
        "kexec_load",
        "reboot",
        "swapon",
        "execveat",
        "kill",
        // Allowed with other arguments only: no other family of sockets, no namespace, no terminal to write to.
        "socket",
        "clone",
        "ioctl",
    ] {
        assert_eq!(errno_of(call), "EPERM", "{call}");
    }
    assert_eq!(
        errno_of("clone3"),
        "ENOSYS",
        "the C library then takes clone"
    );
    assert_ne!(errno_of("io_uring_setup"), "EPERM");
}

#[test]
fn a_kernel_without_ring_restrictions_is_said_once_and_served() {
    let shop = Shop::new("unrestricted");
    let path = shop.path("profile.json");
    // io_uring_register(2), operation 11 (IORING_REGISTER_RESTRICTIONS), as a kernel answers that does not know it.
    let without = serde_json::json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "archMap": profile_json()["archMap"],
        "syscalls": [{
            "names": ["io_uring_register"],
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": 22,
            "args": [{ "index": 1, "value": 11, "op": "SCMP_CMP_EQ" }],
        }],
    });
    fs::write(&path, without.to_string()).unwrap();
    let running = serve_under(&path, &shop);
    let buyer = Buyer::of(&shop);
    let answer = running.wire().ask(&buyer.bytes(&buyer.submit(1)));
    assert_eq!(answer.code(), "SECKILL_QUEUED", "{answer:?}");
    let metrics = running.get_ops("/metrics").body;
    assert!(metrics.contains("\nweir_driver_rings_unrestricted_total 2\n"));
    let said = running.stop();
    let note = "cannot restrict io_uring to the operations in use";
    assert_eq!(said.matches(note).count(), 1, "{said}");
}

/// The unit with the built program in it, in a directory of its own.
fn installed_unit() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("unit-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let unit = fs::read_to_string(at_root("deploy/weir.service")).unwrap();
    let path = dir.join("weir.service");
    fs::write(&path, unit.replace("/usr/local/bin/weir", weir())).unwrap();
    path
}

#[test]
fn the_unit_passes_systemds_own_checks() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        return say::skip("systemd-analyze is not installed on this machine");
    }
    let unit = installed_unit();
    let threshold = format!("--threshold={EXPOSURE_TENTHS_MAX}");
    for arguments in [
        &["verify", "--man=no"][..],
        &["security", "--offline=true", "--no-pager", &threshold],
    ] {
        let output = Command::new("systemd-analyze")
            .args(arguments)
            .arg(&unit)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && !said.contains("weir.service"),
            "{arguments:?}: {said}\n{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    let _ = fs::remove_dir_all(unit.parent().unwrap());
}

/// The values of a key of the unit, in their order.
fn of_unit(key: &str) -> Vec<String> {
    let unit = fs::read_to_string(at_root("deploy/weir.service")).unwrap();
    let values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

/// systemd.service(5): RestartPreventExitStatus= looks at the main process alone. A check in ExecStartPre= that fails is
/// tried again whatever its exit code (systemd issue 11868).
#[test]
fn a_wrong_configuration_ends_the_units_main_process_with_a_code_that_is_not_tried_again() {
    assert_eq!(of_unit("ExecStartPre"), Vec::<String>::new());
    let start = of_unit("ExecStart").remove(0);
    let mut words = start.split(' ').skip(1);
    let shop = Shop::new("unit-wrong");
    shop.set("server", "no_such_key = 1");
    let mut command = Command::new(weir());
    command.args(
        words
            .by_ref()
            .take_while(|&word| word != "/etc/weir/weir.toml"),
    );
    let output = command.arg(shop.toml()).output().unwrap();
    let code = output.status.code().unwrap().to_string();
    let codes = of_unit("RestartPreventExitStatus").remove(0);
    assert!(codes.split(' ').any(|kept| kept == code), "{output:?}");
}

#[test]
fn the_unit_and_the_profile_name_the_same_calls() {
    let unit = fs::read_to_string(at_root("deploy/weir.service")).unwrap();
    let of_unit: BTreeSet<&str> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="))
        .flat_map(str::split_whitespace)
        .collect();
    let profile = profile_json();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let of_profile: BTreeSet<&str> = profile["syscalls"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|entry| entry["names"].as_array().unwrap())
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(of_unit, of_profile);
    assert!(of_unit.len() > 100 && of_unit.contains("io_uring_setup"));
}
