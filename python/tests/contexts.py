"""The frames of events in a history, and what was being compiled, under a real torch. No kernel runs, so a simulated device
will do. With a GPU:

    python python/tests/contexts.py [--conf policy:classic | --native]
"""

import argparse
from types import ModuleType
from typing import Any

TAKEN, FREED, GIVEN = {"segment_alloc", "segment_map"}, {"free_requested", "free_completed"}, {"segment_free", "segment_unmap"}


def take(torch: ModuleType) -> list[Any]:
    return [torch.empty(40 << 20, dtype=torch.uint8, device="cuda")]


def give(torch: ModuleType, held: list[Any]) -> None:
    held.clear()
    torch.cuda.empty_cache()


def trace_of(torch: ModuleType, context: str | None) -> Any:
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(context=context, stacks="python")
    try:
        give(torch, take(torch))
        return torch.cuda.memory._snapshot()["device_traces"][0]
    finally:
        torch.cuda.memory._record_memory_history(None)


def told(trace: Any, actions: set[str]) -> list[str]:
    """Returns which of ``take`` and ``give`` the frames of some events name, of all of them together."""
    events = [entry for entry in trace if entry["action"] in actions]
    assert events, [entry["action"] for entry in trace]
    names = {frame["name"] for entry in events for frame in entry.get("frames", [])}
    return sorted(names & {"take", "give"})


def main(torch: ModuleType) -> None:
    # An event whose own frames are not recorded has those of the allocation that it ends.
    for context, expected in (
        ("all", (["take"], ["take"], ["give"], ["give"])),
        ("alloc", (["take"], ["take"], ["take"], ["take"])),
        (None, ([], [], [], [])),
    ):
        trace = trace_of(torch, context)
        found = tuple(told(trace, actions) for actions in (TAKEN, {"alloc"}, FREED, GIVEN))
        assert found == expected, (context, found, expected)
        compiled = {entry["compile_context"] for entry in trace}
        assert compiled == {"N/A"}, f"nothing is compiled here: {compiled}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", default="")
    parser.add_argument("--native", action="store_true")
    arguments = parser.parse_args()
    import torch

    if not arguments.native:
        import millpond.torch

        millpond.torch.enable(arguments.conf)
    main(torch)
    print(f"contexts: as they should be, {'native' if arguments.native else arguments.conf or 'default'}")
