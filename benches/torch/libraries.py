"""Programs that are made of other people's libraries, on PyTorch's allocators and on Millpond.

    python benches/torch/libraries.py --together --by-turns [--part 1/3] [--only trainer,rcnn] [--out FOLDER]
    python benches/torch/libraries.py --together --rounds 3                 # one allocator after another, in rounds
    python benches/torch/libraries.py --device cpu --tiny --together --rounds 1 --steps 3   # without a GPU

The programs are in the folder beside this file, whose first file lists them: models of transformers, timm, torchvision,
torchaudio, diffusers, PyTorch Geometric, gpytorch, torchdiffeq and e3nn, trained or run by the libraries' own trainers
and pipelines, by peft, accelerate, lightning, trl and sentence-transformers, compiled, and captured in CUDA graphs. The
libraries' code is unmodified. Weights are random, data is made up, nothing is downloaded, and the sizes of step n are
the same in every run. A program whose library is not installed is SKIPPED, with what is missing.

Allocators, rows, tables and options are those of programs.py, with these differences. Each program has its own number
of steps, which take a GPU some seconds. Requests to the driver are those after the first quarter of the steps. The
allocator `control` is there unless left out: what it takes over native, and how far its losses are from native ones, is
what two processes differ by that do the same. Means and worst cases are given apart for programs that use memory pools
of CUDA graphs or their own, whose free memory the rest cannot use, and for all others.

--part 1/3 runs the first of three parts of the programs, of about the same length: ten minutes do not suffice for all.
With --together the libraries are imported once for each allocator, which takes longer than most programs.
--out FOLDER, or the variable OUT, gets libraries.json and libraries.md, or libraries-1-3.json of a part, and so on.
--merge FILE... writes the tables of several such files, of parts, of rounds or of both, to merged.md beside the first.
"""

import argparse
import json
import pathlib
import sys

from libraries import PROGRAMS, load
from programs import tables
from programs.compare import Catalogue, measured, parser


class Libraries(Catalogue):
    """The programs of the folder beside this file."""

    settled = 0.25
    first = ("native", "control", "expandable", "async", "millpond")

    def load(self, name):
        return load(name)

    def steps(self, name, arguments):
        return arguments.steps or PROGRAMS[name].steps

    def needs(self, name):
        return PROGRAMS[name].needs

    def kind(self, name):
        return PROGRAMS[name].kind


def part(text):
    """Returns the number of a part, from 1 on, and how many there are."""
    number, of = map(int, text.split("/"))
    if not 1 <= number <= of:
        raise argparse.ArgumentTypeError("as in 2/3: the number of a part, and how many there are")
    return number, of


def merged(catalogue, files):
    """Returns the tables of the rows in several files, and writes them beside the first."""
    rows = [row for file in files for row in json.loads(file.read_text())]
    catalogue.file = "merged"
    return tables.write(catalogue, files[0].parent, rows)


def main():
    catalogue = Libraries(__doc__, __file__, "libraries", PROGRAMS)
    made = parser(catalogue)
    made.add_argument("--part", type=part, metavar="NUMBER/OF", help="run only this part of the programs")
    made.add_argument("--merge", type=pathlib.Path, nargs="+", metavar="FILE", help="only write the tables of files")
    arguments = made.parse_args()
    if arguments.merge:
        print(merged(catalogue, arguments.merge))
        return 0
    if arguments.part:
        number, of = arguments.part
        # By turns, so that each part has programs of every kind.
        arguments.only = arguments.only[number - 1::of]
        catalogue.file += f"-{number}-{of}"
    return measured(catalogue, arguments)


if __name__ == "__main__":
    sys.exit(main())
