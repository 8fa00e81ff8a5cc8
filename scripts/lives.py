#!/usr/bin/env python3
"""Makes long lives of the recorded programs, on the simulated device, and keeps the tables in benches/record/simulated/lives.md.

Sizes vary from pass to pass, weights stay, programs share one allocator, and some lives have many passes. All numbers are
simulated, so the tables are the same on every machine. Takes a minute and a half on two cores, beside the build.
"""

import itertools
import json
import os
import pathlib
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "benches/record/simulated/lives.md"
TRACES = sorted((ROOT / "tests/corpus/traces").glob("*.trace.gz"))
PASSES = 12
SEEDS = range(8)
VARIATIONS = [1, 2, 5, 10, 20]
# The passes of a very long life, its seeds, by how much its sizes vary, and which passes its calls are told of.
LONG_PASSES = 200
LONG_SEEDS = range(3)
LONG_PERCENT = 5
PARTS = [(2, 20), (91, 110), (181, 200)]
# The first section of the record that is no table of this script: it stays as it is, with what follows.
BY_HAND = "\n## One program behind another\n"
# The time of a program between two events, without the driver's.
EVENT_US = 100


def replay(*arguments, passes=PASSES):
    """Returns what each pass and all of them took, for one program."""
    command = [ROOT / pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "release/millpond", "replay", "--json"]
    command += ["--device", "sim", "--policy", "paged", "--passes", str(passes - 1), *arguments]
    # The settings are the policy's own, whatever the caller's environment says.
    ours = {"MILLPOND_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def share_of_driver(row):
    """Returns the driver's part of the program's time, in percent."""
    driver = row["all_driver_time_us"]
    return 100 * driver / (driver + EVENT_US * row["events"] * len(row["driver_calls_by_pass"]))


def median_and_most(values):
    return f"{statistics.median(values):.3f}, {max(values):.3f}"


def varied(pool):
    """Prints rows of the tables of programs whose sizes vary."""
    kinds = [(percent, keep) for percent in VARIATIONS for keep in ([], ["--keep"])]
    jobs = list(itertools.product(TRACES, range(len(kinds)), SEEDS))
    rows = pool.map(
        lambda job: replay("--vary", f"{kinds[job[1]][0]}%:seed={job[2]}", *kinds[job[1]][1], job[0]), jobs
    )
    found = {}
    for (trace, kind, _), row in zip(jobs, rows):
        found.setdefault((trace, kind), []).append(row)
    for keep in (False, True):
        title = "and what lives for more than half of a pass stays" if keep else "all is freed behind each pass"
        yield f"\nSizes vary, {title} (`--vary P%:seed=S{' --keep' if keep else ''}`):\n"
        yield "| trace | " + " | ".join(f"{percent} %" for percent in VARIATIONS) + " | calls, last pass | driver |"
        yield "|---|" + "---|" * (len(VARIATIONS) + 2)
        for trace in TRACES:
            of = [found[trace, kind] for kind in range(len(kinds)) if bool(kinds[kind][1]) == keep]
            ratios = [median_and_most([row["life_reserved_over_live"] for row in rows]) for rows in of]
            every = [row for rows in of for row in rows]
            calls = [row["last_driver_calls"] for row in every]
            share = max(map(share_of_driver, every))
            name = trace.name.removesuffix(".trace.gz")
            last = f"{statistics.median(calls):.0f}, {max(calls)}"
            yield f"| {name} | " + " | ".join(ratios) + f" | {last} | {share:.2f} % |"


def long(pool):
    """Prints rows of the table of lives with very many passes."""
    jobs = list(itertools.product(TRACES, LONG_SEEDS))
    rows = pool.map(
        lambda job: replay("--vary", f"{LONG_PERCENT}%:seed={job[1]}", job[0], passes=LONG_PASSES), jobs
    )
    found = {}
    for (trace, _), row in zip(jobs, rows):
        found.setdefault(trace, []).append(row)
    yield f"\n{LONG_PASSES} passes, whose sizes vary by up to {LONG_PERCENT} %, {len(LONG_SEEDS)} seeds; *calls* are the mean of a pass, over all seeds:\n"
    yield "| trace | ratio: median, most | " + " | ".join(f"calls, passes {of[0]} to {of[1]}" for of in PARTS) + " | driver |"
    yield "|---|---|" + "---|" * (len(PARTS) + 1)
    for trace, of in found.items():
        ratio = median_and_most([row["life_reserved_over_live"] for row in of])
        calls = [statistics.mean(n for row in of for n in row["driver_calls_by_pass"][low - 1:high]) for low, high in PARTS]
        share = max(map(share_of_driver, of))
        name = trace.name.removesuffix(".trace.gz")
        yield f"| {name} | {ratio} | " + " | ".join(f"{n:.0f}" for n in calls) + f" | {share:.2f} % |"


def together(pool):
    """Prints rows of the table of programs that share an allocator."""
    by_name = {trace.name.removesuffix(".trace.gz"): trace for trace in TRACES}
    groups = list(itertools.combinations(by_name, 2)) + [tuple(by_name)]
    jobs = list(itertools.product(("alternate", "beside"), groups))
    rows = pool.map(lambda job: replay("--together", job[0], *(by_name[name] for name in job[1])), jobs)
    yield "\nTwo programs, or all of them, on one allocator (`--together HOW`):\n"
    yield "| HOW | programs | ratio: median, most | most, with | calls, last pass | driver |"
    yield "|---|---|---|---|---|---|"
    found = list(zip(jobs, rows))
    for how in ("alternate", "beside"):
        for is_pair in (True, False):
            of = [(group, row) for (by, group), row in found if by == how and (len(group) == 2) == is_pair]
            ratios = [row["life_reserved_over_live"] for _, row in of]
            worst = " and ".join(of[ratios.index(max(ratios))][0]) if is_pair else "all"
            calls = [row["last_driver_calls"] for _, row in of]
            share = max(share_of_driver(row) for _, row in of)
            what = f"{len(of)} pairs" if is_pair else "all seven"
            last = f"{statistics.median(calls):.0f}, {max(calls)}"
            yield f"| {how} | {what} | {median_and_most(ratios)} | {worst} | {last} | {share:.2f} % |"


def main():
    subprocess.run(["cargo", "build", "--release", "-p", "millpond-cli"], cwd=ROOT, check=True)
    head = f"""# Long lives

`scripts/lives.py`: the recorded programs, {PASSES} passes of each, under `paged` on the simulated device, which is always
done. Ratios are of the most that was reserved by the end of a pass to the most that was live by then, behind the pass
where that is worst: the median and the most of {len(SEEDS)} seeds. *calls, last pass* are the driver's: the median and the most.
*driver* is the most of the driver's share in the time of a program that takes {EVENT_US} us from one event to the next beside
it, the first pass included."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = [head, *varied(pool), *long(pool), *together(pool)]
    _, by_hand, rest = RECORD.read_text().partition(BY_HAND) if RECORD.exists() else ("", "", "")
    RECORD.write_text("\n".join(lines) + "\n" + by_hand + rest)
    print(RECORD.relative_to(ROOT))


if __name__ == "__main__":
    main()
