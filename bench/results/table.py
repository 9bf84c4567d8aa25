#!/usr/bin/env python3
"""Markdown tables of a result file of bench/compare.sh --json.

    table.py FILE          prints them
    table.py --into DOC    puts them between DOC's markers
    table.py --check DOC   exit code 1 when what stands between them differs; tests/tidy.rs runs this

A marker names a result file beside this script and its tables, of `cpu`, `rps`, `open` and `goals`:
`<!-- compare 2026-11-30.jsonl cpu goals -->`; the tables end at `<!-- /compare -->`.
"""

import json
import os
import re
import sys

SCENARIOS = {
    "c64": "64 conns", "c512": "512", "c4096": "4,096", "p16": "64, 16-deep", "conn": "new conn each",
}
MARKER = re.compile(r"^(<!-- compare (\S+)((?: [a-z]+)+) -->\n).*?^(<!-- /compare -->)$", re.DOTALL | re.MULTILINE)


def rows_of(objects):
    rows = {}
    for each in objects:
        if "scenario" in each:
            rows.setdefault(each["candidate"], {})[each["scenario"]] = each
    return rows


def source(objects):
    about = next(each["about"] for each in objects if "about" in each)
    disturbed = sum(each.get("disturbed_rounds", 0) for each in objects)
    measured = sum(each["rounds"] for each in objects if "scenario" in each)
    return (
        f"{about['date']}, Linux {about['kernel']}, {about['cpu']}, one core for the server and one for the load, "
        f"`{about['command']}` at {about['commit']}: medians of {about['rounds']} interleaved rounds; "
        f"{disturbed} of {measured} measurements were disturbed by something else that ran."
    )


def markdown_table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def by_scenario(objects, figure):
    rows = rows_of(objects)
    used = [name for name in SCENARIOS if any(name in row for row in rows.values())]
    show = lambda each: figure(each) if each else ""
    body = []
    for name, row in rows.items():
        what = next(iter(row.values()))["what"]
        body.append([f"`{name}`: {what}"] + [show(row.get(scenario)) for scenario in used])
    for each in objects:
        if "skipped" in each:
            body.append([f"`{each['candidate']}`: SKIPPED, {each['skipped']}"] + [""] * len(used))
    return markdown_table([""] + [SCENARIOS[name] for name in used], body)


def cpu(objects):
    spread = lambda each: each["server_cpu_us"]
    shown = lambda each: f"{spread(each)['median']:.2f} ({spread(each)['low']:.2f}–{spread(each)['high']:.2f})"
    return "Server CPU, µs per request (interval of the median):\n\n" + by_scenario(objects, shown)


def rps(objects):
    return "Requests a second:\n\n" + by_scenario(objects, lambda each: f"{each['rps']['median']:,.0f}")


def open_loop(objects):
    body = []
    for name, row in rows_of(objects).items():
        if "open" in row:
            figures = row["open"]["latency_us"]
            body.append([f"`{name}`", f"{row['open']['rps']['median']:,.0f}"]
                        + [f"{figures[key]['median']:,.0f}" for key in ("p50", "p99", "p999")])
    head = ["64 conns, open loop", "requests/s", "p50 µs", "p99 µs", "p99.9 µs"]
    return markdown_table(head, body)


def verdict(each):
    """Yes or no only where the whole interval says so."""
    if not each["ok"]:
        return "no"
    meets = each["high"] <= each["goal"] if each["sense"] == "<=" else each["low"] >= each["goal"]
    return "yes" if meets else "not shown: the goal lies in the interval"


def goals(objects):
    ratios = next(each["ratios"] for each in objects if "ratios" in each)
    body = [
        [name, f"{each['value']:g}", f"{each['low']:g}–{each['high']:g}",
         f"{'≤' if each['sense'] == '<=' else '≥'} {each['goal']:g}", verdict(each)]
        for name, each in ratios.items()
    ]
    return markdown_table(["goal", "here", "interval", "wanted", "reached"], body)


TABLES = {"cpu": cpu, "rps": rps, "open": open_loop, "goals": goals}


def markdown(objects, names=tuple(TABLES)):
    return "\n\n".join([TABLES[name](objects) for name in names] + [source(objects)])


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def filled(text, path):
    if not MARKER.search(text):
        sys.exit(f"{path}: has no markers `<!-- compare FILE.jsonl cpu -->` and `<!-- /compare -->`")
    here = os.path.dirname(os.path.abspath(__file__))
    put = lambda found: found[1] + markdown(read(os.path.join(here, found[2])), found[3].split()) + "\n" + found[4]
    return MARKER.sub(put, text)


def main():
    words = sys.argv[1:]
    if len(words) == 1 and not words[0].startswith("-"):
        return print(markdown(read(words[0])))
    if len(words) != 2 or words[0] not in ("--into", "--check"):
        sys.exit(__doc__)
    with open(words[1]) as file:
        text = file.read()
    wanted = filled(text, words[1])
    if words[0] == "--into":
        with open(words[1], "w") as file:
            file.write(wanted)
    elif wanted != text:
        sys.exit(f"{words[1]}: its tables are not those of the result file; run bench/results/table.py --into {words[1]}")


if __name__ == "__main__":
    main()
