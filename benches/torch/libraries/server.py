"""A server with eight threads, each with a stream of its own, which all use one encoder of transformers."""

import concurrent.futures
import random

import torch

from libraries.models import made

THREADS = 8


def model(setting):
    """Returns an encoder in half precision, and the size of its vocabulary."""
    from transformers import BertConfig, BertModel

    width, layers, vocabulary = setting.pick((768, 8, 30522), (32, 2, 120))
    config = BertConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=setting.pick(12, 2),
                        intermediate_size=4 * width, vocab_size=vocabulary)
    made_one = made(setting, lambda: BertModel(config), torch.bfloat16)
    return made_one.eval(), vocabulary


class Worker:
    """A thread's stream, and the sizes that it draws."""

    def __init__(self, setting, encoder, vocabulary, seed, stream):
        self.setting, self.encoder, self.vocabulary, self.stream = setting, encoder, vocabulary, stream
        self.draw = random.Random(seed)
        self.generator = torch.Generator(setting.device).manual_seed(seed)

    @torch.no_grad()
    def serve(self):
        """Answers some requests, and returns a number that depends on all answers, in the host's memory."""
        total = 0.0
        with self.setting.on(self.stream):
            for _ in range(self.draw.randrange(2, 6)):
                numbers, lengths = self.setting.pick(((1, 48), (8, 512)), ((1, 4), (4, 16)))
                shape = self.draw.randrange(*numbers), self.draw.randrange(*lengths)
                words = torch.randint(2, self.vocabulary, shape, generator=self.generator, device=self.setting.device)
                mask = torch.ones_like(words)
                mask[:, shape[1] // 2:] = (words[:, shape[1] // 2:] % 5 > 0).long()
                found = self.encoder(input_ids=words, attention_mask=mask).last_hidden_state
                total += found.float().mean(1).norm(dim=1).sum().item()
        return total


def server(setting, count):
    """Lets eight threads answer requests of many lengths; a step ends when all have answered theirs."""
    setting.draw(121)
    encoder, vocabulary = model(setting)
    if setting.is_cuda:
        torch.cuda.synchronize()
    workers = [Worker(setting, encoder, vocabulary, 1000 + number, stream)
               for number, stream in enumerate(setting.streams(THREADS))]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        for _ in range(count):
            yield sum(threads.map(Worker.serve, workers))
