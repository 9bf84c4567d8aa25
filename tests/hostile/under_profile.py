#!/usr/bin/env python3
"""Runs a command under a seccomp profile of a container engine (Docker, Podman), as the engine would.

usage: under_profile.py PROFILE COMMAND [ARGUMENT...]
       under_profile.py PROFILE --call NAME     makes that system call with senseless arguments; prints its errno

Reads the profile's JSON and installs exactly that filter: default action, names, and conditions on arguments (EQ and
MASKED_EQ). What it does not understand in a profile ends it (exit code 125), as does a name that this system's headers
do not know. Standard library only; numbers come from the C compiler's headers.
"""
import ctypes
import errno
import json
import os
import platform
import re
import struct
import subprocess
import sys

LD_W_ABS, JEQ_K, JSET_K, JGE_K, AND_K, RET_K = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
NR_AT, ARCH_AT, ARGS_AT = 0, 4, 16  # struct seccomp_data of linux/seccomp.h
KILL_PROCESS, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
ARCHES = {
    "x86_64": ("SCMP_ARCH_X86_64", "amd64", 0xC000003E),
    "aarch64": ("SCMP_ARCH_AARCH64", "arm64", 0xC00000B7),
}
X32_BIT = 0x40000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def fail(text):
    sys.stderr.write(f"under_profile: {text}\n")
    sys.exit(125)


def numbers():
    """Every system call of these headers, by name."""
    compiler = os.environ.get("CC", "cc")
    made = subprocess.run(
        [compiler, "-E", "-dM", "-include", "asm/unistd.h", "-x", "c", "/dev/null"], capture_output=True, text=True
    )
    if made.returncode != 0:
        fail(made.stderr)
    defined = dict(re.findall(r"#define (__NR\w+) (\w+)\n", made.stdout))
    known = {}
    for name, value in defined.items():
        while value in defined:  # aarch64: __NR_mmap is __NR3264_mmap, and that is a number
            value = defined[value]
        if name.startswith("__NR_") and value.isdigit():
            known[name.removeprefix("__NR_")] = int(value)
    return known


def action(name, errno_ret):
    if name == "SCMP_ACT_ERRNO":
        return ERRNO | (errno.EPERM if errno_ret is None else errno_ret)
    if name == "SCMP_ACT_ALLOW":
        return ALLOW
    if name in ("SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL"):
        return KILL_PROCESS
    return fail(f"unknown action {name}")


def op(code, k, when_true=0, when_false=0):
    return struct.pack("=HBBI", code, when_true, when_false, k)


def argument_is(arg):
    """Instructions that reach their end when the condition holds; a jump of 255 stands for the way out."""
    low, high = arg["value"] & 0xFFFFFFFF, arg["value"] >> 32
    at = ARGS_AT + 8 * arg["index"]
    if arg["op"] == "SCMP_CMP_EQ":
        return [(LD_W_ABS, at), (JEQ_K, low), (LD_W_ABS, at + 4), (JEQ_K, high)]
    if arg["op"] == "SCMP_CMP_MASKED_EQ":  # value: the mask, valueTwo: what remains
        two = arg.get("valueTwo", 0)
        return [
            *[(LD_W_ABS, at), (AND_K, low), (JEQ_K, two & 0xFFFFFFFF)],
            *[(LD_W_ABS, at + 4), (AND_K, high), (JEQ_K, two >> 32)],
        ]
    return fail(f"unknown condition {arg['op']}")


def rule(number, args, result):
    """If it is this call with these arguments, `result`; else on to the next rule, with the number loaded again."""
    steps = [(JEQ_K, number)] + [step for arg in args for step in argument_is(arg)] + [(RET_K, result)]
    code = b""
    for place, (step, k) in enumerate(steps):
        code += op(step, k, 0, len(steps) - place - 1) if step == JEQ_K else op(step, k)
    return code + (op(LD_W_ABS, NR_AT) if args else b"")


def program(profile):
    known = numbers()
    arch_name, short_name, arch = ARCHES[platform.machine()]
    if arch_name not in [entry["architecture"] for entry in profile["archMap"]]:
        fail(f"the profile has nothing for {arch_name}")
    default = action(profile["defaultAction"], profile.get("defaultErrnoRet"))
    code = op(LD_W_ABS, ARCH_AT) + op(JEQ_K, arch, 1, 0) + op(RET_K, KILL_PROCESS) + op(LD_W_ABS, NR_AT)
    code += op(JGE_K, X32_BIT, 0, 1) + op(RET_K, default)
    for entry in profile["syscalls"]:
        if extra := set(entry) - {"names", "action", "errnoRet", "args", "comment", "includes"}:
            fail(f"cannot read {extra}")
        if short_name not in entry.get("includes", {}).get("arches", [short_name]):
            continue
        for name in entry["names"]:
            if name not in known:
                fail(f"no system call is named {name}")
            code += rule(known[name], entry.get("args", []), action(entry["action"], entry.get("errnoRet")))
    return code + op(RET_K, default), known


def main():
    profile_path, *command = sys.argv[1:]
    with open(profile_path, encoding="utf-8") as file:
        code, known = program(json.load(file))
    libc = ctypes.CDLL(None, use_errno=True)
    rules = ctypes.create_string_buffer(code, len(code))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(rules)))
    number = known[command[1]] if command[0] == "--call" else None
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        fail("PR_SET_NO_NEW_PRIVS")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_, 0, 0) != 0:
        fail(f"PR_SET_SECCOMP: {os.strerror(ctypes.get_errno())}")
    if number is None:
        os.execv(command[0], command)
    ctypes.set_errno(0)
    libc.syscall(*[ctypes.c_long(value) for value in (number, -1, -1, -1, -1, -1, -1)])
    print(errno.errorcode.get(ctypes.get_errno(), "none"))


main()
