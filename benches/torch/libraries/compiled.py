"""Models that torch.compile compiles, in three of its modes. A test only traces them, as the compiler takes minutes."""

import torch
from torch.nn import functional

from libraries.models import batch, llama
from programs.setting import take_step


def compiled(setting, model, mode, **options):
    """Returns a model that is compiled in this mode; in a test its graph is traced, and runs as it is."""
    if not setting.is_cuda:
        return torch.compile(model, backend="aot_eager", **options)
    return torch.compile(model, mode=mode, **options)


def usual(setting, count):
    """Trains a Llama that is compiled once for all lengths, and keeps what a step needs in the compiler's own order."""
    draw = setting.draw(211)
    model, vocabulary = llama(setting, layers=4)
    model.config.use_cache = False
    network = compiled(setting, model, "default", dynamic=True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    try:
        for _ in range(count):
            words = batch(setting, draw, vocabulary, (4, 17), (128, 1024))
            with setting.autocast():
                logits = network(input_ids=words).logits
                loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())
            yield take_step(loss, optimiser)
    finally:
        torch.compiler.reset()


def vision(setting, depth):
    """Returns a vision transformer of timm, the side of its pictures, and the number of its classes."""
    import timm

    side, width, heads, classes = setting.pick((224, 768, 12, 1000), (32, 16, 2, 7))
    with setting.building():
        network = timm.create_model("vit_base_patch16_224", img_size=side, num_classes=classes, embed_dim=width,
                                    depth=setting.pick(depth, 2), num_heads=heads)
    return network, side, classes


def train_vision(setting, draw, count, network, forward, sizes):
    """Trains it on batches of these sizes, in an order that is drawn."""
    model, side, classes = network
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(count):
        # Each size comes early, and so is compiled before the second quarter of the steps.
        number = sizes[step % len(sizes)] if step < 2 * len(sizes) else draw.choice(sizes)
        pictures = torch.randn(number, 3, side, side, device=setting.device)
        targets = torch.randint(classes, (number,), device=setting.device)
        with setting.autocast():
            loss = functional.cross_entropy(forward(pictures).float(), targets)
        yield take_step(loss, optimiser)


def autotuned(setting, count):
    """Trains a vision transformer whose kernels the compiler has chosen by trying them out, without graphs."""
    draw = setting.draw(212)
    network = vision(setting, 4)
    forward = compiled(setting, network[0], "max-autotune-no-cudagraphs", dynamic=False)
    try:
        yield from train_vision(setting, draw, count, network, forward, setting.pick((128, 192), (2, 3)))
    finally:
        torch.compiler.reset()


def graphs(setting, count):
    """Trains a vision transformer in the mode reduce-overhead: the compiler captures graphs for each size of a batch,
    in a pool of their own that all of them share."""
    draw = setting.draw(213)
    network = vision(setting, 4)
    forward = compiled(setting, network[0], "reduce-overhead", dynamic=False)
    try:
        yield from train_vision(setting, draw, count, network, forward, setting.pick((64, 96, 128), (2, 3)))
    finally:
        torch.compiler.reset()
