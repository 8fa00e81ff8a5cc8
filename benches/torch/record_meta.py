"""Records what programs ask of their allocator, without a GPU: on torch's meta device, whose tensors have sizes and
lifetimes, and no bytes.

    python benches/torch/record_meta.py FOLDER [--only gpt2,detect] [--steps 24] [--seed 100]
    python benches/torch/record_meta.py FOLDER --libraries [--only clip,lora] [--steps 6]
    millpond replay --device sim --policy paged,expandable --passes 4 FOLDER/*.trace.gz

The programs are the ten of programs.py and, where they are named, six more: detect, segment, video, audio, points,
diffusion. With --libraries they are those of libraries.py that need no values: clip, segformer, timm_train and more, as
``LIBRARIES`` below names them. FOLDER gets a trace of each, NAME.trace.gz, in the sizes that it has on a GPU, or
NAME-SEED.trace.gz with a seed, by which other sizes are drawn. A block is a tensor's memory, from the operation that
makes it until nothing refers to it. What operations take for themselves and give back before they return, such as the
workspaces of cuBLAS and cuDNN, is not in the trace, and there is no mixed precision: programs that use it on a GPU have
float32 here. How many tokens an expert of `moe` gets is drawn, as no tensor has values. A number that a library reads
from a tensor is 1, and a truth is true: a mask has no padding, and a generated text goes on. Nothing else depends on
values, so that a program is recorded alike in every run.
"""

import argparse
import contextlib
import gzip
import json
import math
import pathlib
import random
import weakref

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import libraries
from programs import MORE, NAMES, load
from programs.allocators import chosen
from programs.measure import drive
from programs.setting import Setting

# The programs of libraries.py that run without values.
LIBRARIES = ("rollouts", "dynamic_cache", "static_cache", "experts_generate", "clip", "segformer", "timm_train",
             "timm_distil", "separation", "deeplab", "video", "diffusers_train", "lora")


class Recorder:
    """The events so far, and which memory is live."""

    def __init__(self):
        self.lines, self.stream = [], 0
        self.numbers = {}
        self.count = self.live = self.peak = 0

    def see(self, value):
        """Notes the memory of a tensor, if it is new."""
        if not isinstance(value, torch.Tensor) or not value.is_meta:
            return
        memory = value.untyped_storage()
        key, size = memory._cdata, memory.nbytes()
        if size == 0 or key in self.numbers:
            return
        number, self.count = self.count, self.count + 1
        self.lines.append(f"a {number} {size} {self.stream}")
        self.live += size
        self.peak = max(self.peak, self.live)

        def freed(_):
            del self.numbers[key]
            self.live -= size
            self.lines.append(f"f {number}")

        self.numbers[key] = number, weakref.ref(memory, freed)

    def use(self, tensor, stream):
        """Notes that another stream uses a tensor."""
        number, _ = self.numbers[tensor.untyped_storage()._cdata]
        self.lines.append(f"u {number} {stream}")


class Watch(TorchDispatchMode):
    """Shows the results of all operations to a recorder, and makes up what depends on values."""

    def __init__(self, recorder):
        super().__init__()
        self.recorder, self.draw = recorder, random.Random(1)

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            return True if arguments[0].dtype == torch.bool else 1
        if function is torch.ops.aten.nonzero.default:
            result = self.some(*arguments)
        else:
            result = function(*arguments, **(named or {}))
        for value in tree_leaves(result):
            self.recorder.see(value)
        return result

    def some(self, mask):
        """Returns places in a mask of the tokens that chose an expert, for an eighth of them in the mean."""
        count = round(len(mask) / 8 * self.draw.uniform(0.2, 1.8))
        return torch.empty(max(count, 1), mask.dim(), dtype=torch.int64, device=mask.device)


class Meta(Setting):
    """The sizes of a GPU, on a device without bytes, and streams that are numbers."""

    def __init__(self, recorder, seed):
        super().__init__("meta", seed=seed)
        self.recorder = recorder

    def autocast(self, dtype=torch.bfloat16):
        return contextlib.nullcontext()

    def streams(self, count):
        return list(range(1, count + 1))

    def current(self):
        return 0

    @contextlib.contextmanager
    def on(self, stream):
        usual, self.recorder.stream = self.recorder.stream, stream
        try:
            yield
        finally:
            self.recorder.stream = usual

    def used(self, tensor, stream):
        self.recorder.use(tensor, stream)
        return tensor


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Returns attention by the fused operations that a GPU has. The meta device has one that keeps all scores."""
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (part.repeat_interleave(groups, -3) for part in (key, value))
    fused = torch.ops.aten
    if attn_mask is None:
        return fused._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -math.inf)
    attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
    return fused._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, query.requires_grad, dropout_p, is_causal, scale=scale)[0]


def record(program, steps, seed):
    """Runs a program. Returns the recorder."""
    recorder = Recorder()
    with Watch(recorder):
        running = drive(program, Meta(recorder, seed), steps, lambda loss: None)
        if running is not None:
            running.close()
    return recorder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", type=chosen(NAMES + MORE + LIBRARIES), metavar="PROGRAM,...")
    parser.add_argument("--libraries", action="store_true", help="names are those of programs of libraries.py")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0, help="draws other sizes")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error("there is at least 1 step")
    known = LIBRARIES if arguments.libraries else NAMES + MORE
    names = arguments.only or list(LIBRARIES if arguments.libraries else NAMES)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    functional.scaled_dot_product_attention = attention
    for name in names:
        program = libraries.load(name) if arguments.libraries else load(name).steps
        recorder = record(program, arguments.steps, arguments.seed)
        facts = {"workload": name, "torch": torch.__version__, "peak_requested": recorder.peak}
        drawn = f"{name}-{arguments.seed}" if arguments.seed else name
        with gzip.open(arguments.folder / f"{drawn}.trace.gz", "wt") as file:
            file.write("\n".join([f"# {json.dumps(facts)}", *recorder.lines, ""]))
        print(f"{name}: {len(recorder.lines)} events, {recorder.peak / 2**30:.2f} GiB live", flush=True)


if __name__ == "__main__":
    main()
