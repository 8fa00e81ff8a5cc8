"""Work that is captured in CUDA graphs by hand, and memory pools of a program's own. A test runs it without either."""

import collections
import contextlib

import torch
from torch.nn import functional

from libraries.models import batch, llama
from programs.setting import take_step


class Captured:
    """What a function does, as a graph in a pool; without a GPU, the function."""

    def __init__(self, setting, function, pool=None):
        self.function, self.graph, self.result = function, None, None
        if not setting.is_cuda:
            return
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                function()
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.result = function()

    def replay(self):
        """Does it once more. Returns its result, which the next call overwrites."""
        if self.graph is None:
            return self.function()
        self.graph.replay()
        return self.result


class Decoder:
    """The next token of a number of requests, captured: as servers do, with keys and values that stay in place."""

    def __init__(self, setting, model, number, most, pool):
        from transformers import StaticCache

        self.model, self.cache = model, StaticCache(config=model.config, max_cache_len=most)
        self.tokens = torch.ones(number, 1, dtype=torch.long, device=setting.device)
        self.places = torch.zeros(1, 1, dtype=torch.long, device=setting.device)
        # The first call allocates the keys and values, which are not the graph's.
        self.next()
        self.step = Captured(setting, self.next, pool)

    def next(self):
        """Returns the most probable next tokens."""
        logits = self.model(input_ids=self.tokens, position_ids=self.places, past_key_values=self.cache).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    def answer(self, prompt, count):
        """Reads a prompt as it is, generates by the graph, and returns all tokens."""
        self.cache.reset()
        found = [self.model(input_ids=prompt, past_key_values=self.cache).logits[:, -1].argmax(-1, keepdim=True)]
        for number in range(count):
            self.tokens.copy_(found[-1])
            self.places.fill_(prompt.shape[1] + number)
            found.append(self.step.replay().clone())
        return torch.cat(found, 1)


@torch.no_grad()
def decode_graphs(setting, count):
    """Serves a Llama by a graph for each number of requests, all in one pool, beside prompts of any length that are
    read without graphs."""
    draw = setting.draw(221)
    model, vocabulary = llama(setting, width=2048, dtype=torch.bfloat16)
    model.eval()
    most = setting.pick(1024, 24)
    pool = torch.cuda.graph_pool_handle() if setting.is_cuda else None
    decoders = {number: Decoder(setting, model, number, most, pool) for number in setting.pick((32, 16, 8, 4), (3, 2))}
    for _ in range(count):
        number = draw.choice(list(decoders))
        length, more = (draw.randrange(*one) for one in setting.pick(((64, 900), (24, 96)), ((4, 16), (2, 5))))
        prompt = torch.randint(2, vocabulary, (number, length), device=setting.device)
        words = decoders[number].answer(prompt, more)
        yield (words.double() * torch.arange(1, words.shape[1] + 1, device=words.device)).mean()


def graphed_layers(setting, count):
    """Trains a vision transformer whose layers PyTorch has captured, forward and backward, with a head that has not
    been, and tries it out on batches of other sizes."""
    import timm

    draw = setting.draw(222)
    side, width, classes, number = setting.pick((224, 384, 1000, 128), (32, 16, 7, 3))
    with setting.building():
        network = timm.create_model("vit_small_patch16_224", img_size=side, num_classes=classes, embed_dim=width,
                                    depth=setting.pick(8, 2), num_heads=setting.pick(6, 2))
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4)
    tokens = (side // 16) ** 2 + 1
    layers = list(network.blocks)
    if setting.is_cuda:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            given = [(torch.randn(number, tokens, width, device=setting.device, requires_grad=True),) for _ in layers]
            layers = torch.cuda.make_graphed_callables(tuple(layers), tuple(given))
    for step in range(count):
        pictures = torch.randn(number, 3, side, side, device=setting.device)
        with torch.autocast(setting.device.type, torch.bfloat16, cache_enabled=False):
            x = network.norm_pre(network.patch_drop(network._pos_embed(network.patch_embed(pictures)))).float()
            for layer in layers:
                x = layer(x).float()
            found = network.forward_head(network.norm(x))
            loss = functional.cross_entropy(found.float(), torch.randint(classes, (number,), device=setting.device))
        loss = take_step(loss, optimiser)
        if step % 4 == 3:
            # A layer that was captured runs its graph in training alone.
            network.eval()
            size = draw.randrange(*setting.pick((16, 400), (2, 5)))
            with torch.no_grad(), setting.autocast():
                loss = loss + network(torch.randn(size, 3, side, side, device=setting.device)).float().mean()
            network.train()
        yield loss


@torch.no_grad()
def graph_cache(setting, count):
    """Serves pictures of several sizes by graphs, each in a pool of its own, of which the five that were used last are
    kept: pools come and go."""
    import timm

    draw = setting.draw(223)
    with setting.building(torch.bfloat16 if setting.is_cuda else torch.float32):
        network = timm.create_model(setting.pick("convnext_small", "convnext_atto"), num_classes=10).eval()
    kept = collections.OrderedDict()
    sides, numbers = setting.pick(((160, 192, 224, 256, 288), (16, 32, 64)), ((32, 64), (1, 2)))
    dtype = next(network.parameters()).dtype
    for _ in range(count):
        shape = draw.choice(numbers), 3, *[draw.choice(sides)] * 2
        if shape not in kept:
            if len(kept) == 5:
                kept.popitem(last=False)
            held = torch.zeros(shape, device=setting.device, dtype=dtype)
            kept[shape] = held, Captured(setting, lambda held=held: network(held))
        kept.move_to_end(shape)
        held, graph = kept[shape]
        total = torch.zeros((), device=setting.device)
        for _ in range(setting.pick(8, 1)):
            held.copy_(torch.randn(shape, device=setting.device))
            total = total + graph.replay().float().square().mean()
        yield total


@torch.no_grad()
def memory_pools(setting, count):
    """Serves two tenants, each of whom has a memory pool for the keys and values of its requests: when a tenant has
    none left, its pool is dropped."""
    from transformers import DynamicCache

    draw = setting.draw(224)
    model, vocabulary = llama(setting, width=2048, dtype=torch.bfloat16)
    model.eval()
    pools, requests = [None, None], [[], []]
    for step in range(count):
        tenant = draw.randrange(2)
        if pools[tenant] is None and setting.is_cuda:
            pools[tenant] = torch.cuda.MemPool()
        own = torch.cuda.use_mem_pool(pools[tenant]) if setting.is_cuda else contextlib.nullcontext()
        total = torch.zeros((), device=setting.device)
        with own:
            words = batch(setting, draw, vocabulary, (2, 17), (64, 768))
            cache = DynamicCache(config=model.config)
            logits = model(input_ids=words, past_key_values=cache, logits_to_keep=1).logits
            requests[tenant].append((logits[:, -1].argmax(-1, keepdim=True), cache))
            for number, (tokens, cache) in enumerate(requests[tenant]):
                for _ in range(setting.pick(4, 1)):
                    logits = model(input_ids=tokens, past_key_values=cache).logits
                    tokens = logits[:, -1].argmax(-1, keepdim=True)
                requests[tenant][number] = tokens, cache
                total += logits.float().logsumexp(-1).mean()
        if len(requests[tenant]) > draw.randrange(2, 7):
            requests[tenant].clear()
            words = tokens = cache = logits = None
            pools[tenant] = None
        yield total
