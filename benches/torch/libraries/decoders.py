"""Language models that are trained: by transformers' own trainer, with experts, and on what they have generated."""

import tempfile

import torch
from torch.nn import functional

from libraries.models import VOCABULARY, batch, llama, made
from programs.setting import take_step


class Texts(torch.utils.data.Dataset):
    """Texts of random tokens, each of its own length."""

    def __init__(self, draw, number, lengths, vocabulary):
        self.texts = [torch.randint(2, vocabulary, (draw.randrange(*lengths),)) for _ in range(number)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, number):
        return {"input_ids": self.texts[number]}


def padded(texts):
    """Returns a batch of texts, as long as the longest."""
    longest = max(len(text["input_ids"]) for text in texts)
    words = torch.zeros(len(texts), longest, dtype=torch.long)
    mask = torch.zeros_like(words)
    for row, text in enumerate(texts):
        words[row, : len(text["input_ids"])] = text["input_ids"]
        mask[row, : len(text["input_ids"])] = 1
    return {"input_ids": words, "attention_mask": mask, "labels": words.masked_fill(mask == 0, -100)}


def trainer(setting, count, tick):
    """Trains a Llama by transformers' trainer, in mixed precision with two batches for each step, and tries it out
    after each eighth step."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    draw = setting.draw(101)
    model, vocabulary = llama(setting)
    each, lengths = setting.pick((8, (96, 1024)), (2, (4, 16)))
    texts = Texts(draw, 2 * each * count, lengths, vocabulary)

    class Watched(Trainer):
        """The trainer, which keeps the loss of the last batch."""

        def training_step(self, *arguments, **named):
            self.last = super().training_step(*arguments, **named)
            return self.last

    class Steps(TrainerCallback):
        def on_step_end(self, arguments, state, control, **named):
            tick(trained.last)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=count, per_device_train_batch_size=each, per_device_eval_batch_size=each,
            gradient_accumulation_steps=2, bf16=True, use_cpu=not setting.is_cuda, learning_rate=3e-4,
            eval_strategy="steps", eval_steps=setting.pick(8, 2), prediction_loss_only=True,
            save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
            dataloader_pin_memory=setting.is_cuda)
        trained = Watched(model, arguments, padded, texts, Texts(draw, 2 * each, lengths, vocabulary),
                          callbacks=[Steps()])
        trained.train()


def mixtral(setting, **options):
    """Returns a mixture of experts of the kind of Mixtral, and the size of its vocabulary."""
    from transformers import MixtralConfig, MixtralForCausalLM

    width, inner, layers, vocabulary = setting.pick((768, 2048, 8, VOCABULARY), (32, 48, 2, 120))
    config = MixtralConfig(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, vocab_size=vocabulary,
        num_attention_heads=setting.pick(12, 4), num_key_value_heads=setting.pick(4, 2), num_local_experts=8,
        num_experts_per_tok=2, max_position_embeddings=4096, bos_token_id=1, eos_token_id=None, pad_token_id=0,
        **options)
    return made(setting, lambda: MixtralForCausalLM(config)), vocabulary


def experts(setting, count):
    """Trains a mixture of experts, each of which runs on the tokens that chose it: their number always changes."""
    draw = setting.draw(102)
    model, vocabulary = mixtral(setting, output_router_logits=True, experts_implementation="eager")
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(count):
        words = batch(setting, draw, vocabulary, (2, 9), (128, 1024))
        with setting.autocast():
            loss = model(input_ids=words, labels=words).loss
        yield take_step(loss, optimiser)


def chosen(logits, words):
    """Returns the logarithms of the probabilities of words, given the logits of the places before them."""
    return -functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten(),
                                     reduction="none").view(len(words), -1)


def rollouts(setting, count):
    """Lets a Llama answer prompts several times each, and trains it on its answers, as reinforcement learning from
    rewards by groups does: caches of keys and values come and go between steps of training."""
    draw = setting.draw(103)
    model, vocabulary = llama(setting)
    reference = llama(setting, dtype=torch.bfloat16)[0].eval()
    reference.load_state_dict(model.state_dict())
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5)
    group = setting.pick(8, 2)
    for _ in range(count):
        prompts = batch(setting, draw, vocabulary, (4, 13), (32, 512)).repeat_interleave(group, 0)
        more = draw.randrange(*setting.pick((12, 32), (2, 5)))
        model.eval()
        with torch.no_grad(), setting.autocast():
            words = model.generate(prompts, max_new_tokens=more, do_sample=True)
            parts = [chosen(reference(part).logits, part) for part in words.split(2 * group)]
            before = torch.cat(parts)
        rewards = (words % 2 == 0).float().mean(1).view(-1, group)
        gains = (rewards - rewards.mean(1, keepdim=True)).flatten() / (rewards.std() + 1e-4)
        model.train()
        total = 0.0
        for part in range(0, len(words), 2 * group):
            here = slice(part, part + 2 * group)
            with setting.autocast():
                now = chosen(model(words[here]).logits, words[here])
            apart = before[here] - now
            kept = (apart.exp() - apart - 1).mean()
            loss = 0.05 * kept - (gains[here, None] * (now - now.detach()).exp()).mean()
            loss.backward()
            total = total + kept.detach() - now.detach().mean()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        yield total
