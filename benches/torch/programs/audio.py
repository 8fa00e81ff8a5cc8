"""Trains an encoder of sounds and a decoder of text, both of varying length, and tries it out at each fifth step."""

import torch
from torch import nn
from torch.nn import functional

from programs.blocks import Layer
from programs.setting import take_step


class Listener(nn.Module):
    def __init__(self, vocabulary, width, layers, heads):
        super().__init__()
        self.sounds = nn.ModuleList([nn.Conv1d(80, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)])
        self.encoder = nn.ModuleList(Layer(width, heads, is_causal=False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, heads, is_causal=True) for _ in range(layers))
        self.words, self.mix = nn.Embedding(vocabulary, width), nn.Linear(2 * width, width)

    def forward(self, sounds, tokens):
        for convolution in self.sounds:
            sounds = functional.gelu(convolution(sounds))
        heard = sounds.transpose(1, 2)
        for layer in self.encoder:
            heard = layer(heard)
        text, heard = self.words(tokens), heard.mean(1, keepdim=True).expand(-1, tokens.shape[1], -1)
        for layer in self.decoder:
            text = self.mix(torch.cat([layer(text), heard], -1))
        return functional.linear(text, self.words.weight)


def steps(setting, count):
    draw = setting.draw(14)
    vocabulary, *sizes = setting.pick((16000, 384, 6, 6), (50, 16, 2, 2))
    with setting.building():
        network = Listener(vocabulary, *sizes)
    optimiser = torch.optim.AdamW(network.parameters())
    most, moments, lengths = setting.pick((25, (300, 3000), (10, 200)), (4, (8, 20), (3, 9)))
    for step in range(count):
        number, length = draw.randrange(2, most), draw.randrange(*lengths)
        sounds = torch.randn(number, 80, draw.randrange(*moments), device=setting.device)
        tokens = setting.tokens(vocabulary, number, length)
        if step % 5 == 4:
            with torch.no_grad():
                network(sounds, tokens).argmax(-1)
        found, targets = network(sounds, tokens), setting.tokens(vocabulary, number * length)
        yield take_step(functional.cross_entropy(found.flatten(0, 1), targets), optimiser)
