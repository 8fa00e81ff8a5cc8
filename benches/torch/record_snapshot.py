"""A snapshot of unmodified PyTorch with its whole history, and what PyTorch reserved, for scripts/torch-snapshot.sh.

    python benches/torch/record_snapshot.py OUT [--steps 6]

Trains a small model of the kind of GPT on batches whose length varies, with PyTorch's own allocator, on one stream. The
history begins before the first allocation. Writes OUT/snapshot.pickle and OUT/stats.json. Nothing is downloaded, and
nothing but PyTorch is needed.
"""

import argparse
import json
import os
import random
from pathlib import Path


def model(torch, width, heads, layers, words, length):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            batch, tokens, _ = x.shape
            parts = self.qkv(self.before(x)).chunk(3, -1)
            split = [part.view(batch, tokens, heads, -1).transpose(1, 2) for part in parts]
            seen = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.mlp(self.behind(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, tokens):
            places = torch.arange(tokens.shape[1], device=tokens.device)
            return self.head(self.norm(self.blocks(self.words(tokens) + self.places(places))))

    return Model()


def train(torch, steps):
    words, length = 16384, 1024
    net = model(torch, width=512, heads=8, layers=8, words=words, length=length).cuda()
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-4)
    draw = random.Random(1)
    for step in range(steps):
        tokens = torch.randint(0, words, (8, draw.randrange(64, length)), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits = net(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        print(f"step {step}: {tuple(tokens.shape)}, loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    # The allocator of PyTorch as it is by default, whatever the environment says.
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        os.environ.pop(variable, None)
    import torch

    torch.cuda.init()
    assert torch.cuda.get_allocator_backend() == "native", "this is for PyTorch's own allocator"
    assert torch.cuda.memory_reserved() == 0, "the history has to begin before the first allocation"
    torch.cuda.memory._record_memory_history(max_entries=4_000_000, context="alloc", stacks="python")
    torch.manual_seed(0)
    train(torch, args.steps)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(str(args.out / "snapshot.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)
    kept = ("reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes", "segment", "allocation")
    told = {key: value for key, value in stats.items() if key.startswith(kept) or key.startswith("num_")}
    told["memory_reserved"] = torch.cuda.memory_reserved()
    told["torch"], told["gpu"] = torch.__version__, torch.cuda.get_device_name()
    (args.out / "stats.json").write_text(json.dumps(told, indent=1) + "\n")
    print({key: told[key] for key in ("reserved_bytes.all.peak", "allocated_bytes.all.peak", "memory_reserved")})


if __name__ == "__main__":
    main()
