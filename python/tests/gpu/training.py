"""Training that is the same to the bit on every allocator, and what else models take."""

import hashlib
import random
from collections.abc import Iterable
from typing import Any

import torch

from gpu.common import MIB, expect, feature


@feature
def cudnn_benchmark() -> None:
    torch.backends.cudnn.benchmark = True
    try:
        layer = torch.nn.Conv2d(8, 16, 3, padding=1).cuda()
        layer(torch.randn(4, 8, 64, 64, device="cuda")).sum().backward()
    finally:
        torch.backends.cudnn.benchmark = False


def digest(values: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]


def resnet() -> torch.nn.Module:
    class Block(torch.nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            nn = torch.nn
            self.main = nn.Sequential(
                nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
                nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))
            self.short = nn.Sequential() if inner == outer and stride == 1 else nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.main(x) + self.short(x))

    nn, layers, inner = torch.nn, [], 64
    layers += [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for outer, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Block(inner, outer, stride))
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)).cuda()


def train(model: torch.nn.Module, batches: Iterable[Any]) -> tuple[list[str], str]:
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for inputs, targets in batches:
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(float(loss).hex())
    weights = float(sum(p.double().abs().sum() for p in model.parameters())).hex()
    return losses, weights


@feature
def training_resnet() -> None:
    torch.manual_seed(1)
    draw = random.Random(1)
    sizes = [draw.randrange(4, 24) for _ in range(12)]
    batches = ((torch.randn(n, 3, 96, 96, device="cuda"), torch.randint(0, 10, (n,), device="cuda")) for n in sizes)
    losses, weights = train(resnet(), batches)
    print(f"hash resnet {digest([*losses, weights])} last loss {losses[-1]} weights {weights}")


@feature
def training_transformer() -> None:
    torch.manual_seed(2)
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.layers = nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 4)
            self.head = nn.Linear(256, 10)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.layers(self.embed(tokens)).mean(1))

    draw = random.Random(2)
    shapes = [(draw.randrange(2, 16), draw.randrange(16, 200)) for _ in range(12)]
    batches = ((torch.randint(0, 1000, shape, device="cuda"), torch.randint(0, 10, shape[:1], device="cuda"))
               for shape in shapes)
    losses, weights = train(Model().cuda(), batches)
    print(f"hash transformer {digest([*losses, weights])} last loss {losses[-1]} weights {weights}")


@feature
def training_four_streams() -> None:
    """Four models on four streams of one thread, memory of each used on the others."""
    torch.manual_seed(3)
    streams = [torch.cuda.Stream() for _ in range(4)]
    models = [torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
              for _ in streams]
    torch.cuda.synchronize()
    draw, sums, x = random.Random(3), [], torch.randn(64, 512, device="cuda")
    torch.cuda.synchronize()
    for _ in range(12):
        n = draw.randrange(64, 2000)
        x = torch.nn.functional.interpolate(x.T[None], size=n)[0].T.contiguous()
        for stream, model in zip(streams, models):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                with torch.no_grad():
                    y = torch.tanh(model(x))
            x.record_stream(stream)
            torch.cuda.current_stream().wait_stream(stream)
            y.record_stream(torch.cuda.current_stream())
            x = y
        sums.append(float(x.double().sum()).hex())
    print(f"hash four_streams {digest(sums)}")


@feature
def host_memory() -> None:
    x = torch.randn(MIB, pin_memory=True)
    y = x.to("cuda", non_blocking=True)
    expect(torch.equal(y.cpu(), x))
    expect(torch.cuda.host_memory_stats())
