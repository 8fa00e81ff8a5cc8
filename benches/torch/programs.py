"""Ten programs on PyTorch's allocators and on Millpond, each allocator in processes of its own, one after another.

    python benches/torch/programs.py [--only gpt2,gnn] [--allocators native,millpond] [--rounds 3] [--together]
    python benches/torch/programs.py --by-turns --allocators native,control,millpond    # the times of steps
    python benches/torch/programs.py --device cpu --tiny        # whether the programs work, without a GPU

native     PyTorch's allocator
control    the same once more: how far two processes differ that do the same
expandable the same with expandable_segments:True
async      PyTorch's back end cudaMallocAsync
millpond   Millpond as it is, with the policy paged; `tight` is the same with growth:tight, `classic` with
           policy:classic, and `entry` by MILLPOND_TORCH=1 alone

The programs are in the folder beside this file: gpt2, llama, resnet50, generate, bert, gnn, unet, moe, loader, serving.
Weights are random, data is made up, nothing is downloaded, and the sizes of step n are the same in every run.

For each program and allocator there is one row: the most that was reserved and live in all steps, their ratio, the
median time of a step in the second half and the median of what each of these steps takes over the same one natively,
how often the allocator had to retry, its requests to the driver in the second half, and the last loss, which should
agree.
Requests are memory taken and given back, or mapped and unmapped (num_device_alloc and num_device_free); cudaMallocAsync
does not tell. Of Millpond the table has in brackets its calls of every kind and its waits for the device, from
millpond.torch.stats(). Of several rounds, the time of each step is the median of them, and reserved bytes are the most;
what steps take over the native ones is the median of all steps of all rounds, and in brackets are the least and the
greatest median of one round.

A host may be slow for seconds, and steps of two processes that run one behind the other may differ by half for that
alone. With --by-turns the allocators' processes exist at the same time and take steps in turn, so that each step is
compared with one that was taken right before or behind it. The device holds the memory of all of them then.

With --together a process runs all programs, with an empty cache and new peaks for each, which saves PyTorch's start.
A step with a shape that is new to the process takes 100 ms and more longer in unet and resnet50, most likely as cuDNN
prepares itself, and differs from process to process: with 60 steps, unless told otherwise, most shapes of the second
half are not new. Attention is PyTorch's own: cuDNN's, which --cudnn-attention leaves on, is compiled for each new shape,
and the compiler took more than half of bert's time.
--out FOLDER, or the variable OUT, gets programs.json and programs.md.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import time
import traceback

from programs import NAMES, load
from programs import turns
from programs.allocators import ALLOCATORS, asked, chosen, enable, rows, start_anew, tell

FIRST = ("native", "expandable", "async", "millpond")


def measure(name, allocator, setting, steps, turn):
    """Runs a program, and returns its row. Calls `turn` before each step."""
    import torch

    if setting.is_cuda:
        start_anew()
    left = torch.cuda.memory_reserved() if setting.is_cuda else 0
    times, loss, before = [], None, {}
    began = last = time.perf_counter()
    running = load(name).steps(setting, steps)
    for step in range(steps):
        if step == steps // 2 and setting.is_cuda:
            before = asked(allocator)
        turn()
        last = time.perf_counter()
        loss = next(running)
        if setting.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - last)
    row = {
        "program": name,
        "allocator": allocator,
        "steps": steps,
        "times": [round(1000 * time, 3) for time in times],
        "seconds": time.perf_counter() - began,
        "loss": float(loss),
    }
    if setting.is_cuda:
        after, stats = asked(allocator), torch.cuda.memory_stats()
        row["reserved"] = stats["reserved_bytes.all.peak"]
        row["live"] = stats["allocated_bytes.all.peak"]
        row["left"] = left
        row["retries"] = stats["num_alloc_retries"]
        row["driver"] = {key: value - before[key] for key, value in after.items()}
    running.close()
    return row


def leave_out_cudnn_attention(arguments):
    """Has PyTorch use its own attention kernels. Those of cuDNN are compiled anew for each shape of a request, and a
    program whose shapes vary, like bert, spends most of its time in that compiler, whatever its allocator."""
    import torch

    torch.backends.cuda.enable_cudnn_sdp(arguments.cudnn_attention)


def child(arguments):
    """Runs the programs in this process, and prints a row of each. After one that fails, the others run."""
    if arguments.device == "cuda":
        enable(arguments.child)
        leave_out_cudnn_attention(arguments)
    from programs.setting import Setting

    failed, turn = 0, turns.take if arguments.turns else lambda: None
    for name in arguments.only:
        try:
            tell(measure(name, arguments.child, Setting(arguments.device, arguments.tiny), arguments.steps, turn))
        except Exception:
            failed += 1
            print(f"{name}: {traceback.format_exc(-3)}", file=sys.stderr, flush=True)
    return 1 if failed else 0


def run(names, allocators, arguments):
    """Runs programs on allocators, each in a new process, one behind the other or by turns. Returns their rows, fewer
    if one failed, which is printed."""
    options = ["--only", ",".join(names), "--steps", arguments.steps, "--device", arguments.device]
    options += ["--cudnn-attention"] * arguments.cudnn_attention + ["--tiny"] * arguments.tiny
    limit = arguments.timeout * len(names)
    if arguments.by_turns:
        found, failed = turns.play(__file__, options, allocators, limit * len(allocators))
        print("\n".join(map(line, found)), flush=True)
    else:
        found, failed = [], {}
        for allocator in allocators:
            mine, failed[allocator] = rows(__file__, options, allocator, limit)
            print("\n".join(map(line, mine)), flush=True)
            found += mine
    for allocator, why in failed.items():
        if why:
            missing = set(names) - {row["program"] for row in found if row["allocator"] == allocator}
            print(f"{', '.join(missing) or 'the end'} on {allocator}: {why}", file=sys.stderr, flush=True)
    return found


def summed(rounds):
    """Returns one row for all rounds of a program on an allocator."""
    row = dict(max(rounds, key=lambda row: row.get("reserved", 0)))
    row["times"] = [statistics.median(step) for step in zip(*(row["times"] for row in rounds))]
    row["later"] = [later(one["times"]) for one in rounds]
    return row


def later(times):
    """Returns the times of the steps in the second half, in milliseconds."""
    return times[len(times) // 2:]


def over(row, native):
    """Returns what each step of the second half takes over the same step of the same round natively: a list for each
    round."""
    return [[mine / its for mine, its in zip(*both)] for both in zip(row["later"], native["later"])]


def median_over(row, native):
    """Returns the median of what all these steps take over the native ones."""
    return statistics.median(ratio for each in over(row, native) for ratio in each)


HEAD = """\
| program | allocator | reserved GiB | live GiB | reserved / live | ms a step | over native | retries | driver requests \
| loss |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"""


def told(row, native):
    """Returns what steps take over the native ones as a cell of the table."""
    each = [statistics.median(ratios) for ratios in over(row, native)]
    return f"{median_over(row, native):.3f} ({min(each):.3f} to {max(each):.3f})"


def line(row, native=None):
    """Returns a row as a line of the table, with its times over those of the row that is given."""
    cells = [row["program"], row["allocator"]]
    if "reserved" in row:
        of = row["driver"]
        requests = str(of["num_device_alloc"] + of["num_device_free"]) if of else "not told"
        if "driver.calls" in of:
            requests += f" ({of['driver.calls']} calls, {of['driver.stalls']} waits)"
        cells += [f"{row['reserved'] / 2**30:.2f}", f"{row['live'] / 2**30:.2f}"]
        cells += [f"{row['reserved'] / row['live']:.3f}"]
    else:
        cells += ["", "", ""]
    cells += [f"{statistics.median(later(row['times'])):.1f}", told(row, native) if native else ""]
    cells += [str(row["retries"]), requests] if "reserved" in row else ["", ""]
    return "| " + " | ".join([*cells, f"{row['loss']:.6f}"]) + " |"


def means(table):
    """Returns a table with the geometric means of reserved over live and of the time over native's, by allocator."""
    of = {(row["program"], row["allocator"]): row for row in table if "reserved" in row}
    lines = ["| allocator | programs | reserved / live | time over native's |", "|---|---:|---:|---:|"]
    for allocator in dict.fromkeys(key[1] for key in of):
        mine = [row for row in of.values() if row["allocator"] == allocator]
        both = [(row, of[row["program"], "native"]) for row in mine if (row["program"], "native") in of]
        ratio = math.exp(statistics.fmean(math.log(row["reserved"] / row["live"]) for row in mine))
        times = [math.log(median_over(row, native)) for row, native in both]
        speed = f"{math.exp(statistics.fmean(times)):.3f}" if times else ""
        lines.append(f"| {allocator} | {len(mine)} | {ratio:.3f} | {speed} |")
    return "\n".join(lines)


def write(folder, measured):
    """Writes all rows as JSON, and the tables."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "programs.json").write_text(json.dumps(measured, indent=1) + "\n")
    each = {}
    for row in measured:
        each.setdefault((row["program"], row["allocator"]), []).append(row)
    best = [summed(rounds) for rounds in each.values()]
    best.sort(key=lambda row: (NAMES.index(row["program"]), list(ALLOCATORS).index(row["allocator"])))
    native = {row["program"]: row for row in best if row["allocator"] == "native"}
    text = "\n".join([HEAD, *(line(row, native.get(row["program"])) for row in best)]) + "\n"
    if any("reserved" in row for row in best):
        text += "\n" + means(best) + "\n"
    (folder / "programs.md").write_text(text)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=chosen(NAMES), default=list(NAMES), metavar="PROGRAM,...")
    parser.add_argument("--allocators", type=chosen(ALLOCATORS), default=list(FIRST), metavar="ALLOCATOR,...")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--together", action="store_true", help="run all programs of an allocator in one process")
    parser.add_argument("--by-turns", action="store_true", help="have the allocators take steps in turn")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes of a test")
    parser.add_argument("--cudnn-attention", action="store_true", help="let cuDNN compile attention for each shape")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for each program")
    parser.add_argument("--out", default=os.environ.get("OUT", ""), help="a folder for programs.json and programs.md")
    parser.add_argument("--child", choices=list(ALLOCATORS), help=argparse.SUPPRESS)
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps < 2 or arguments.rounds < 1:
        parser.error("there are at least 2 steps and 1 round")
    if arguments.child:
        return child(arguments)
    on_cpu = ["native", "control"] if arguments.by_turns else ["native"]
    allocators = arguments.allocators if arguments.device == "cuda" else on_cpu
    groups = [arguments.only] if arguments.together else [[name] for name in arguments.only]
    measured, expected = [], 0
    print(HEAD, flush=True)
    for number in range(arguments.rounds):
        # Each round begins with another allocator, so that none is always the first on a cold device.
        turn = number % len(allocators)
        for names in groups:
            measured += run(names, allocators[turn:] + allocators[:turn], arguments)
            expected += len(names) * len(allocators)
            if arguments.out:
                write(arguments.out, measured)
    if arguments.out:
        print("\n" + write(arguments.out, measured))
    return 0 if len(measured) == expected else 1


if __name__ == "__main__":
    sys.exit(main())
