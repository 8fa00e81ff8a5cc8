"""Trains convolutions over time and space on clips of varying number, length, height and width."""

import torch
from torch import nn
from torch.nn import functional

from programs.setting import take_step


class Restorer(nn.Module):
    """Makes clips smaller four times, and three times larger again, with what was there before."""

    def __init__(self):
        super().__init__()
        widths, strides = (3, 32, 64, 128, 256), (2, (1, 2, 2), 2, (1, 2, 2))
        pairs = zip(widths, widths[1:], strides)
        self.down = nn.ModuleList(nn.Conv3d(inner, outer, 3, stride, 1) for inner, outer, stride in pairs)
        self.up = nn.ModuleList(nn.Conv3d(*widths, 3, 1, 1) for widths in ((256, 128), (256, 64), (128, 32)))
        self.last = nn.Conv3d(64, 3, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            x = functional.gelu(down(x))
            kept.append(x)
        for up, side in zip(self.up, reversed(kept[:-1])):
            x = torch.cat([functional.interpolate(up(x), size=side.shape[-3:]), side], 1)
        return self.last(x)


def steps(setting, count):
    draw = setting.draw(13)
    with setting.building():
        network = Restorer()
    optimiser = torch.optim.Adam(network.parameters())
    for _ in range(count):
        number, length = draw.randrange(1, 4), draw.choice(setting.pick([8, 12, 16, 24], [2, 4]))
        height, width = (16 * draw.randrange(*setting.pick((8, most), (1, 3))) for most in (18, 24))
        clips = torch.randn(number, 3, length, height, width, device=setting.device)
        yield take_step(network(clips).square().mean(), optimiser)
