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
how often the allocator had to retry, its requests to the driver in the second half, and the last loss, with how the
losses of all steps compare with those of native runs: "equal" to one of them, "like control" if they are about as far
from one as native runs are from each other, or "DIFFERS", with both distances.
Requests are memory taken and given back, or mapped and unmapped (num_device_alloc and num_device_free); cudaMallocAsync
does not tell. Of Millpond the table has in brackets its calls of every kind and its waits for the device, from
millpond.torch.stats(). Of several rounds, the time of each step is the median of them, and reserved bytes are the most;
what steps take over the native ones is the median of all steps of all rounds, and in brackets are the least and the
greatest median of one round. A second table has the means, the worst, and what did not finish.

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

import sys

from programs import NAMES, load
from programs.compare import Catalogue, measured, parser


class Ten(Catalogue):
    """The ten programs of the folder beside this file."""

    def load(self, name):
        return load(name).steps


def main():
    ten = Ten(__doc__, __file__, "programs", NAMES)
    return measured(ten, parser(ten).parse_args())


if __name__ == "__main__":
    sys.exit(main())
