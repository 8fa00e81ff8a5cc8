"""PyTorch, CuPy and RMM in one process: what they reserve together, over the most that they have live at one time.

    python benches/torch/joint.py [--steps 40] [--goal 1.05]

The program reads a batch into columns of RMM, turns them into features with CuPy, and trains a model on them with
PyTorch, step by step with sizes that vary. What one phase has freed the next one could use. Each way to run it has a
process of its own, which does the same, to the byte:

    separate   each library on its own pool: PyTorch's native allocator, CuPy's pool, RMM's pool
    classic    all three on Millpond, policy:classic
    paged      all three on Millpond, policy:paged

Prints a line for each way, and fails if `paged` reserves more than the goal times what was live. A package that is
missing skips it.
"""

import argparse
import json
import random
import subprocess
import sys

MIB = 1 << 20
WAYS = ("separate", "classic", "paged")


class Separate:
    """Each library on its own pool. What is live and reserved is looked at where the program calls `look`."""

    def __init__(self, torch, cupy, rmm):
        self.torch, self.cupy = torch, cupy
        self.cuda = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
        self.pool = rmm.mr.StatisticsResourceAdaptor(rmm.mr.PoolMemoryResource(self.cuda, initial_pool_size=2 * MIB))
        rmm.mr.set_current_device_resource(self.pool)
        self.most = {"live": 0, "reserved": 0}

    def look(self):
        pool = self.cupy.get_default_memory_pool()
        others = {
            "live": pool.used_bytes() + self.pool.allocation_counts.current_bytes,
            "reserved": pool.total_bytes() + self.cuda.allocation_counts.current_bytes,
        }
        torchs = {"live": self.torch.cuda.max_memory_allocated(), "reserved": self.torch.cuda.max_memory_reserved()}
        self.torch.cuda.reset_peak_memory_stats()
        for key, most in self.most.items():
            self.most[key] = max(most, others[key] + torchs[key])

    def peaks(self):
        self.look()
        return self.most


class Shared:
    """All libraries on Millpond, which knows the peaks of all of them together."""

    def __init__(self, conf):
        import millpond.cupy
        import millpond.rmm
        import millpond.torch

        millpond.torch.enable(conf)
        millpond.cupy.enable()
        millpond.rmm.enable()

    def look(self):
        pass

    def peaks(self):
        import millpond.torch

        stats = millpond.torch.stats(0)
        return {"live": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"]}


class Program:
    """The three phases of a step. RMM has a stream of its own, and the others have the default stream."""

    def __init__(self, torch, cupy, rmm, look):
        from rmm.pylibrmm.stream import Stream

        self.torch, self.cupy, self.rmm, self.look = torch, cupy, rmm, look
        self.draw = random.Random(0)
        self.stream = Stream()
        torch.manual_seed(0)
        layers = [torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)]
        self.model = torch.nn.Sequential(*layers).cuda()
        self.optimiser = torch.optim.AdamW(self.model.parameters())

    def step(self):
        """Runs a step, and returns the loss."""
        rows = 1024 * self.draw.randint(4, 64)
        self.decode(rows)
        features = self.features(rows)
        return self.train(features)

    def decode(self, rows):
        """Reads a batch: encoded pages and decoded columns, of which nothing stays."""
        columns = []
        for _ in range(8):
            size = rows * self.draw.choice((512, 1024, 2048))
            page = self.rmm.DeviceBuffer(size=size // 2, stream=self.stream)
            columns.append(self.rmm.DeviceBuffer(size=size, stream=self.stream))
            del page
            self.look()
        self.stream.synchronize()

    def features(self, rows):
        """Makes the features of the batch, with scratch that grows. None of this takes a kernel of CuPy's, for which a
        compiler would have to be there."""
        kept = self.cupy.zeros((rows, 1024), dtype=self.cupy.float32)
        for part in range(1, 5):
            scratch = self.cupy.zeros((rows * part // 4, 1024), dtype=self.cupy.float32)
            twin = scratch.copy()
            self.look()
            del scratch, twin
        return kept

    def train(self, features):
        data = self.torch.from_dlpack(features)
        loss = (self.model(data) - data - 1).square().mean()
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.look()
        return float(loss.detach())


def child(way, steps):
    import cupy
    import rmm
    import rmm.mr
    import torch

    counted = Separate(torch, cupy, rmm) if way == "separate" else Shared(f"policy:{way}")
    program = Program(torch, cupy, rmm, counted.look)
    losses = [program.step() for _ in range(steps)]
    torch.cuda.synchronize()
    print(json.dumps({"loss": losses[-1], **counted.peaks()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--goal", type=float, default=0.0, help="the most that `paged` may reserve over what was live")
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        try:
            child(arguments.child, arguments.steps)
        except ImportError as error:
            print(f"SKIPPED: {error}", file=sys.stderr)
            return 77
        return 0
    print(f"{'way':10}{'live MiB':>10}{'reserved MiB':>14}{'over live':>11}   loss")
    ratio = 0.0
    for way in WAYS:
        command = [sys.executable, __file__, "--child", way, "--steps", str(arguments.steps)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300)
        if done.returncode != 0:
            return done.returncode
        found = json.loads(done.stdout.splitlines()[-1])
        ratio = found["reserved"] / found["live"]
        live, reserved = found["live"] >> 20, found["reserved"] >> 20
        print(f"{way:10}{live:10}{reserved:14}{ratio:11.3f}   {found['loss']:.6g}", flush=True)
    return 1 if arguments.goal and ratio > arguments.goal else 0


if __name__ == "__main__":
    sys.exit(main())
