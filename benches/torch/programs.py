"""Three real programs on PyTorch's allocator, on its expandable segments, and on Millpond, each in a process of its own.

    python benches/torch/programs.py [--programs gpt2 resnet50 bert] [--steps 40] [--csv FILE]

gpt2       trains GPT-2 (124 million weights) in bfloat16 on batches whose length varies
resnet50   trains ResNet-50 with automatic mixed precision on images whose size varies
bert       runs BERT-base on four streams at once, on requests whose length varies, and uses the results on a fifth

Weights are random, data is made up, and nothing is downloaded. The models are those of transformers and torchvision. For each
program and allocator it prints the most that was reserved and live, their ratio, the median time of a step in the second
half, the time of all steps, how often the driver was asked for memory, and the last loss, which should agree.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

SIDES = {
    "native": None,
    "expandable": None,
    "millpond": "policy:paged",
    "millpond tight": "policy:paged,growth:tight",
    "millpond classic": "policy:classic",
}


def gpt2(torch, steps):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    draw = random.Random(1)
    for _ in range(steps):
        tokens = torch.randint(0, 50257, (8, draw.randrange(64, 1024)), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        yield loss


def resnet50(torch, steps):
    from torchvision.models import resnet50 as make

    model = make().cuda().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    draw = random.Random(2)
    for _ in range(steps):
        size = draw.randrange(128, 288, 32)
        images = torch.randn(draw.choice([64, 96, 128]), 3, size, size, device="cuda")
        targets = torch.randint(0, 1000, (len(images),), device="cuda")
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(model(images.to(memory_format=torch.channels_last)), targets)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad(set_to_none=True)
        yield loss


def bert(torch, steps):
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig()).cuda().half().eval()
    streams = [torch.cuda.Stream() for _ in range(4)]
    main = torch.cuda.current_stream()
    draw = random.Random(3)
    torch.cuda.synchronize()
    for _ in range(steps):
        results = []
        with torch.no_grad():
            for request in range(16):
                stream = streams[request % 4]
                tokens = torch.randint(0, 30522, (draw.randrange(1, 33), draw.randrange(16, 512)), device="cuda")
                stream.wait_stream(main)
                tokens.record_stream(stream)
                with torch.cuda.stream(stream):
                    results.append((model(tokens).last_hidden_state, stream))
            total = torch.zeros((), device="cuda")
            for result, stream in results:
                main.wait_stream(stream)
                result.record_stream(main)
                total = total + result.float().abs().mean()
        yield total


def run(name, side, steps):
    if side == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    elif side != "native":
        import millpond.torch

        millpond.torch.enable(SIDES[side])
    import torch

    torch.manual_seed(0)
    times, loss = [], None
    torch.cuda.synchronize()
    began = last = time.perf_counter()
    for loss in globals()[name](torch, steps):
        torch.cuda.synchronize()
        now = time.perf_counter()
        times.append(now - last)
        last = now
    stats = torch.cuda.memory_stats()
    print(json.dumps({
        "program": name,
        "allocator": side,
        "reserved": stats["reserved_bytes.all.peak"],
        "live": stats["allocated_bytes.all.peak"],
        "step": statistics.median(times[len(times) // 2:]) * 1000,
        "seconds": last - began,
        "calls": stats["num_device_alloc"] + stats["num_device_free"],
        "retries": stats["num_alloc_retries"],
        "loss": float(loss),
    }))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="*", default=["gpt2", "resnet50", "bert"])
    parser.add_argument("--sides", nargs="*", default=list(SIDES))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--csv", default="")
    parser.add_argument("--on", nargs=2, default=None)
    arguments = parser.parse_args()
    if arguments.on:
        run(*arguments.on, arguments.steps)
        return 0
    rows, failed = [], 0
    print("| program | allocator | reserved GiB | live GiB | ratio | ms a step | s in all | driver calls | retries | loss |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in arguments.programs:
        for side in arguments.sides:
            command = [sys.executable, __file__, "--on", name, side, "--steps", str(arguments.steps)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                failed += 1
                print(f"{name} on {side}: exit code {done.returncode}: {done.stderr[-800:]}", file=sys.stderr)
                continue
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            print(f"| {name} | {side} | {row['reserved'] / 2**30:.2f} | {row['live'] / 2**30:.2f} "
                  f"| {row['reserved'] / row['live']:.3f} | {row['step']:.1f} | {row['seconds']:.1f} | {row['calls']} "
                  f"| {row['retries']} | {row['loss']:.6f} |", flush=True)
    if arguments.csv and rows:
        with open(arguments.csv, "w") as file:
            file.write(",".join(rows[0]) + "\n")
            file.writelines(",".join(str(value) for value in row.values()) + "\n" for row in rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
