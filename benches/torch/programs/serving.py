"""Serves a Llama in bfloat16: requests come and go, of varying batch and length, several of them in flight on three
streams. A step lets each request in flight read on by some tokens, and ends those that have all of theirs."""

import torch

from programs import llama


class Request:
    """A request on a stream, with the keys and values that it has so far."""

    def __init__(self, setting, draw, network, vocabulary, stream):
        self.setting, self.network, self.stream = setting, network, stream
        shape = draw.randrange(*setting.pick((1, 17), (1, 3))), draw.randrange(*setting.pick((32, 2048), (4, 16)))
        self.left = draw.randrange(2, 12)
        main = setting.current()
        tokens = setting.tokens(vocabulary, *shape)
        setting.order(stream, main)
        setting.used(tokens, stream)
        with setting.on(stream):
            logits, self.pasts = network.read_on(tokens, None)
            self.tokens = logits.argmax(-1, keepdim=True)

    def read_on(self, count):
        """Generates some tokens. Returns a number that depends on all of them, on the request's stream."""
        with self.setting.on(self.stream):
            for _ in range(count):
                logits, self.pasts = self.network.read_on(self.tokens, self.pasts)
                self.tokens = logits.argmax(-1, keepdim=True)
            self.left -= 1
            return logits.float().logsumexp(-1).mean()


@torch.no_grad()
def steps(setting, count):
    draw = setting.draw(10)
    network, vocabulary = llama.model(setting)
    network.eval()
    streams, main, requests = setting.streams(3), setting.current(), []
    if setting.is_cuda:
        torch.cuda.synchronize()
    for _ in range(count):
        while len(requests) < setting.pick(8, 3):
            requests.append(Request(setting, draw, network, vocabulary, draw.choice(streams)))
        parts = [(request.read_on(setting.pick(3, 2)), request.stream) for request in requests]
        requests = [request for request in requests if request.left > 0]
        total = torch.zeros((), device=setting.device)
        for part, stream in parts:
            setting.order(main, stream)
            total += setting.used(part, main)
        yield total
