"""Trains a diffusion UNet in bfloat16 on images of several resolutions, each batch of one of them."""

import torch
from torch import nn
from torch.nn import functional

from programs.blocks import heads_of, joined
from programs.setting import take_step

# Heights and widths of images, in units that depend on the size of the program.
BUCKETS = ((4, 4), (3, 5), (5, 3), (5, 5), (4, 6), (6, 4), (6, 6), (7, 5), (5, 7), (8, 4))


class Residual(nn.Module):
    def __init__(self, before, after, time):
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.into, self.out = nn.Conv2d(before, after, 3, 1, 1), nn.Conv2d(after, after, 3, 1, 1)
        self.time = nn.Linear(time, after)
        self.short = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, time):
        y = self.into(functional.silu(self.first(x))) + self.time(time)[:, :, None, None]
        return self.short(x) + self.out(functional.silu(self.second(y)))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.normal, self.into, self.out = nn.GroupNorm(8, width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        flat = self.normal(x).flatten(2).transpose(1, 2)
        query, key, value = (heads_of(part, 4) for part in self.into(flat).chunk(3, -1))
        seen = self.out(joined(functional.scaled_dot_product_attention(query, key, value)))
        return x + seen.transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """Three levels, each with half of the resolution and twice the channels, and back, with attention at the lowest."""

    def __init__(self, width):
        super().__init__()
        widths, time = (width, 2 * width, 4 * width), 4 * width
        self.time = nn.Sequential(nn.Linear(1, time), nn.SiLU(), nn.Linear(time, time))
        self.into, self.out = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.down, self.halve, self.up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        before = width
        for after in widths:
            self.down.append(nn.ModuleList([Residual(before, after, time), Residual(after, after, time)]))
            self.halve.append(nn.Conv2d(after, after, 3, 2, 1))
            before = after
        self.middle = nn.ModuleList([Residual(before, before, time), Residual(before, before, time)])
        self.attention = Attention(before)
        for after in reversed(widths):
            self.up.append(nn.ModuleList([Residual(before + after, after, time), Residual(after, after, time)]))
            before = after

    def forward(self, x, time):
        time, x, kept = self.time(time), self.into(x), []
        for blocks, halve in zip(self.down, self.halve):
            for block in blocks:
                x = block(x, time)
            kept.append(x)
            x = halve(x)
        x = self.middle[1](self.attention(self.middle[0](x, time)), time)
        for blocks in self.up:
            x = torch.cat([functional.interpolate(x, scale_factor=2.0), kept.pop()], 1)
            for block in blocks:
                x = block(x, time)
        return self.out(x)


def steps(setting, count):
    draw = setting.draw(7)
    with setting.building():
        network = UNet(setting.pick(96, 8))
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4)
    for _ in range(count):
        high, wide = (side * setting.pick(64, 8) for side in draw.choice(BUCKETS))
        batch = draw.randrange(*setting.pick((2, 7), (1, 3)))
        noise = torch.randn(batch, 3, high, wide, device=setting.device)
        images, time = torch.randn_like(noise), torch.rand(batch, 1, device=setting.device)
        share = time[:, :, None, None]
        with setting.autocast():
            guess = network(images * (1 - share) + noise * share, time)
            loss = functional.mse_loss(guess.float(), noise)
        yield take_step(loss, optimiser)
