"""What the comparison runs: programs of this repository are built, those of others come from apt-get or are missing."""

import os
import shutil
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
RELEASE = os.path.join(TARGET, "release")
GLOMMIO_TARGET = os.path.join(TARGET, "compare-glommio")
WORK = os.path.join(TARGET, "compare")

LUA_MODULE = "/usr/lib/nginx/modules/ngx_http_lua_module.so"
NDK_MODULE = "/usr/lib/nginx/modules/ndk_http_module.so"
CJSON = "/usr/lib/x86_64-linux-gnu/lua/5.1/cjson.so"
# What is looked for, and Debian's name of the package that has it.
PACKAGES = {
    "nginx": "nginx-light",
    LUA_MODULE: "libnginx-mod-http-lua",
    CJSON: "lua-cjson",
    "h2o": "h2o",
    "redis-server": "redis-server",
    "redis-benchmark": "redis-tools",
}
# Who says what is said.
NAME = "compare"
_updated = []


def say(text):
    print(f"{NAME}: {text}", file=sys.stderr, flush=True)


def cpu_name():
    with open("/proc/cpuinfo") as info:
        return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def have(name):
    return os.path.exists(name) if "/" in name else shutil.which(name) is not None


def missing(names):
    """Installs what can be installed; the reason why a candidate cannot run, or None."""
    for name in names:
        if not have(name) and not install(PACKAGES[name]):
            return f"{name} is missing and apt-get could not install {PACKAGES[name]}"
    return None


def install(package):
    if shutil.which("apt-get") is None:
        return False
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # No service may start: it would take a port, and time from the cores that are measured.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    say(f"installing {package}")
    try:
        if not _updated:
            subprocess.run(sudo + ["apt-get", "update", "-qq"], timeout=120, **quiet)
            _updated.append(True)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        done = subprocess.run(sudo + command, timeout=300, env=env, **quiet)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def build(glommio, reserve):
    """Builds the release programs; the build's own words go to standard error."""
    plain = ["cargo", "build", "--release", "--locked"]
    commands = [plain + ["-p", "weir", "-p", "weir-bench", "--bins"]]
    if reserve:
        commands.append(plain + ["-p", "weir", "--example", "reserve"])
    if glommio:
        target = ["--target-dir", GLOMMIO_TARGET]
        commands.append(plain + ["-p", "weir", "--bins", "--features", "glommio"] + target)
    for command in commands:
        if subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode != 0:
            say(f"{' '.join(command)} failed: see above")
            sys.exit(2)
