"""Runs BERT-base in float16 on four streams at once, on requests of varying length, and uses the results on a fifth."""

import torch

from programs.blocks import Transformer


@torch.no_grad()
def steps(setting, count):
    draw = setting.draw(5)
    vocabulary, width, layers, heads = setting.pick((30522, 768, 12, 12), (103, 16, 2, 2))
    with setting.building(torch.float16 if setting.is_cuda else torch.float32):
        network = Transformer(vocabulary, 512, width, layers, heads, is_causal=False).eval()
    streams, main = setting.streams(4), setting.current()
    if setting.is_cuda:
        torch.cuda.synchronize()
    for _ in range(count):
        results = []
        for request in range(8):
            stream = streams[request % len(streams)]
            shape = draw.randrange(*setting.pick((8, 129), (1, 4))), draw.randrange(*setting.pick((16, 512), (4, 24)))
            tokens = setting.tokens(vocabulary, *shape)
            setting.order(stream, main)
            setting.used(tokens, stream)
            with setting.on(stream):
                results.append((network(tokens), stream))
        total = torch.zeros((), device=setting.device)
        for result, stream in results:
            setting.order(main, stream)
            total += setting.used(result, main).float().abs().mean()
        yield total
