"""Programs that are made of other people's libraries, as their users write them, with random weights and made-up data.

The libraries' code is unmodified, and models are built from configurations, so that nothing is downloaded. Each program
is a function of a module of this folder, as ``programs.measure`` runs it. It names the packages that it needs beside
torch: without them it is skipped.
"""

import importlib
import os
from typing import NamedTuple

# Nothing is to be fetched, nor told to anybody, and no process of a tokenizer's is to be forked.
for variable, value in {
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error", "DIFFUSERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1", "WANDB_MODE": "disabled",
}.items():
    os.environ.setdefault(variable, value)

ONE, POOLS = "without pools of graphs", "with pools of graphs"


class Program(NamedTuple):
    """Where a program is, as ``module:function``, how many steps it has on a GPU, and which packages it needs."""

    where: str
    steps: int
    needs: tuple[str, ...] = ("transformers",)
    kind: str = ONE


PROGRAMS = {
    "trainer": Program("decoders:trainer", 20, ("transformers", "accelerate")),
    "experts": Program("decoders:experts", 30),
    "rollouts": Program("decoders:rollouts", 8),
    "dynamic_cache": Program("generating:dynamic_cache", 14),
    "static_cache": Program("generating:static_cache", 14),
    "offloaded_cache": Program("generating:offloaded_cache", 10),
    "assisted": Program("generating:assisted", 10),
    "beams": Program("generating:beams", 12),
    "experts_generate": Program("generating:experts_generate", 12),
    "server": Program("server:server", 20),
    "clip": Program("pictures:clip", 30),
    "segformer": Program("pictures:segformer", 16),
    "vision_language": Program("pictures:vision_language", 24),
    "timm_train": Program("pictures:timm_train", 30, ("timm",)),
    "timm_distil": Program("pictures:timm_distil", 30, ("timm",)),
    "wav2vec2": Program("sounds:wav2vec2", 28),
    "whisper": Program("sounds:whisper", 10),
    "conformer": Program("sounds:conformer", 28, ("torchaudio",)),
    "separation": Program("sounds:separation", 28, ("torchaudio",)),
    "rcnn": Program("scenes:rcnn", 24, ("torchvision",)),
    "deeplab": Program("scenes:deeplab", 30, ("torchvision",)),
    "video": Program("scenes:video", 30, ("torchvision",)),
    "diffusers_train": Program("diffusion:train", 28, ("diffusers", "transformers")),
    "diffusers_sample": Program("diffusion:sample", 10, ("diffusers", "transformers")),
    "graphs": Program("graphs:graphs", 32, ("torch_geometric",)),
    "subgraphs": Program("graphs:subgraphs", 32, ("torch_geometric",)),
    "lora": Program("adapters:lora", 20, ("transformers", "peft")),
    "accumulate": Program("adapters:accumulate", 16, ("transformers", "accelerate")),
    "offload": Program("adapters:offload", 20, ("transformers", "accelerate")),
    "lightning": Program("trainers:fit", 32, ("lightning", "torchvision")),
    "sentences": Program("trainers:sentences", 12, ("transformers", "sentence_transformers", "tokenizers")),
    "grpo": Program("trainers:grpo", 6, ("transformers", "accelerate", "trl", "datasets", "tokenizers")),
    "gaussian_process": Program("sciences:gaussian_process", 16, ("gpytorch",)),
    "neural_ode": Program("sciences:neural_ode", 20, ("torchdiffeq",)),
    "equivariant": Program("sciences:equivariant", 24, ("e3nn",)),
    "paged_adam": Program("adapters:paged_adam", 20, ("transformers", "bitsandbytes")),
    "compiled": Program("compiled:usual", 30),
    "compiled_autotuned": Program("compiled:autotuned", 30, ("timm",)),
    "compiled_graphs": Program("compiled:graphs", 30, ("timm",), POOLS),
    "decode_graphs": Program("captured:decode_graphs", 20, kind=POOLS),
    "graphed_layers": Program("captured:graphed_layers", 32, ("timm",), POOLS),
    "graph_cache": Program("captured:graph_cache", 30, ("timm",), POOLS),
    "memory_pools": Program("captured:memory_pools", 24, kind=POOLS),
}


def load(name):
    """Returns the function of a program."""
    module, function = PROGRAMS[name].where.split(":")
    return getattr(importlib.import_module(f"libraries.{module}"), function)
