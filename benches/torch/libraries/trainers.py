"""Loops of other libraries: lightning, sentence-transformers, and trl. Their tokenizers are made here, of numbers."""

import logging
import tempfile
import warnings

import torch
from torch.nn import functional

from libraries.models import llama


def fit(setting, count, tick):
    """Trains two networks against each other by lightning, with two optimisers, in mixed precision, and tries them out
    now and then on larger batches."""
    import lightning

    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    draw = setting.draw(191)
    side, width, numbers = setting.pick((64, 128, (96, 257)), (16, 8, (2, 5)))

    class Pictures(torch.utils.data.Dataset):
        """Batches of pictures, each of its own number."""

        def __init__(self, sizes):
            self.sizes = sizes

        def __len__(self):
            return len(self.sizes)

        def __getitem__(self, number):
            return torch.rand(self.sizes[number], 3, side, side) * 2 - 1

    class Steps(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, number):
            tick(module.last)

    def loader(times, most):
        pictures = Pictures([draw.randrange(*numbers) * most for _ in range(times)])
        return torch.utils.data.DataLoader(pictures, batch_size=None)

    trainer = lightning.Trainer(
        max_epochs=1, accelerator="gpu" if setting.is_cuda else "cpu", devices=1, precision="bf16-mixed", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        val_check_interval=max(count // 4, 1), limit_val_batches=2, callbacks=[Steps()])
    trainer.fit(adversaries(width), loader(count, 1), loader(2, 2))


def adversaries(width):
    """Returns a module of lightning with a network that makes pictures and one that tells them from real ones."""
    import lightning
    from torchvision.models import resnet18

    class Adversaries(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization, self.last = False, 0.0
            steps = [torch.nn.Conv2d(3, width, 3, 1, 1), torch.nn.GELU()]
            for _ in range(4):
                steps += [torch.nn.Conv2d(width, width, 3, 1, 1), torch.nn.GroupNorm(4, width), torch.nn.GELU()]
            self.maker = torch.nn.Sequential(*steps, torch.nn.Conv2d(width, 3, 3, 1, 1), torch.nn.Tanh())
            self.judge = resnet18(weights=None, num_classes=1)

        def judged(self, pictures, answer):
            found = self.judge(pictures)
            return functional.binary_cross_entropy_with_logits(found, torch.full_like(found, answer))

        def training_step(self, pictures, number):
            maker, judge = self.optimizers()
            made = self.maker(torch.randn_like(pictures))
            self.toggle_optimizer(maker)
            loss = self.judged(made, 1.0)
            self.manual_backward(loss)
            maker.step()
            maker.zero_grad()
            self.untoggle_optimizer(maker)
            self.toggle_optimizer(judge)
            other = self.judged(pictures, 1.0) + self.judged(made.detach(), 0.0)
            self.manual_backward(other)
            judge.step()
            judge.zero_grad()
            self.untoggle_optimizer(judge)
            self.last = (loss + other).detach()

        def validation_step(self, pictures, number):
            return self.judged(self.maker(torch.randn_like(pictures)), 1.0)

        def configure_optimizers(self):
            return [torch.optim.Adam(part.parameters(), lr=2e-4) for part in (self.maker, self.judge)]

    return Adversaries()


def tokenizer(vocabulary):
    """Returns a tokenizer whose words are the numbers below the size of its vocabulary, which has few."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    words |= {f"w{number}": number for number in range(len(words), vocabulary)}
    whole = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    whole.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=whole, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                   sep_token="[SEP]", eos_token="[SEP]", padding_side="left", model_max_length=512)


def text(draw, vocabulary, lengths):
    """Returns a text of words of such a tokenizer."""
    return " ".join(f"w{draw.randrange(4, vocabulary)}" for _ in range(draw.randrange(*lengths)))


@torch.no_grad()
def sentences(setting, count):
    """Encodes texts of very different lengths by sentence-transformers, which sorts them, and looks for the nearest."""
    from sentence_transformers import SentenceTransformer, util
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel

    draw = setting.draw(192)
    width, layers, vocabulary = setting.pick((768, 12, 2000), (32, 2, 60))
    config = BertConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=setting.pick(12, 2),
                        intermediate_size=4 * width, vocab_size=vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        BertModel(config).save_pretrained(folder)
        tokenizer(vocabulary).save_pretrained(folder)
        words = Transformer(folder)
        model = SentenceTransformer(modules=[words, Pooling(width)], device=str(setting.device))
    if setting.is_cuda:
        model = model.half()
    known = torch.zeros(0, width, device=setting.device)
    for _ in range(count):
        number, lengths = setting.pick((draw.randrange(200, 1200), (3, 400)), (5, (3, 12)))
        found = model.encode([text(draw, vocabulary, lengths) for _ in range(number)], batch_size=setting.pick(64, 2),
                             convert_to_tensor=True, normalize_embeddings=True, show_progress_bar=False).float()
        known = torch.cat([known, found])
        best = util.semantic_search(found, known, top_k=5)
        yield sum(one["score"] for hits in best for one in hits) / len(best)


def grpo(setting, count, tick):
    """Trains a Llama by trl on rewards for its own answers, of which it gives eight to each prompt."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    draw = setting.draw(193)
    model, vocabulary = llama(setting, dtype=torch.float32)
    prompts = [{"prompt": text(draw, vocabulary, setting.pick((16, 256), (3, 8)))} for _ in range(8 * count)]
    each = setting.pick(8, 2)

    got = []

    def reward(completions, **named):
        got[:] = [sum(int(word[1:]) % 5 for word in one.split() if word[0] == "w") for one in completions]
        return got

    class Watched(GRPOTrainer):
        """The trainer, which keeps the loss of the last batch."""

        def training_step(self, *arguments, **named):
            self.last = super().training_step(*arguments, **named)
            return self.last

    class Steps(TrainerCallback):
        def on_step_end(self, arguments, state, control, **named):
            # The loss is about zero where answers are as probable as when they were given.
            tick(trained.last + sum(got) / len(got))

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, max_steps=count, per_device_train_batch_size=each, gradient_accumulation_steps=2,
            num_generations=each, max_completion_length=setting.pick(48, 4), bf16=True, use_cpu=not setting.is_cuda,
            save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True, learning_rate=1e-5)
        trained = Watched(model, reward, config, Dataset.from_list(prompts), processing_class=tokenizer(vocabulary),
                          callbacks=[Steps()])
        trained.train()
