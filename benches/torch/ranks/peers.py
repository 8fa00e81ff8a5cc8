"""Two GPUs in one process: copies from one to the other, and nn.DataParallel, which has a thread for each."""

import torch
from torch import nn

from programs import gpt2
from programs.blocks import next_token_loss
from programs.setting import take_step
from ranks.place import Digest


class Copies:
    """Tensors go to the other GPU and back, whole and in strides, on the main streams and on others."""

    def __init__(self, place):
        self.place, self.setting, self.digest = place, place.setting, Digest()
        self.draw = self.setting.draw(8)
        self.sides = [torch.cuda.Stream(device) if self.setting.is_cuda else None for device in place.devices]

    def made(self, device, size):
        """Returns numbers from 0, in rows of 64."""
        return torch.arange(size * 64, device=device, dtype=torch.int32).view(size, 64)

    def size(self):
        """Returns a number of rows, up to 128 MiB of them."""
        return self.draw.randrange(1, self.setting.pick(512 << 10, 60))

    def step(self, number):
        here, there = self.place.devices if number % 2 == 0 else reversed(self.place.devices)
        for _ in range(3):
            self.whole(here, there)
            self.strides(here, there)
            self.beside(here, there)
        self.sums(here, there)

    def junk(self, device, size):
        """Writes over what was freed, if it is handed out again."""
        torch.full((size, 64), -1, device=device, dtype=torch.int32)

    def check(self, tensor, first, down, right):
        """Compares with numbers that rise from the first one, from row to row and from column to column."""
        is_right = int(tensor[0, 0]) == first
        is_right = is_right and bool((tensor[1:] - tensor[:-1] == down).all())
        is_right = is_right and bool((tensor[:, 1:] - tensor[:, :-1] == right).all())
        assert is_right, f"{tuple(tensor.shape)} on {tensor.device}: other bytes arrived"

    def whole(self, here, there):
        """The source is freed while the copy may be on its way."""
        size = self.size()
        source = self.made(here, size)
        copy = source.to(there, non_blocking=True, copy=True)
        del source
        self.junk(here, size)
        back = copy.to(here, non_blocking=True, copy=True)
        del copy
        self.junk(there, size)
        self.check(back, 0, 64, 1)

    def strides(self, here, there):
        size = self.size()
        source = self.made(here, size)
        copy = source.t()[::2].to(there, non_blocking=True, copy=True)
        del source
        self.junk(here, size)
        self.check(copy, 0, 2, 64)

    def beside(self, here, there):
        """A stream of the other GPU fetches, and its own stream reads what came."""
        size = self.size()
        source = self.made(here, size)
        at = self.place.devices.index(there)
        if self.setting.is_cuda:
            side, main = self.sides[at], torch.cuda.current_stream(there)
            side.wait_stream(torch.cuda.current_stream(here))
            with torch.cuda.stream(side):
                copy = source.to(there, non_blocking=True, copy=True)
            main.wait_stream(side)
            copy.record_stream(main)
        else:
            copy = source.clone()
        del source
        self.junk(here, size)
        copy += 1
        self.check(copy, 1, 64, 1)

    def sums(self, here, there):
        """Random numbers are added up across both GPUs."""
        total = torch.zeros(1000, 64, device=here)
        for _ in range(4):
            total += torch.randn(1000, 64, device=there).to(here, non_blocking=True)
        self.digest.add(total)

    def finish(self):
        return self.digest.text()


class Parallel:
    """GPT-2, whose batches are split over both GPUs."""

    def __init__(self, place):
        self.setting = place.setting
        self.draw = self.setting.draw(9)
        self.network, self.vocabulary = gpt2.model(self.setting)
        devices = [device.index for device in place.devices] if self.setting.is_cuda else None
        self.parallel = nn.DataParallel(self.network, devices)
        self.optimiser = torch.optim.AdamW(self.network.parameters(), lr=3e-4)

    def step(self, _):
        length = self.draw.randrange(*self.setting.pick((64, 1024), (8, 24)))
        tokens = self.setting.tokens(self.vocabulary, self.setting.pick(8, 2), length)
        with self.setting.autocast():
            loss = next_token_loss(self.parallel(tokens), tokens)
        return take_step(loss, self.optimiser)

    def finish(self):
        digest = Digest()
        digest.add(*self.network.parameters())
        return digest.text()
