"""Records programs that are made of other people's libraries, on a GPU, by PyTorch's own history.

    python benches/torch/record_third.py FOLDER [--only timm_train,lora] [--seconds 25]
    millpond import FOLDER/NAME.pickle -o tests/corpus/third/NAME.trace.zst --limits none

Models have the libraries' own code and random weights, so that nothing is downloaded. Sizes vary by a seed: resolutions,
lengths, graphs, batches. Each program runs in a process of its own, and writes FOLDER/NAME.pickle. It needs timm,
transformers, peft and torch_geometric; a program whose library is missing is left out, and named.
"""

import argparse
import pathlib
import pickle
import random
import subprocess
import sys
import threading
import time

import torch

HISTORY_MAX = 20_000_000


def timm_train(draw, over):
    """Trains a ConvNeXt and an EfficientNet in turn, with mixed precision, in resolutions that change by the batch."""
    import timm

    models = [timm.create_model(name, num_classes=1000).cuda() for name in ("convnext_tiny", "efficientnet_b2")]
    steps = [torch.optim.AdamW(model.parameters()) for model in models]
    while not over():
        for model, step in zip(models, steps):
            side, batch = draw.choice((160, 192, 224, 256, 288)), draw.choice((16, 24, 32))
            images = torch.randn(batch, 3, side, side, device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(images), torch.randint(1000, (batch,), device="cuda"))
            loss.backward()
            step.step()
            step.zero_grad(set_to_none=True)


def t5_beams(draw, over):
    """Has an encoder and decoder generate with beams, for prompts of many lengths: caches grow, and are reordered."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=512, d_kv=64, d_ff=1024, num_layers=8, num_heads=6, vocab_size=32128,
                      decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).cuda().half().eval()
    while not over():
        prompts = torch.randint(2, 32000, (draw.randint(1, 12), draw.randint(8, 400)), device="cuda")
        with torch.no_grad():
            model.generate(prompts, num_beams=draw.choice((1, 2, 4)), max_new_tokens=draw.randint(8, 64))


def lora(draw, over):
    """Trains adapters of a model of the kind of Llama, with checkpoints of activations, on texts of many lengths."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16,
                         vocab_size=32000, max_position_embeddings=4096)
    model = LlamaForCausalLM(config).cuda().bfloat16()
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
    step = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])
    while not over():
        for _ in range(draw.choice((1, 2, 4))):
            words = torch.randint(0, 32000, (draw.randint(1, 6), draw.randint(64, 1500)), device="cuda")
            model(input_ids=words, labels=words).loss.backward()
        step.step()
        step.zero_grad(set_to_none=True)


def graphs(draw, over):
    """Trains attention on batches of graphs, of which no two have the same number of nodes and edges."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GATv2Conv, global_mean_pool

    layers = torch.nn.ModuleList(
        GATv2Conv(width, 64, heads=4, edge_dim=16) for width in (128, 256, 256, 256)
    ).cuda()
    head = torch.nn.Linear(256, 10).cuda()
    step = torch.optim.Adam([*layers.parameters(), *head.parameters()])

    def graph():
        nodes = draw.randint(20, 3000)
        edges = nodes * draw.randint(2, 12)
        return Data(x=torch.randn(nodes, 128), edge_index=torch.randint(nodes, (2, edges)),
                    edge_attr=torch.randn(edges, 16))

    while not over():
        batch = Batch.from_data_list([graph() for _ in range(draw.randint(4, 48))]).to("cuda")
        x = batch.x
        for layer in layers:
            x = torch.relu(layer(x, batch.edge_index, batch.edge_attr))
        scores = head(global_mean_pool(x, batch.batch))
        scores.logsumexp(-1).mean().backward()
        step.step()
        step.zero_grad(set_to_none=True)


def encoders(draw, over):
    """Serves sentences with an encoder by four threads, each on a stream of its own; one of them copies results."""
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(num_hidden_layers=8)).cuda().half().eval()
    copies = torch.cuda.Stream()
    seeds = [draw.random() for _ in range(4)]

    def serve(seed):
        own, stream = random.Random(seed), torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            while not over():
                words = torch.randint(30000, (own.randint(1, 32), own.randint(4, 384)), device="cuda")
                found = model(input_ids=words).last_hidden_state.mean(1)
                copies.wait_stream(stream)
                with torch.cuda.stream(copies):
                    found.to("cpu", non_blocking=True)
                found.record_stream(copies)
                if own.random() < 0.2:
                    stream.synchronize()

    threads = [threading.Thread(target=serve, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


PROGRAMS = {program.__name__: program for program in (timm_train, t5_beams, lora, graphs, encoders)}


def record(name, path, events, seconds):
    """Runs a program until its history has that many events, or for that many seconds, and writes its snapshot."""
    torch.manual_seed(1)
    torch.cuda.memory._record_memory_history(context=None, max_entries=HISTORY_MAX)
    stats, began = torch.cuda.memory_stats, time.monotonic()

    def over():
        return stats()["allocation.all.allocated"] * 2 > events or time.monotonic() - began > seconds

    PROGRAMS[name](random.Random(1), over)
    torch.cuda.synchronize()
    snapshot = torch.cuda.memory._snapshot()
    with open(path, "wb") as file:
        pickle.dump(snapshot, file)
    figures = {key: stats()[f"{key}_bytes.all.peak"] for key in ("requested", "allocated", "reserved")}
    print(f"{name}: {stats()['allocation.all.allocated']} allocations in {time.monotonic() - began:.1f} s, "
          f"peaks {figures}, {torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(PROGRAMS), help="programs, with commas between them")
    parser.add_argument("--events", type=int, default=60_000, help="about how many allocations and frees")
    parser.add_argument("--seconds", type=float, default=40, help="the most that one program runs")
    parser.add_argument("--here", action="store_true", help="run the one program of --only in this process")
    asked = parser.parse_args()
    names = asked.only.split(",")
    if asked.here:
        return record(names[0], asked.folder / f"{names[0]}.pickle", asked.events, asked.seconds)
    asked.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names:
        own = [sys.executable, __file__, str(asked.folder), "--only", name, "--here"]
        own += ["--events", str(asked.events), "--seconds", str(asked.seconds)]
        if subprocess.run(own, check=False).returncode != 0:
            failed += 1
            print(f"{name}: left out", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
