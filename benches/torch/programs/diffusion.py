"""Draws pictures of several sizes: eight steps of a UNet on latent pictures, and a decoder that makes them 8 times as
large."""

import torch
from torch import nn
from torch.nn import functional


def block(inner, outer, groups):
    """Returns two convolutions, each behind a normalisation."""
    first = [nn.GroupNorm(groups, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1)]
    return nn.Sequential(*first, nn.GroupNorm(groups, outer), nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1))


class Denoiser(nn.Module):
    def __init__(self, width, groups):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)

        def blocks(*pairs):
            return nn.ModuleList(block(width * inner, width * outer, groups) for inner, outer in pairs)

        self.down, self.up = blocks((1, 1), (1, 2), (2, 4)), blocks((8, 2), (4, 1), (2, 1))

    def forward(self, x):
        x, kept = self.first(x), []
        for level, down in enumerate(self.down):
            x = down(functional.avg_pool2d(x, 2) if level else x)
            kept.append(x)
        for level, up in enumerate(self.up):
            side = kept.pop()
            x = up(torch.cat([functional.interpolate(x, size=side.shape[-2:]) if level else x, side], 1))
        return self.last(x)


class Decoder(nn.Module):
    def __init__(self, width, groups):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width // 4, 3, 3, padding=1)
        pairs = ((width, width), (width, width // 2), (width // 2, width // 4))
        self.levels = nn.ModuleList(block(*pair, groups) for pair in pairs)

    def forward(self, x):
        x = self.first(x)
        for level in self.levels:
            x = level(functional.interpolate(x, scale_factor=2))
        return self.last(x)


@torch.no_grad()
def steps(setting, count):
    draw = setting.draw(16)
    width, wide, groups = setting.pick((320, 512, 32), (8, 16, 2))
    heights, widths = setting.pick(([64, 72, 80, 96], [64, 80, 96, 112]), ([8, 12], [8, 16]))
    with setting.building():
        network, decoder = Denoiser(width, groups).eval(), Decoder(wide, groups).eval()
    for _ in range(count):
        number = draw.choice([1, 2, 4, 4])
        # With a text to follow, and without.
        latent = torch.randn(2 * number, 4, draw.choice(heights), draw.choice(widths), device=setting.device)
        for _ in range(8):
            latent = latent - 0.1 * network(latent)
        yield decoder(latent[:number]).mean()
