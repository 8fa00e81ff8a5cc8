"""Trains a Llama with 400 million weights in bfloat16 with gradient checkpointing, on batches of varying size."""

import torch

from programs.blocks import Llama, next_token_loss
from programs.setting import take_step


def model(setting):
    """Returns the model in bfloat16, or a small one in a test, with the size of its vocabulary."""
    # Words, width, layers, heads, groups of keys and values, and the inner width.
    sizes = setting.pick((32000, 1536, 12, 12, 4, 4096), (97, 16, 2, 4, 2, 32))
    with setting.building(torch.bfloat16):
        return Llama(*sizes), sizes[0]


def steps(setting, count):
    draw = setting.draw(2)
    network, vocabulary = model(setting)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4)
    for _ in range(count):
        batch, length = draw.randrange(2, 7), draw.randrange(*setting.pick((256, 2048), (8, 24)))
        tokens = setting.tokens(vocabulary, batch, length)
        yield take_step(next_token_loss(network(tokens), tokens), optimiser)
