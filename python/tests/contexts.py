"""The frames of events of the driver's memory, and what was being compiled, under a real torch. No kernel runs, so a simulated device will do.
With a GPU:

    python python/tests/contexts.py [--conf policy:classic | --native]
"""

import argparse


def frames(torch, context):
    """Returns the functions of the frames of events that take memory, and of those that give it back."""
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(context=context, stacks="python")
    try:
        x = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
        del x
        torch.cuda.empty_cache()
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
    finally:
        torch.cuda.memory._record_memory_history(None)
    compiled = {entry["compile_context"] for entry in trace}
    assert compiled == {"N/A"}, f"nothing is compiled here: {compiled}"
    found = []
    for actions in ({"segment_alloc", "segment_map"}, {"segment_free", "segment_unmap"}):
        events = [entry for entry in trace if entry["action"] in actions]
        assert events, [entry["action"] for entry in trace]
        found.append({frame["name"] for entry in events for frame in entry.get("frames", [])})
    return found


def main(torch):
    for context, told in (("all", (True, True)), ("alloc", (True, False)), (None, (False, False))):
        taken, given = frames(torch, context)
        assert ("frames" in taken, "frames" in given) == told, (context, taken, given)


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
