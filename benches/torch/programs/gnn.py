"""Trains a graph network on graphs whose nodes and edges vary: gathers along edges, and sums into nodes."""

import torch
from torch import nn
from torch.nn import functional

from programs.setting import take_step


class Messages(nn.Module):
    """Each edge makes a message of both of its ends; each node takes the mean of its messages."""

    def __init__(self, width):
        super().__init__()
        self.edge, self.node = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.normal = nn.LayerNorm(width)

    def forward(self, x, source, target, degree):
        messages = functional.relu(self.edge(torch.cat([x[source], x[target]], -1)))
        mean = torch.zeros_like(x).index_add(0, target, messages) / degree
        return self.normal(x + self.node(torch.cat([x, mean], -1)))


def steps(setting, count):
    draw = setting.draw(6)
    width, classes = setting.pick(128, 8), 16
    with setting.building():
        into, out = nn.Linear(32, width), nn.Linear(width, classes)
        network = nn.ModuleList([into, *(Messages(width) for _ in range(3)), out])
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(count):
        nodes = draw.randrange(*setting.pick((20_000, 100_000), (20, 50)))
        edges = nodes * draw.randrange(4, 13)
        source, target = setting.tokens(nodes, 2, edges)
        degree = torch.ones(nodes, 1, device=setting.device)
        degree.scatter_add_(0, target[:, None], torch.ones(edges, 1, device=setting.device))
        x = into(torch.randn(nodes, 32, device=setting.device))
        for layer in network[1:-1]:
            x = layer(x, source, target, degree)
        yield take_step(functional.cross_entropy(out(x), setting.tokens(classes, nodes)), optimiser)
