"""Transformers as GPT-2, BERT and Llama have them."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def heads_of(tensor, heads):
    """Returns (batch, length, heads * width) as (batch, heads, length, width)."""
    batch, length, width = tensor.shape
    return tensor.view(batch, length, heads, width // heads).transpose(1, 2)


def joined(tensor):
    """Returns (batch, heads, length, width) as (batch, length, heads * width)."""
    return tensor.transpose(1, 2).flatten(2)


class Layer(nn.Module):
    """A layer of GPT-2, normalised in front, or of BERT, normalised behind."""

    def __init__(self, width, heads, is_causal):
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def attend(self, x):
        query, key, value = (heads_of(part, self.heads) for part in self.into(x).chunk(3, -1))
        return self.out(joined(functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)))

    def widen(self, x):
        return self.down(functional.gelu(self.up(x)))

    def forward(self, x):
        if self.is_causal:
            x = x + self.attend(self.first(x))
            return x + self.widen(self.second(x))
        x = self.first(x + self.attend(x))
        return self.second(x + self.widen(x))


class Transformer(nn.Module):
    """GPT-2 if it is causal, whose output is logits, and otherwise BERT, whose output is hidden states."""

    def __init__(self, vocabulary, length, width, layers, heads, is_causal=True, checkpoints=False):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, is_causal) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.is_causal, self.checkpoints = is_causal, checkpoints
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpoints and self.training else layer(x)
        return functional.linear(self.last(x), self.words.weight) if self.is_causal else self.last(x)


def next_token_loss(logits, tokens):
    """Returns the loss of predicting each token from those in front of it."""
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def rotated(x, start):
    """Turns pairs of numbers by their place in the text, the first of which is ``start``."""
    half = x.shape[-1] // 2
    places = torch.arange(start, start + x.shape[-2], device=x.device, dtype=torch.float32)
    speeds = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = places[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


class LlamaLayer(nn.Module):
    """A layer of Llama. It takes the keys and values of earlier tokens, and returns those of all tokens."""

    def __init__(self, width, heads, groups, inner):
        super().__init__()
        self.heads, self.groups = heads, groups
        each = width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.pairs = nn.Linear(width, 2 * groups * each, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x, past=None):
        normal = self.first(x)
        start = 0 if past is None else past[0].shape[2]
        key, value = (heads_of(part, self.groups) for part in self.pairs(normal).chunk(2, -1))
        query, key = rotated(heads_of(self.query(normal), self.heads), start), rotated(key, start)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        attended = functional.scaled_dot_product_attention(
            query, key, value, is_causal=past is None, enable_gqa=self.groups != self.heads)
        x = x + self.out(joined(attended))
        normal = self.second(x)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal)), (key, value)


class Llama(nn.Module):
    """Llama. In training its layers are checkpoints: they keep their input alone, and run anew in the backward pass."""

    def __init__(self, vocabulary, width, layers, heads, groups, inner):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, groups, inner) for _ in range(layers))
        self.last, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x, _ = checkpoint(layer, x, use_reentrant=False)
        return self.head(self.last(x))

    def read_on(self, tokens, pasts):
        """Returns the logits of the last token, and the keys and values of each layer; ``None`` is an empty past."""
        x, longer = self.words(tokens), []
        for layer, past in zip(self.layers, pasts or [None] * len(self.layers)):
            x, past = layer(x, past)
            longer.append(past)
        return self.head(self.last(x[:, -1])), longer
