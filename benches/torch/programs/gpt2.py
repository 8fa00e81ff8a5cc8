"""Trains GPT-2 with 124 million weights in bfloat16, on batches whose length varies."""

import torch

from programs.blocks import Transformer, next_token_loss
from programs.setting import take_step


def model(setting, **options):
    """Returns GPT-2, or a small one in a test, with the size of its vocabulary."""
    vocabulary, width, layers = setting.pick((50257, 768, 12), (101, 16, 2))
    heads = setting.pick(12, 2)
    with setting.building():
        return Transformer(vocabulary, 1024, width, layers, heads, **options), vocabulary


def steps(setting, count):
    draw = setting.draw(1)
    network, vocabulary = model(setting)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-4)
    for _ in range(count):
        tokens = setting.tokens(vocabulary, 8, draw.randrange(*setting.pick((64, 1024), (8, 24))))
        with setting.autocast():
            loss = next_token_loss(network(tokens), tokens)
        yield take_step(loss, optimiser)
