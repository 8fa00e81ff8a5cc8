"""Generates text with a Llama in bfloat16: the keys and values of each layer grow by every token.

A step is sixteen tokens of a conversation, which begins with a prompt of its own length and ends after six steps.
"""

import torch

from programs import llama


@torch.no_grad()
def steps(setting, count):
    draw = setting.draw(4)
    network, vocabulary = llama.model(setting)
    network.eval()
    tokens, pasts, left = None, None, 0
    for _ in range(count):
        if left == 0:
            pasts, left = None, 6
            batch = draw.randrange(*setting.pick((24, 97), (1, 4)))
            tokens = setting.tokens(vocabulary, batch, draw.randrange(*setting.pick((128, 1536), (4, 12))))
        certainty = torch.zeros((), device=setting.device)
        for _ in range(setting.pick(16, 4)):
            logits, pasts = network.read_on(tokens, pasts)
            tokens = logits.argmax(-1, keepdim=True)
            certainty += logits.float().logsumexp(-1).mean()
        left -= 1
        yield certainty
