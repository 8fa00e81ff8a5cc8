"""Collectives and messages between two ranks, on tensors of varying sizes that are freed right behind."""

import random

import torch
import torch.distributed as dist

from ranks.place import Digest

TURNS = 6


class Collectives:
    """Each step runs all of them, and looks at what has arrived."""

    def __init__(self, place):
        assert place.world == 2, "messages go between two ranks"
        self.place, self.setting, self.digest = place, place.setting, Digest()
        # Sizes are the same on both ranks, and data is not.
        self.draw = random.Random(7)
        torch.manual_seed(70 + place.rank)
        (self.side,) = self.setting.streams(1)
        self.large = torch.ones(self.setting.pick(16 << 20, 1 << 10), device=self.setting.device)

    def size(self):
        """Returns a number of elements, up to 32 MiB of them."""
        return self.draw.randrange(1, self.setting.pick(8 << 20, 500))

    def full(self, size, value):
        return torch.full((size,), float(value), device=self.setting.device)

    def step(self, number):
        self.freed(number)
        self.streams(number)
        self.exchange()
        self.messages()
        self.objects(number)

    def freed(self, number):
        """Inputs of collectives in flight are freed, and their size is asked for again and written. Of every second
        one nothing is kept to wait with."""
        rank, world, kept = self.place.rank, self.place.world, []
        # What comes behind it in the group's stream is late.
        first = dist.all_reduce(self.large, async_op=True)
        for turn in range(TURNS):
            size, value = self.size(), number + 10 * turn
            given = self.full(size, value + rank)
            gathered = torch.empty(world * size, device=self.setting.device)
            work = dist.all_gather_into_tensor(gathered, given, async_op=True)
            del given
            is_kept = turn % 2 == 0 or not self.setting.is_cuda
            kept.append((gathered, value, work if is_kept else None))
            del work
            self.full(size, -1)
        first.wait()
        for _, _, work in kept:
            if work is not None:
                work.wait()
        self.place.wait()
        for gathered, value, _ in kept:
            for of, part in enumerate(gathered.chunk(world)):
                low, high = (float(end) for end in part.aminmax())
                assert low == high == value + of, f"rank {rank} got {low} to {high} of rank {of}, not {value + of}"
        self.large.fill_(1)

    def streams(self, number):
        """A side stream uses what the main one has made, and frees there what the group works on."""
        main = self.setting.current()
        for turn in range(TURNS):
            size, value = self.size(), number + turn
            made = self.full(size, value)
            self.setting.order(self.side, main)
            with self.setting.on(self.side):
                raised = made + self.place.rank
                dist.all_reduce(raised, async_op=True).wait()
                low, high = raised.aminmax()
                del raised
            self.setting.used(made, self.side)
            del made
            self.full(size, -1)
            self.setting.order(main, self.side)
            low, high = float(self.setting.used(low, main)), float(self.setting.used(high, main))
            expected = value * self.place.world + sum(range(self.place.world))
            assert low == high == expected, f"{low} to {high}, not {expected}"

    def exchange(self):
        """Parts of unlike lengths go from everyone to everyone, and sums of parts come back."""
        rank, world = self.place.rank, self.place.world
        for turn in range(TURNS):
            parts = [[self.size() for _ in range(world)] for _ in range(world)]
            given = torch.randn(sum(parts[rank]), device=self.setting.device)
            came = [parts[other][rank] for other in range(world)]
            taken = torch.empty(sum(came), device=self.setting.device)
            work = dist.all_to_all_single(taken, given, came, parts[rank], async_op=True)
            del given
            self.full(sum(parts[rank]), -1)
            work.wait()
            self.digest.add(taken[:1000], taken[-1000:], taken.abs().max())
            size = self.size()
            reduced = torch.empty(size, device=self.setting.device)
            dist.reduce_scatter_tensor(reduced, torch.randn(world * size, device=self.setting.device))
            self.digest.add(reduced[:1000], reduced[-1000:], reduced.abs().max())

    def messages(self):
        """Tensors go to the other rank and come back, one after the other and at once."""
        other = 1 - self.place.rank
        for turn in range(TURNS):
            size = self.size()
            given, taken = torch.randn(size, device=self.setting.device), torch.empty(size, device=self.setting.device)
            if self.place.rank == turn % 2:
                dist.send(given, other)
                dist.recv(taken, other)
            else:
                dist.recv(taken, other)
                dist.send(given, other)
            self.digest.add(taken[:1000], taken[-1000:], taken.abs().max())
            back = torch.empty_like(taken)
            both = [dist.P2POp(dist.isend, taken, other), dist.P2POp(dist.irecv, back, other)]
            for work in dist.batch_isend_irecv(both):
                work.wait()
            assert torch.equal(back, given), "what came back is not what was sent"

    def objects(self, number):
        """Objects of Python go to all, from one, and to one."""
        rank, world = self.place.rank, self.place.world
        everyone = [None] * world
        dist.all_gather_object(everyone, {"rank": rank, "step": number, "text": "x" * (1000 * rank)})
        assert [of["rank"] for of in everyone] == list(range(world)), everyone
        told = [number if rank == 0 else None]
        dist.broadcast_object_list(told, src=0)
        assert told == [number]
        tensor = torch.full((1000,), float(rank), device=self.setting.device)
        parts = [torch.empty_like(tensor) for _ in range(world)] if rank == 0 else None
        dist.gather(tensor, parts, dst=0)
        assert rank or [float(part[-1]) for part in parts] == [float(of) for of in range(world)]

    def finish(self):
        return self.digest.text()
