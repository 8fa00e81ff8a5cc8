"""Trains a mixture of experts in bfloat16: how many tokens an expert gets depends on the data."""

import torch
from torch import nn
from torch.nn import functional

from programs.blocks import heads_of, joined, next_token_loss
from programs.setting import take_step


class Experts(nn.Module):
    """Sends each token to the two experts with the highest scores, and adds what they make of it by their scores."""

    def __init__(self, width, inner, experts):
        super().__init__()
        self.scores = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)) for _ in range(experts))

    def forward(self, x):
        flat = x.flatten(0, 1)
        shares, chosen = self.scores(flat).softmax(-1).topk(2)
        total = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, rank = (chosen == number).nonzero(as_tuple=True)
            total = total.index_add(0, token, expert(flat[token]) * shares[token, rank, None])
        return total.view_as(x)


class Layer(nn.Module):
    def __init__(self, width, heads, inner, experts):
        super().__init__()
        self.heads = heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.experts = Experts(width, inner, experts)

    def forward(self, x):
        query, key, value = (heads_of(part, self.heads) for part in self.into(self.first(x)).chunk(3, -1))
        x = x + self.out(joined(functional.scaled_dot_product_attention(query, key, value, is_causal=True)))
        return x + self.experts(self.second(x))


def steps(setting, count):
    draw = setting.draw(8)
    vocabulary, width, heads, inner = setting.pick((32000, 1024, 16, 2048), (89, 16, 2, 32))
    layers, experts = setting.pick((6, 16), (2, 4))
    with setting.building(torch.bfloat16):
        words, head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        network = nn.Sequential(words, *(Layer(width, heads, inner, experts) for _ in range(layers)), head)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4)
    for _ in range(count):
        batch, length = draw.randrange(4, 13), draw.randrange(*setting.pick((256, 1024), (8, 16)))
        # Of a part of the words, which varies: so the experts have unequal work.
        tokens = setting.tokens(draw.randrange(vocabulary // 16, vocabulary), batch, length)
        yield take_step(next_token_loss(network(tokens), tokens), optimiser)
