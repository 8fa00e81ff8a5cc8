"""Writes a large snapshot of the form that torch.cuda.memory._dump_snapshot writes. It needs no PyTorch.

    python large_snapshot.py EVENTS FRAMES FILE [--stacks N]

A history of EVENTS events, each with a list of FRAMES frames of its own, whose dictionaries all lists share, as PyTorch
makes them. `--stacks 1000` has so many different stacks; without it the stack of each event differs from all others.
"""

import argparse
import pickle
import random

arguments = argparse.ArgumentParser()
arguments.add_argument("events", type=int)
arguments.add_argument("frames", type=int)
arguments.add_argument("file")
arguments.add_argument("--stacks", type=int)
arguments = arguments.parse_args()

draw = random.Random(1)
frames = [
    {"name": f"call_{number}", "filename": f"/srv/model/part_{number % 40}.py", "line": 10 + number}
    for number in range(4000)
]
SLOTS = [0x7F0000000000 + (number << 21) for number in range(512)]


def new_stack():
    start = draw.randrange(len(frames) - arguments.frames)
    stack = frames[start : start + arguments.frames]
    stack[0] = draw.choice(frames)
    stack[-1] = draw.choice(frames)
    return stack


stacks = [new_stack() for _ in range(arguments.stacks or 0)]
events, live, free, sizes = [], [], SLOTS[:], {}


def add(action, address):
    events.append(
        {
            "action": action,
            "addr": address,
            "size": sizes[address],
            "stream": 0,
            "time_us": 1_700_000_000_000_000 + 7 * len(events),
            "compile_context": "N/A",
            "user_metadata": "",
            "frames": list(draw.choice(stacks)) if stacks else new_stack(),
        }
    )


while len(events) < arguments.events:
    if free and (draw.random() < 0.5 or not live):
        address = free.pop()
        sizes[address] = draw.randrange(1, 2048) * 512
        live.append(address)
        add("alloc", address)
    else:
        address = live.pop(draw.randrange(len(live)))
        free.append(address)
        add("free_requested", address)
        add("free_completed", address)
del events[arguments.events :]


def segment(address):
    block = {"address": address, "size": 2 << 20, "requested_size": sizes[address], "state": "active_allocated"}
    block["frames"] = new_stack()
    rest = {"segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": new_stack()}
    allocated = {"total_size": 2 << 20, "allocated_size": 2 << 20, "active_size": 2 << 20}
    return {"device": 0, "address": address, "stream": 0, **allocated, **rest, "blocks": [block]}


snapshot = {
    "segments": [segment(address) for address in sorted(live)],
    "device_traces": [events],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
    "external_annotations": [],
}
with open(arguments.file, "wb") as file:
    pickle.dump(snapshot, file)
