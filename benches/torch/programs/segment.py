"""Trains a network that labels each pixel, on images of varying number, height and width."""

import torch
from torch import nn
from torch.nn import functional

from programs.setting import take_step

WIDTHS = (32, 64, 128, 256)


def pair(inner, outer):
    """Returns two convolutions."""
    layers = [nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU(), nn.Conv2d(outer, outer, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers)


class Labeller(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down = nn.ModuleList(pair(*widths) for widths in zip((3, *WIDTHS), WIDTHS))
        self.up = nn.ModuleList(pair(inner + outer, outer) for outer, inner in zip(WIDTHS, WIDTHS[1:]))
        self.last = nn.Conv2d(WIDTHS[0], classes, 1)

    def forward(self, x):
        kept = []
        for level, down in enumerate(self.down):
            x = down(functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, side in zip(reversed(self.up), reversed(kept[:-1])):
            x = up(torch.cat([functional.interpolate(x, size=side.shape[-2:]), side], 1))
        return self.last(x)


def steps(setting, count):
    draw = setting.draw(12)
    classes, sides = setting.pick((20, (16, 65)), (3, (1, 4)))
    with setting.building():
        network = Labeller(classes)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(count):
        number, height, width = draw.randrange(1, 5), 16 * draw.randrange(*sides), 16 * draw.randrange(*sides)
        labels = network(torch.randn(number, 3, height, width, device=setting.device))
        targets = setting.tokens(classes, number, height, width)
        yield take_step(functional.cross_entropy(labels, targets), optimiser)
