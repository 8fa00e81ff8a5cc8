"""Memory that several streams and threads use."""

import random
import threading

import torch

from gpu.common import MIB, expect, feature, tidy


def sleep(cycles: int) -> None:
    torch.cuda._sleep(cycles)


@feature
def record_stream() -> None:
    """A side stream reads a tensor late; its memory must not be written before, and the data must be right."""
    tidy()
    side = torch.cuda.Stream()
    for _ in range(5):
        x = torch.full((4 * MIB,), 7.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sleep(50_000_000)
            total = x.sum()
        x.record_stream(side)
        del x
        others = [torch.full((4 * MIB,), 1.0, device="cuda") for _ in range(3)]
        side.synchronize()
        expect(float(total) == 7.0 * 4 * MIB, float(total))
        del others


@feature
def many_streams() -> None:
    streams = [torch.cuda.Stream() for _ in range(40)]
    for turn in range(3):
        kept = []
        for at, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                kept.append(torch.full((random.randrange(1, MIB),), float(at), device="cuda"))
        for at, x in enumerate(kept):
            streams[at].synchronize()
            expect(float(x[-1]) == at)
        del kept, x


@feature
def threads() -> None:
    wrong = []

    def work(number: int) -> None:
        try:
            own, other = torch.cuda.Stream(), torch.cuda.Stream()
            draw = random.Random(number)
            with torch.cuda.stream(own):
                for turn in range(300):
                    x = torch.full((draw.randrange(1, 300_000),), float(number), device="cuda")
                    other.wait_stream(own)
                    with torch.cuda.stream(other):
                        y = x * 2
                    x.record_stream(other)
                    y.record_stream(own)
                    if turn % 50 == 0:
                        other.synchronize()
                        expect(float(y[-1]) == 2 * number)
                    del x, y
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    tasks = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    if wrong:
        raise wrong[0]
