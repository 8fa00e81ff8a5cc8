"""Networks of PyTorch Geometric, on graphs of which no two have the same number of nodes and edges."""

import torch
from torch.nn import functional

from programs.setting import take_step


class Attention(torch.nn.Module):
    """Attention along the edges of graphs, and a number for each graph."""

    def __init__(self, features, width, heads, layers, edges, classes):
        from torch_geometric.nn import GATv2Conv

        super().__init__()
        widths = [features] + [width * heads] * (layers - 1)
        self.layers = torch.nn.ModuleList(GATv2Conv(each, width, heads, edge_dim=edges) for each in widths)
        self.head = torch.nn.Linear(width * heads, classes)

    def forward(self, batch):
        from torch_geometric.nn import global_mean_pool

        x = batch.x
        for layer in self.layers:
            x = torch.relu(layer(x, batch.edge_index, batch.edge_attr))
        return self.head(global_mean_pool(x, batch.batch))


def graphs(setting, count):
    """Trains attention on batches of graphs."""
    from torch_geometric.data import Batch, Data

    draw = setting.draw(171)
    nodes, numbers, classes = setting.pick(((20, 2000), (4, 40), 10), ((4, 12), (2, 4), 3))
    with setting.building():
        network = Attention(128, *setting.pick((64, 4, 4), (4, 2, 2)), 16, classes)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)

    def graph():
        size = draw.randrange(*nodes)
        edges = size * draw.randint(2, 12)
        return Data(x=torch.randn(size, 128), edge_index=torch.randint(size, (2, edges)),
                    edge_attr=torch.randn(edges, 16))

    for _ in range(count):
        batch = Batch.from_data_list([graph() for _ in range(draw.randrange(*numbers))]).to(setting.device)
        targets = torch.randint(classes, (batch.num_graphs,), device=setting.device)
        yield take_step(functional.cross_entropy(network(batch), targets), optimiser)


def subgraphs(setting, count):
    """Trains a deep network on parts of one large graph: around some of its nodes, as far as two edges lead."""
    from torch_geometric.nn.models import GraphSAGE
    from torch_geometric.utils import k_hop_subgraph

    draw = setting.draw(172)
    size, features, classes = setting.pick((400_000, 256, 47), (60, 8, 3))
    with setting.building():
        network = GraphSAGE(features, setting.pick(512, 8), num_layers=4, out_channels=classes, dropout=0.2,
                            norm="layer")
    x = torch.randn(size, features, device=setting.device)
    labels = torch.randint(classes, (size,), device=setting.device)
    edges = torch.randint(size, (2, 6 * size), device=setting.device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(count):
        seeds = torch.randperm(size, device=setting.device)[: draw.randrange(*setting.pick((500, 4000), (2, 9)))]
        nodes, near, places, _ = k_hop_subgraph(seeds, 2, edges, relabel_nodes=True, num_nodes=size)
        with setting.autocast():
            found = network(x[nodes], near)[places]
            loss = functional.cross_entropy(found, labels[seeds])
        yield take_step(loss, optimiser)
