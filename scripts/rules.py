#!/usr/bin/env python3
"""What each rule of the policy `paged` is worth, and what it costs: benches/record/simulated/rules.md.

    scripts/rules.py                 builds the command with all rules behind switches, and writes the table
    scripts/rules.py --build FOLDER  only builds it, into FOLDER, to be run elsewhere
    scripts/rules.py --run FOLDER    runs what is in FOLDER, and writes the table

tests/rules.toml lists the rules. Each is switched off by itself, and some of them together, on the whole corpus and the
simulated device: as recorded, with sizes that vary, and with work in flight. All numbers are simulated, so the table is
the same on every machine. On two cores the build takes four minutes, and the replays three.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "benches/record/simulated/rules.md"
SOURCES = "crates/core/src"
SWITCH = "MILLPOND_RULES_OFF"
TRACES = [trace for part in ("traces", "third", "libraries") for trace in sorted((ROOT / "tests/corpus" / part).glob("*.trace.*"))]
# How the corpus is run: the name, the arguments, and the number of passes.
WAYS = {
    "recorded": ([], 6),
    "varied": (["--vary", "10%:seed=1"], 6),
    "events": (["--in-flight", "200"], 3),
    "turns": (["--in-flight", "20us"], 3),
    "small": (["--in-flight", "20us:small"], 3),
}
# The first section of the record that is no table of this script: it stays as it is, with what follows.
BY_HAND = "\n## Rules that were removed\n"
# What decides whether a rule stays: by how much the mean ratio, or a time, has to be worse without it.
RATIO, TIME = 0.003, 0.05
HEAD = """\
# What each rule of `paged` buys, and what it costs

`scripts/rules.py`: {count} recordings, most of them of programs on other people's libraries, under `paged` on the simulated
device, with one rule of `tests/rules.toml` switched off at a time. *life* is the most reserved over the most live of all
passes, as a geometric mean, and *worst* the largest; *ms* is the driver's time over all recordings, of the first pass
and of all passes. *recorded*: six passes; *varied*: the same, with sizes that vary by 10 % from pass to pass; *events*:
work is done 200 events after it was queued; *turns*: fills of 20 us, so that streams have the device in turn; *small*:
small kernels of 20 us, so that streams run side by side; *warm* is the program's time of an event there, in ns, as a
geometric mean. A rule pays if without it a mean ratio is worse by 0.003, or a time by 5 %.

| off | recorded: life, worst | ms | varied: life, worst | ms | events: life | ms | turns: life | warm | small: life | warm |
|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|"""
FUNCTION = """
/// Whether a rule is switched off, for a measurement.
pub(crate) fn rule_is_off(number: usize) -> bool {
    static OFF: std::sync::LazyLock<Vec<usize>> = std::sync::LazyLock::new(|| {
        let told = std::env::var("SWITCH").unwrap_or_default();
        told.split(',').filter_map(|number| number.parse().ok()).collect()
    });
    OFF.contains(&number)
}
extern crate std;
use std::vec::Vec;
""".replace("SWITCH", SWITCH)


def rules():
    return tomllib.loads((ROOT / "tests/rules.toml").read_text())["rule"]


def names():
    """The rules in order: a build knows them by their numbers."""
    return [rule["name"] for rule in rules()]


def build(folder):
    """Builds the command with switches, in a copy of the tree."""
    tree = ROOT / "target/rules/tree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            text, copy = (ROOT / name).read_bytes(), tree / name
            # What is equal keeps its time, so that it is not built again.
            if not copy.is_file() or copy.read_bytes() != text:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(text)
    changed = {}
    for number, rule in enumerate(rules()):
        for change in rule["change"]:
            path = f"{SOURCES}/{change['path']}"
            text = changed.get(path) or (ROOT / path).read_text()
            if text.count(change["find"]) != 1:
                raise SystemExit(f"{rule['name']}: its text is not once in {path}")
            changed[path] = text.replace(change["find"], change["put"].replace("OFF", f"crate::rule_is_off({number})"))
    library = "crates/core/src/lib.rs"
    changed[library] = (ROOT / library).read_text() + FUNCTION
    for path, text in changed.items():
        (tree / path).write_text(text)
    target = ROOT / "target/rules/target"
    command = ["cargo", "build", "--release", "-p", "millpond-cli", "--no-default-features"]
    subprocess.run(command, cwd=tree, env={**os.environ, "CARGO_TARGET_DIR": str(target)}, check=True)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(target / "release/millpond", folder / "millpond")
    (folder / "rules.json").write_text(json.dumps(names()))


def replay(binary, off, way, trace):
    """Returns what a replay printed, with some rules off."""
    arguments, passes = WAYS[way]
    command = [binary, "replay", "--json", "--device", "sim", "--policy", "paged", "--passes", str(passes - 1)]
    numbers = names()
    ours = {"MILLPOND_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment[SWITCH] = ",".join(str(numbers.index(name)) for name in off)
    done = subprocess.run([*command, *arguments, trace], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def mean(values):
    """The geometric mean."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def figures(rows):
    """Returns the figures of one row of the table, from the replays by way."""
    found = {}
    for way, all_of in rows.items():
        found[way, "life"] = mean(row["life_reserved_over_live"] for row in all_of)
        found[way, "worst"] = max(row["life_reserved_over_live"] for row in all_of)
        found[way, "first ms"] = sum(row["driver_time_us_by_pass"][0] for row in all_of) / 1000
        found[way, "all ms"] = sum(row["all_driver_time_us"] for row in all_of) / 1000
        if way in ("turns", "small"):
            found[way, "warm"] = mean(row["warm_ns_per_event"] for row in all_of)
    return found


def pays(base, without):
    """Returns whether a rule pays for itself, given the figures with it and without it, and by what."""
    reasons = []
    for key in base:
        way, kind = key
        if kind == "life" and without[key] - base[key] >= RATIO:
            reasons.append(f"{way}: life {without[key] - base[key]:+.4f}")
        if kind in ("first ms", "all ms", "warm") and without[key] >= base[key] * (1 + TIME):
            reasons.append(f"{way}: {kind} {100 * (without[key] / base[key] - 1):+.0f} %")
    return reasons


def code_lines(path):
    """Returns the lines of a file without blank ones, comments and the tests at its end."""
    lines = (line.strip() for line in path.read_text().split("#[cfg(test)]")[0].splitlines())
    return sum(bool(line) and not line.startswith("//") for line in lines)


def lines_of(rule):
    """Returns the lines of code that a rule costs: those of its files, and what the list says of others."""
    return rule.get("lines", 0) + sum(code_lines(ROOT / SOURCES / name) for name in rule.get("files", []))


def table(binary):
    off = {"nothing": []} | {rule["name"]: [rule["name"]] for rule in rules()}
    jobs = [(name, way, trace) for name in off for way in WAYS for trace in TRACES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(lambda job: replay(binary, off[job[0]], *job[1:]), jobs))
    rows = {name: {way: [] for way in WAYS} for name in off}
    for (name, way, _), row in zip(jobs, done):
        rows[name][way].append(row)
    found = {name: figures(by_way) for name, by_way in rows.items()}
    base = found["nothing"]
    lines = [HEAD.format(count=len(TRACES))]
    for name, f in found.items():
        cells = [f"{f['recorded', 'life']:.4f}, {f['recorded', 'worst']:.3f}"]
        cells += [f"{f['recorded', 'first ms']:.0f}, {f['recorded', 'all ms']:.0f}"]
        cells += [f"{f['varied', 'life']:.4f}, {f['varied', 'worst']:.3f}", f"{f['varied', 'all ms']:.0f}"]
        cells += [f"{f['events', 'life']:.4f}", f"{f['events', 'all ms']:.0f}"]
        cells += [text for way in ("turns", "small") for text in (f"{f[way, 'life']:.4f}", f"{f[way, 'warm']:.0f}")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| rule | what it does | lines | it pays by |", "|---|---|---:|---|"]
    for rule in rules():
        reasons = pays(base, found[rule["name"]])
        lines.append(f"| {rule['name']} | {rule['what']} | {lines_of(rule)} | {'; '.join(reasons) or rule.get('stays', '**nothing**')} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--run", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--record", type=pathlib.Path, default=RECORD, metavar="FILE")
    asked = parser.parse_args()
    folder = asked.build or asked.run or ROOT / "target/rules"
    if not asked.run:
        build(folder)
    if not asked.build:
        if not (folder / "rules.json").exists() or json.loads((folder / "rules.json").read_text()) != names():
            raise SystemExit(f"{folder} has no build with these rules: scripts/rules.py --build {folder}")
        old = asked.record.read_text() if asked.record.exists() else ""
        by_hand = BY_HAND + old.split(BY_HAND)[1] if BY_HAND in old else ""
        asked.record.write_text(table(folder / "millpond") + by_hand)


if __name__ == "__main__":
    main()
