"""Trains a small vision transformer on images that a copy stream brings from pinned memory, two batches ahead.

A batch is allocated and filled on the copy stream, and used on the main one, which the allocator is told.
"""

import collections

import torch
from torch import nn
from torch.nn import functional

from programs.blocks import Layer
from programs.setting import take_step

AHEAD = 2


class Vision(nn.Module):
    def __init__(self, patch, width, layers, heads, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.layers = nn.Sequential(*(Layer(width, heads, is_causal=False) for _ in range(layers)))
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        return self.head(self.layers(self.patches(images).flatten(2).transpose(1, 2)).mean(1))


class Prefetcher:
    """Batches of images, in the order in which their sizes are drawn."""

    def __init__(self, setting, draw, classes):
        self.setting, self.draw, self.classes = setting, draw, classes
        (self.copies,), self.batches = setting.streams(1), collections.deque()
        self.most, self.side = setting.pick((512, 224), (6, 16))
        shape = (self.most, 3, self.side, self.side)
        # Each is filled anew for a later batch, and before that its copy has to be over.
        self.pinned = [torch.zeros(shape, dtype=torch.uint8, pin_memory=setting.is_cuda) for _ in range(AHEAD + 1)]
        self.events = [None] * len(self.pinned)
        self.count = 0
        for _ in range(AHEAD):
            self.fetch()

    def fetch(self):
        """Begins to bring a batch."""
        place = self.count % len(self.pinned)
        self.count += 1
        if self.events[place] is not None:
            self.events[place].synchronize()
        images = self.pinned[place][: self.draw.randrange(self.most // 4, self.most + 1)]
        images[:, :, 0, 0] = self.count % 256
        with self.setting.on(self.copies):
            there = images.to(self.setting.device, non_blocking=True)
            batch = there.float() / 255
            targets = self.setting.tokens(self.classes, len(images))
        if self.setting.is_cuda:
            self.events[place] = self.copies.record_event()
        self.batches.append((batch, targets))

    def next(self):
        """Returns a batch for the main stream, and begins to bring another one."""
        main = self.setting.current()
        self.setting.order(main, self.copies)
        batch, targets = self.batches.popleft()
        self.setting.used(batch, main), self.setting.used(targets, main)
        self.fetch()
        return batch, targets


def steps(setting, count):
    draw = setting.draw(9)
    classes = setting.pick(1000, 10)
    with setting.building():
        network = Vision(*setting.pick((16, 384, 8, 6), (4, 16, 2, 2)), classes)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-4)
    batches = Prefetcher(setting, draw, classes)
    for _ in range(count):
        images, targets = batches.next()
        with setting.autocast():
            loss = functional.cross_entropy(network(images), targets)
        yield take_step(loss, optimiser)
