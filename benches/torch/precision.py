"""What precision, scaling and checkpointing do to the memory of GPT-2, on PyTorch's allocators and on Millpond.

    python benches/torch/precision.py [--allocators native,millpond] [--steps 8]
    python benches/torch/precision.py --largest-batch [--gib 16]
    python benches/torch/precision.py --device cpu --tiny       # whether it works, without a GPU

The first trains GPT-2 with 124 million weights on batches of 8 whose length varies: in float32, in automatic mixed
precision (float16 with a scaler of gradients), and in the same with gradient checkpointing. It prints the most that was
live and reserved, their ratio, and the median time of a step.

The second finds the largest batch with which every one of twelve steps fits below a limit, which
set_per_process_memory_fraction sets, in mixed precision: a binary search in one process, which recovers from each
OutOfMemoryError. The lengths are the same in each attempt, and one of them is the longest. The figures are those of the
last attempt that fitted.

--out FOLDER, or the variable OUT, gets precision.json and precision.md, or largest.json and largest.md.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from programs.allocators import ALLOCATORS, chosen, enable, rows, start_anew, tell

# The kinds of training: whether in mixed precision, and whether with checkpoints.
MODES = {"float32": (False, False), "mixed": (True, False), "mixed, checkpoints": (True, True)}


class Training:
    """GPT-2 and what trains it."""

    def __init__(self, setting, is_mixed, checkpoints):
        import torch

        from programs import gpt2

        self.draw = setting.draw(1)
        self.setting, self.is_mixed = setting, is_mixed
        self.model, self.vocabulary = gpt2.model(setting, checkpoints=checkpoints)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.scaler = torch.amp.GradScaler(setting.device.type, enabled=is_mixed and setting.is_cuda)

    def step(self, batch, length):
        """Trains on one batch. Returns the loss."""
        import contextlib

        import torch

        from programs.blocks import next_token_loss

        tokens = self.setting.tokens(self.vocabulary, batch, length)
        with self.setting.autocast(torch.float16) if self.is_mixed else contextlib.nullcontext():
            loss = next_token_loss(self.model(tokens), tokens)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    def lengths(self, count):
        """Returns lengths, of which one in the middle is the longest."""
        least, most = self.setting.pick((128, 1024), (8, 24))
        found = [self.draw.randrange(least, most) for _ in range(count)]
        found[count // 2] = most
        return found

    def run(self, batch, lengths):
        """Trains on batches of these lengths. Returns the times of the steps in milliseconds, and the last loss."""
        import torch

        times, loss = [], None
        for length in lengths:
            began = time.perf_counter()
            loss = self.step(batch, length)
            if self.setting.is_cuda:
                torch.cuda.synchronize()
            times.append((time.perf_counter() - began) * 1000)
        return times, float(loss)


def figures(setting):
    """Returns what the allocator says since the last ``start_anew``."""
    import torch

    if not setting.is_cuda:
        return {}
    stats = torch.cuda.memory_stats()
    return {"live": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"],
            "retries": stats["num_alloc_retries"]}


def modes(setting, allocator, steps):
    """Measures each kind of training."""
    for name, (is_mixed, checkpoints) in MODES.items():
        if setting.is_cuda:
            start_anew()
        training = Training(setting, is_mixed, checkpoints)
        times, loss = training.run(setting.pick(8, 2), training.lengths(steps))
        row = {"training": name, "allocator": allocator, "step": statistics.median(times[steps // 2:]), "loss": loss}
        tell({**row, **figures(setting)})
        del training


def largest(setting, allocator, gib, steps):
    """Finds the largest batch that fits."""
    import torch

    if setting.is_cuda:
        # The share of what the driver calls the device's memory, which is what allocators take a share of.
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(gib * 2**30 / total, 1.0))
    training = Training(setting, True, False)
    lengths = training.lengths(steps)
    ooms, best = 0, None

    def attempt(batch):
        """Returns the figures of an attempt, or ``None`` if it did not fit."""
        if setting.is_cuda:
            start_anew()
        elif batch > 5:
            return None
        try:
            times, loss = training.run(batch, lengths)
        except torch.OutOfMemoryError:
            return None
        return {"batch": batch, "step": statistics.median(times), "loss": loss, **figures(setting)}

    # Fits with `low`, and not with `high`.
    low, high = 0, setting.pick(65, 9)
    while high - low > 1:
        middle = (low + high) // 2
        found = attempt(middle)
        if found is None:
            ooms, high = ooms + 1, middle
            # What the error has cut off: gradients, and a scaler that has not been asked.
            training.optimiser.zero_grad(set_to_none=True)
            training.scaler = torch.amp.GradScaler(setting.device.type, enabled=setting.is_cuda)
        else:
            low, best = middle, found
    tell({"allocator": allocator, "gib": gib, "ooms": ooms, **(best or {"batch": 0, "step": 0.0, "loss": 0.0})})


def table(found, is_largest):
    """Returns the rows as a table."""
    first = ["allocator", "largest batch"] if is_largest else ["training", "allocator"]
    head = [*first, "live GiB", "reserved GiB", "reserved / live", "ms a step", "retries", "loss"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + ("---:|" if is_largest else "---|") + "---:|" * 6]
    for row in found:
        cells = [row["allocator"], str(row["batch"])] if is_largest else [row["training"], row["allocator"]]
        if "live" in row:
            cells += [f"{row['live'] / 2**30:.2f}", f"{row['reserved'] / 2**30:.2f}"]
            cells += [f"{row['reserved'] / row['live']:.3f}"]
        else:
            cells += ["", "", ""]
        cells += [f"{row['step']:.1f}", str(row.get("retries", "")), f"{row['loss']:.6f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allocators", type=chosen(ALLOCATORS), metavar="ALLOCATOR,...",
                        help="native,millpond unless given, and expandable for the largest batch")
    parser.add_argument("--largest-batch", action="store_true")
    parser.add_argument("--gib", type=float, default=16.0, help="the limit for the largest batch")
    parser.add_argument("--steps", type=int, default=0, help="8 unless given, and 12 for the largest batch")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes of a test")
    parser.add_argument("--timeout", type=float, default=200.0, help="seconds for each allocator")
    parser.add_argument("--out", default=os.environ.get("OUT", ""), help="a folder for the tables")
    parser.add_argument("--child", choices=list(ALLOCATORS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    steps = arguments.steps or (12 if arguments.largest_batch else 8)
    if arguments.child:
        if arguments.device == "cuda":
            enable(arguments.child)
        from programs.setting import Setting

        setting = Setting(arguments.device, arguments.tiny)
        if arguments.largest_batch:
            return largest(setting, arguments.child, arguments.gib, steps)
        return modes(setting, arguments.child, steps)
    usual = ["native", "expandable", "millpond"] if arguments.largest_batch else ["native", "millpond"]
    allocators = (arguments.allocators or usual) if arguments.device == "cuda" else ["native"]
    options = ["--device", arguments.device, "--gib", arguments.gib, "--steps", steps]
    options += ["--tiny"] * arguments.tiny + ["--largest-batch"] * arguments.largest_batch
    found, failed = [], 0
    for allocator in allocators:
        more, why = rows(__file__, options, allocator, arguments.timeout)
        found += more
        if why:
            failed += 1
            print(f"{allocator}: {why}", file=sys.stderr, flush=True)
    text = table(found, arguments.largest_batch)
    print(text)
    if arguments.out:
        folder, name = pathlib.Path(arguments.out), "largest" if arguments.largest_batch else "precision"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        (folder / f"{name}.md").write_text(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
