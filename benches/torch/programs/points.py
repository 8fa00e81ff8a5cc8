"""Trains a network on clouds of a varying number of points, whose distances from each other take most of the memory."""

import torch
from torch import nn
from torch.nn import functional

from programs.setting import take_step

NEAREST = 20


def beside(x, nearest):
    """Returns each point's features beside the differences to those of the points that are nearest to it."""
    with torch.no_grad():
        apart = x[:, :, None, :1] - x[:, None, :, :1]
        places = apart.square().sum(-1).topk(nearest, largest=False)[1]
    wide = x[:, :, None].expand(-1, -1, nearest, -1)
    near = torch.gather(wide, 1, places[..., None].expand(-1, -1, -1, x.shape[-1]))
    return torch.cat([wide, near - wide], -1)


class Edges(nn.Module):
    def __init__(self, classes, widths):
        super().__init__()
        pairs = zip((3, *widths), widths)
        layers = (nn.Sequential(nn.Linear(2 * i, o), nn.ReLU(), nn.Linear(o, o)) for i, o in pairs)
        self.layers, self.last = nn.ModuleList(layers), nn.Linear(sum(widths), classes)

    def forward(self, x, nearest):
        found = []
        for layer in self.layers:
            x = layer(beside(x, nearest)).amax(2)
            found.append(x)
        return self.last(torch.cat(found, -1))


def steps(setting, count):
    draw = setting.draw(15)
    classes, widths = setting.pick((40, (64, 128, 256, 512)), (4, (8, 8)))
    with setting.building():
        network = Edges(classes, widths)
    optimiser = torch.optim.Adam(network.parameters())
    clouds, most = setting.pick(((2, 9), (1024, 4096)), ((1, 3), (24, 40)))
    for _ in range(count):
        number, points = draw.randrange(*clouds), draw.randrange(*most)
        found = network(torch.randn(number, points, 3, device=setting.device), NEAREST)
        targets = setting.tokens(classes, number * points)
        yield take_step(functional.cross_entropy(found.flatten(0, 1), targets), optimiser)
