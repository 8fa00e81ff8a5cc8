"""Models of transformers that several programs use, built from their configurations on the device."""

import torch

VOCABULARY = 32000


def made(setting, build, dtype=torch.float32):
    """Returns the model that a function builds, on the device and of this type."""
    with setting.device:
        model = build()
    return model.to(setting.device, dtype)


def llama(setting, layers=12, width=1024, dtype=torch.float32, **options):
    """Returns a language model of the kind of Llama, or a small one in a test, and the size of its vocabulary."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width, layers, vocabulary = setting.pick((width, layers, VOCABULARY), (32, min(layers, 2), 120))
    config = LlamaConfig(
        hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers,
        num_attention_heads=setting.pick(width // 64, 4), num_key_value_heads=setting.pick(width // 128, 2),
        vocab_size=vocabulary, max_position_embeddings=4096, bos_token_id=1, eos_token_id=None, pad_token_id=0,
        **options)
    return made(setting, lambda: LlamaForCausalLM(config), dtype), vocabulary


def batch(setting, draw, vocabulary, numbers, lengths):
    """Returns random tokens of a batch whose number of texts and whose length are drawn."""
    numbers, lengths = setting.pick((numbers, lengths), ((1, min(4, numbers[1])), (4, 16)))
    shape = draw.randrange(*numbers), draw.randrange(*lengths)
    return torch.randint(2, vocabulary, shape, device=setting.device)
