#!/usr/bin/env python3
"""Makes the snapshots in crates/snapshot/tests/fixtures, as PyTorch writes them: scripts/snapshot-fixtures.py

Needs Python 3.8 or newer and nothing else. The same files come out on every machine.
"""

import io
import json
import pickle
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "crates/snapshot/tests/fixtures"
MIB = 1 << 20
BASE = 0x7F2C40000000
SIDE = 94026421337600  # the handle of a second stream


def frame(filename, line, name, **more):
    return {"name": name, "filename": filename, "line": line, **more}


LINEAR = [
    frame("??", 0, "torch::unwind::unwind()"),
    frame("??", 0, "at::detail::empty_generic()"),
    frame("/usr/lib/python3/torch/nn/modules/linear.py", 125, "forward"),
    frame("/app/train.py", 31, "step"),
]
ADAM = [frame("/usr/lib/python3/torch/optim/adam.py", 160, "_init_group", fx_node_name="adam")]
NO_FRAMES = []


def block(address, size, requested, state, frames):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def segment(device, address, stream, blocks, pool=(0, 0), **more):
    def total(states, key):
        return sum(b[key] for b in blocks if b["state"] in states)

    active = {"active_allocated", "active_pending_free"}
    size = sum(b["size"] for b in blocks)
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "allocated_size": total({"active_allocated"}, "size"),
        "active_size": total(active, "size"),
        "requested_size": total(active, "requested_size"),
        "stream": stream,
        "segment_type": "small" if size <= 2 * MIB else "large",
        "segment_pool_id": pool,
        "is_expandable": False,
        "frames": NO_FRAMES,
        "blocks": blocks,
        **more,
    }


def event(action, addr, size, stream, time_us, frames=None, pool=(0, 0), **more):
    entry = {"action": action, "device_free" if action == "oom" else "addr": addr, "size": size, "stream": stream}
    entry.update({"time_us": time_us, "compile_context": "N/A", "user_metadata": "", "pool_id": pool, **more})
    if frames is not None:
        entry["frames"] = frames
    return entry


SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8",
    "max_split_size": -1,
    "garbage_collection_threshold": 0.8,
    "expandable_segments": False,
    "roundup_power2_divisions": {"1": 0, "32768": 0},
}


def example():
    """A history that has lost its beginning, two streams, a private pool and a refusal."""
    t = 1_720_000_000_000_000
    return {
        "segments": [
            segment(0, BASE, 0, [
                block(BASE, 512, 400, "active_allocated", ADAM),
                block(BASE + 512, MIB, MIB, "active_allocated", LINEAR),
                block(BASE + 512 + MIB, MIB - 512, 0, "inactive", NO_FRAMES),
            ]),
            segment(0, BASE + 32 * MIB, SIDE, [
                block(BASE + 32 * MIB, 4 * MIB, 4 * MIB - 5, "active_pending_free", LINEAR),
                block(BASE + 36 * MIB, 16 * MIB, 0, "inactive", NO_FRAMES),
            ]),
            segment(0, BASE + 64 * MIB, 0, [
                block(BASE + 64 * MIB, 2 * MIB, 2 * MIB, "active_allocated", NO_FRAMES),
            ], pool=(0, 3)),
        ],
        "device_traces": [[
            event("segment_alloc", BASE, 2 * MIB, 0, t, NO_FRAMES),
            event("free_requested", BASE + 512 + MIB, 1000, 0, t + 10, LINEAR),
            event("free_completed", BASE + 512 + MIB, 1000, 0, t + 11, LINEAR),
            event("free_completed", BASE + 40 * MIB, 7 * MIB, SIDE, t + 12, NO_FRAMES),
            event("alloc", BASE + 512, MIB, 0, t + 20, LINEAR),
            event("segment_alloc", BASE + 32 * MIB, 20 * MIB, SIDE, t + 21, NO_FRAMES),
            event("alloc", BASE + 32 * MIB, 4 * MIB - 5, SIDE, t + 22, LINEAR),
            event("alloc", BASE + 36 * MIB, 3 * MIB, SIDE, t + 23, LINEAR, user_metadata="step 7"),
            event("free_requested", BASE + 36 * MIB, 3 * MIB, SIDE, t + 24, LINEAR),
            event("oom", 12345, 80 << 30, 0, t + 25, LINEAR),
            event("free_completed", BASE + 36 * MIB, 3 * MIB, SIDE, t + 26, LINEAR),
            event("segment_alloc", BASE + 64 * MIB, 2 * MIB, 0, t + 27, NO_FRAMES, pool=(0, 3)),
            event("alloc", BASE + 64 * MIB, 2 * MIB, 0, t + 28, NO_FRAMES, pool=(0, 3)),
            event("free_requested", BASE + 32 * MIB, 4 * MIB - 5, SIDE, t + 29, LINEAR),
            event("snapshot", 0, 0, 0, t + 2_500_000, NO_FRAMES),
        ]],
        "allocator_settings": SETTINGS,
        "external_annotations": [
            {"name": "forward", "stage": "START", "device": 0, "time_us": t},
            {"name": "forward", "stage": "END", "device": 0, "time_us": t + 30},
        ],
    }


def later():
    """The same program a while later: one block gone, one larger, a new segment."""
    snapshot = example()
    first, _, third = snapshot["segments"]
    at = BASE + 128 * MIB
    new = segment(0, at, 0, [
        block(at, 8 * MIB, 8 * MIB, "active_allocated", LINEAR),
        block(at + 8 * MIB, 12 * MIB, 0, "inactive", NO_FRAMES),
    ])
    first["blocks"][0]["state"] = "inactive"
    snapshot["segments"] = [first, third, new]
    snapshot["device_traces"] = [[]]
    return snapshot


def two_devices():
    one = example()
    other = segment(1, BASE, 0, [block(BASE, 2 * MIB, 2 * MIB, "active_allocated", NO_FRAMES)])
    one["segments"].append(other)
    one["device_traces"].append([event("alloc", BASE, 2 * MIB, 0, 5, NO_FRAMES)])
    return one


def legacy():
    """A list of segments alone, with blocks as PyTorch 1.13 wrote them."""
    history = [{"addr": BASE, "real_size": 300, "frames": ADAM}]
    blocks = [
        {"size": 512, "state": "active_allocated", "history": history},
        {"size": 2 * MIB - 512, "state": "inactive"},
    ]
    return [{"device": 0, "address": BASE, "total_size": 2 * MIB, "stream": 0, "blocks": blocks}]


def large():
    """More events and frames than one part of a list or a short number of a text has."""
    trace, frames = [], []
    for i in range(1200):
        if i % 4 == 0:
            frames = [frame(f"/src/file{i}.py", i, f"function_{i}")]
        trace.append(event("alloc", BASE + 512 * i, 100 + i, 0, i, frames))
    blocks = [block(BASE + 512 * i, 512, 100, "active_allocated", NO_FRAMES) for i in range(1100)]
    return {"segments": [segment(0, BASE, 0, blocks)], "device_traces": [trace]}


def torch_save(data):
    """The zip file of torch.save, whose first entry is the pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as zip_file:
        for name, content in [("data.pkl", pickle.dumps(data, 2)), ("byteorder", b"little"), ("version", b"3\n")]:
            zip_file.writestr(zipfile.ZipInfo(f"archive/{name}"), content)
    return file.getvalue()


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for protocol in (2, 3, 4, 5):
        (FOLDER / f"example.{protocol}.pickle").write_bytes(pickle.dumps(example(), protocol))
    (FOLDER / "example.json").write_text(json.dumps(example(), indent=1) + "\n")
    (FOLDER / "example.pt").write_bytes(torch_save(example()))
    (FOLDER / "later.pickle").write_bytes(pickle.dumps(later(), 4))
    (FOLDER / "two_devices.pickle").write_bytes(pickle.dumps(two_devices(), 4))
    (FOLDER / "legacy.pickle").write_bytes(pickle.dumps(legacy(), 4))
    (FOLDER / "large.pickle").write_bytes(pickle.dumps(large(), 4))
    print(f"wrote {len(list(FOLDER.iterdir()))} files to {FOLDER}")


if __name__ == "__main__":
    main()
