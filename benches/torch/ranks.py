"""Programs for two GPUs on PyTorch's allocators and on Millpond: whether results are the same to the bit, and what is
reserved.

    python benches/torch/ranks.py [--only ddp,fsdp] [--allocators native,millpond] [--steps 30] [--together]
    python benches/torch/ranks.py --device cpu --tiny      # whether the programs work, without a GPU

ddp         GPT-2 in DistributedDataParallel, with gradients that are views of buckets; 2 processes
fsdp        the same with fully_shard (FSDP2); at the end a checkpoint in files, and the whole state on one rank
collectives asynchronous collectives whose tensors are freed right behind, all_to_all, send and recv, objects
copies      copies between both GPUs in one process
parallel    GPT-2 in nn.DataParallel: one process with a thread for each GPU

The allocators are those of programs.py: native, expandable, millpond (enabled by two lines) and entry (MILLPOND_TORCH=1
and no code), one after the other, each in processes of its own; the programs of 2 processes are started by
torch.distributed.run. With --together a process runs all programs that have as many processes, which saves PyTorch's
start. Training is deterministic, and weights, tokens and sizes are drawn from fixed seeds.

There is a row for each rank, or for each GPU of one process: the most that was reserved and live in all steps, their
ratio, the median time of a step in the second half, the median of what each of these steps takes over the same step
natively, the last loss, a hash of all losses, one of what was computed (of the weights, in training), and whether all
three are those of the native allocator. What else is wrong ends a program.

--out FOLDER, or the variable OUT, gets ranks.json and ranks.md. Ends with 1 if something differs or fails on Millpond,
or fails on the native allocator, and with 77 at once if there are fewer than two GPUs. On the processor the back end is
gloo, and no allocator is in use: native runs twice, so that the comparison has something to compare.
"""

import argparse
import faulthandler
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

from programs.allocators import ALLOCATORS, chosen, enable, environment, is_millpond, start_anew
from ranks import PROGRAMS, load, processes

FIRST = ("native", "expandable", "millpond", "entry")
SKIPPED = 77


def measure(name, place, allocator, steps):
    """Runs a program. Returns a row for each device of this process."""
    import torch

    from ranks.place import Digest

    is_cuda = place.setting.is_cuda
    for device in place.devices if is_cuda else ():
        with torch.cuda.device(device):
            start_anew()
    program, digest, times, loss = load(name)(place), Digest(), [], None
    for step in range(steps):
        began = time.perf_counter()
        loss = program.step(step)
        place.wait()
        times.append((time.perf_counter() - began) * 1000)
        if loss is not None:
            digest.add(loss)
    row = {
        "program": name,
        "allocator": allocator,
        "steps": steps,
        "times": [round(time, 3) for time in times],
        "loss": "" if loss is None else float(loss).hex(),
        "losses": "" if loss is None else digest.text(),
    }
    rows = []
    for at, device in enumerate(place.devices):
        rows.append({**row, "rank": place.rank + at})
        if is_cuda:
            stats = torch.cuda.memory_stats(device)
            rows[-1]["reserved"] = stats["reserved_bytes.all.peak"]
            rows[-1]["live"] = stats["allocated_bytes.all.peak"]
            rows[-1]["retries"] = stats["num_alloc_retries"]
    result = program.finish()
    return [{**row, "result": result} for row in rows]


def child(arguments):
    """Runs programs in this process, which writes their rows, or why there are none, into the folder."""
    allocator, folder, is_alone = arguments.child, pathlib.Path(arguments.rows), processes(arguments.only[0]) == 1
    number = "0" if is_alone else os.environ["RANK"]
    wrong = open(folder / f"wrong-{number}", "w")  # noqa: SIM115: it is written to until the end
    # Says where each thread stands, if a collective does not end, and where a signal has ended the process.
    faulthandler.enable(wrong)
    faulthandler.dump_traceback_later(arguments.timeout * len(arguments.only), exit=True, file=wrong)
    try:
        if arguments.device == "cuda":
            enable(allocator)
        import torch

        from ranks.place import Place, make_deterministic

        make_deterministic()
        if arguments.device == "cuda":
            backend, expected = torch.cuda.get_allocator_backend(), "millpond" if is_millpond(allocator) else "native"
            assert allocator == "async" or backend == expected, f"the allocator is {backend}, not {expected}"
        place = Place(arguments.device, arguments.tiny, is_alone)
        place.join()
        for name in arguments.only:
            rows = measure(name, place, allocator, arguments.steps)
            (folder / f"rows-{name}-{number}").write_text(json.dumps(rows))
        place.leave()
    except BaseException:
        wrong.write(traceback.format_exc(-6))
        raise
    finally:
        wrong.flush()
    faulthandler.cancel_dump_traceback_later()
    return 0


def command(names, allocator, arguments, folder):
    """Returns the command that runs programs."""
    start = [sys.executable]
    if processes(names[0]) > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes(names[0]))]
    options = ["--child", allocator, "--only", ",".join(names), "--rows", folder, "--steps", str(arguments.steps)]
    options += ["--device", arguments.device, "--timeout", str(arguments.timeout)] + ["--tiny"] * arguments.tiny
    return [*start, os.path.abspath(__file__), *options]


def run(names, allocator, arguments):
    """Runs programs of as many processes each on an allocator, in new processes. Returns their rows, none of those that
    failed, and why they did: a text that is empty if all have succeeded."""
    settings = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_NVLS_ENABLE": "0", **environment(allocator)}
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "said"), "w+") as said:
        asked = command(names, allocator, arguments, folder)
        started = subprocess.Popen(asked, stdout=said, stderr=said, env=settings, start_new_session=True)
        try:
            # The processes end themselves before; the rest is for the start.
            code = started.wait(arguments.timeout * len(names) + 40)
        except subprocess.TimeoutExpired:
            code = "too late"
            end(started)
        rows = []
        for name in names:
            files = sorted(pathlib.Path(folder).glob(f"rows-{name}-*"))
            if len(files) == processes(name):
                rows += [row for path in files for row in json.loads(path.read_text())]
        if code == 0:
            return rows, ""
        said.seek(0)
        texts = [path.read_text() for path in sorted(pathlib.Path(folder).glob("wrong-*"))]
        why = "\n".join(text[-2500:] for text in texts if text) or said.read()[-2500:]
        return rows, f"exit code {code}\n{why}"


def end(started):
    """Ends a process and those that it has started, which it does itself if it is asked."""
    started.terminate()
    try:
        started.wait(40)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def native_of(row, measured):
    """Returns the row of the native allocator that a row is compared with, which is ``None`` for that row itself."""
    for of in measured:
        if of["allocator"] == "native" and (of["program"], of["rank"]) == (row["program"], row["rank"]):
            return None if of is row else of
    return None


def compare(row, measured):
    """Returns whether a row has the losses and the result of the native allocator's: a word, empty for that one."""
    native = native_of(row, measured)
    if native is None:
        return "" if row["allocator"] == "native" else "NOTHING TO COMPARE"
    keys = [key for key in ("loss", "losses", "result") if row[key] != native[key]]
    return f"DIFFERS: {', '.join(keys)}" if keys else "same"


def later(row):
    """Returns the times of the steps in the second half, in milliseconds."""
    return row["times"][len(row["times"]) // 2:]


HEAD = """\
| program | allocator | rank | reserved GiB | live GiB | ratio | ms a step | over native | retries | last loss \
| hashes | as native |
|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|---|"""


def line(row, measured):
    """Returns a row as a line of the table."""
    cells, native = [row["program"], row["allocator"], str(row["rank"])], native_of(row, measured)
    if "reserved" in row:
        cells += [f"{row['reserved'] / 2**30:.3f}", f"{row['live'] / 2**30:.3f}"]
        cells += [f"{row['reserved'] / row['live']:.3f}"]
    else:
        cells += ["", "", ""]
    ratios = [mine / its for mine, its in zip(later(row), later(native))] if native else []
    cells += [f"{statistics.median(later(row)):.1f}", f"{statistics.median(ratios):.3f}" if ratios else ""]
    cells += [str(row.get("retries", "")), row["loss"], f"{row['losses']} {row['result']}".strip()]
    return "| " + " | ".join([*cells, compare(row, measured)]) + " |"


def write(folder, measured, failed):
    """Writes all rows as JSON, and the table."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ranks.json").write_text(json.dumps({"rows": measured, "failed": failed}, indent=1) + "\n")
    lines = [HEAD, *(line(row, measured) for row in measured)]
    (folder / "ranks.md").write_text("\n".join(lines) + "\n")


def parsed():
    """Returns the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=chosen(PROGRAMS), default=list(PROGRAMS), metavar="PROGRAM,...")
    parser.add_argument("--allocators", type=chosen(ALLOCATORS), default=list(FIRST), metavar="ALLOCATOR,...")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--together", action="store_true", help="run the programs of an allocator in one process each")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes of a test")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for each program")
    parser.add_argument("--out", default=os.environ.get("OUT", ""), help="a folder for ranks.json and ranks.md")
    parser.add_argument("--child", choices=list(ALLOCATORS), help=argparse.SUPPRESS)
    parser.add_argument("--rows", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps < 2:
        parser.error("there are at least 2 steps")
    return arguments


def turns(arguments):
    """Returns which programs run together, and on which allocator, in order."""
    allocators = arguments.allocators if arguments.device == "cuda" else ["native", "native"]
    groups = [[name] for name in arguments.only]
    if arguments.together:
        groups = [[name for name in arguments.only if processes(name) == count] for count in (2, 1)]
    return [(names, allocator) for names in groups if names for allocator in allocators]


def main():
    arguments = parsed()
    if arguments.child:
        return child(arguments)
    if arguments.device == "cuda":
        import torch

        if torch.cuda.device_count() < 2:
            print(f"ranks: SKIPPED: it takes two GPUs, and there are {torch.cuda.device_count()}", file=sys.stderr)
            return SKIPPED
    measured, failed, wrong = [], [], 0
    print(HEAD, flush=True)
    for names, allocator in turns(arguments):
        rows, why = run(names, allocator, arguments)
        measured += rows
        # What PyTorch's other allocators do there is shown, and is no failure.
        counts = allocator == "native" or is_millpond(allocator)
        if why:
            missing = [name for name in names if name not in [row["program"] for row in rows]]
            missing = ", ".join(missing) or f"the end of {', '.join(names)}"
            failed.append({"programs": missing, "allocator": allocator, "why": why})
            print(f"FAILED: {missing} on {allocator}", flush=True)
            print(f"{missing} on {allocator}: {why}", file=sys.stderr, flush=True)
        wrong += counts * (bool(why) + sum(compare(row, measured) not in ("", "same") for row in rows))
        for row in rows:
            print(line(row, measured), flush=True)
        if arguments.out:
            write(arguments.out, measured, failed)
    print(f"\n{len(failed)} failed, {sum('DIFFERS' in compare(row, measured) for row in measured)} rows differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
