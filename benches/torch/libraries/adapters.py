"""Language models that are trained or run with less memory: by peft, by accelerate, and by an optimiser that pages."""

import torch

from libraries.decoders import Texts, padded
from libraries.models import batch, llama
from programs.setting import take_step


def lora(setting, count):
    """Trains adapters of a Llama by peft, with checkpoints of activations, on texts of many lengths. After each eighth
    step it merges them into the weights, tries them out, and takes them out again."""
    from peft import LoraConfig, get_peft_model

    draw = setting.draw(181)
    model, vocabulary = llama(setting, layers=24, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj", "down_proj"]))
    optimiser = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-4)
    for step in range(count):
        words = batch(setting, draw, vocabulary, (2, 9), (64, 1500))
        loss = take_step(model(input_ids=words, labels=words).loss, optimiser)
        if step % 8 == 7:
            model.merge_adapter()
            with torch.no_grad():
                loss = loss + model(input_ids=words, labels=words).loss
            model.unmerge_adapter()
        yield loss


def accumulate(setting, count):
    """Trains a Llama by accelerate, which gathers the gradients of four batches, cuts them, and takes a step."""
    from accelerate import Accelerator

    draw = setting.draw(182)
    accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16", cpu=not setting.is_cuda)
    model, vocabulary = llama(setting)
    each, lengths = setting.pick((4, (64, 1024)), (2, (4, 16)))
    texts = torch.utils.data.DataLoader(Texts(draw, 4 * each * count, lengths, vocabulary), each, collate_fn=padded)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-4, total_steps=4 * count + 1)
    model, optimiser, texts, rate = accelerator.prepare(model, optimiser, texts, rate)
    total = 0.0
    for words in texts:
        with accelerator.accumulate(model):
            loss = model(**words).loss
            accelerator.backward(loss)
            total = total + loss.detach()
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            rate.step()
            optimiser.zero_grad()
        if accelerator.sync_gradients:
            yield total
            total = 0.0


@torch.no_grad()
def offload(setting, count):
    """Runs a Llama whose weights are in the host's memory: accelerate brings those of each layer before it runs."""
    from accelerate import cpu_offload

    draw = setting.draw(183)
    model, vocabulary = llama(setting, dtype=torch.bfloat16)
    model = cpu_offload(model.to("cpu").eval(), execution_device=setting.device)
    for _ in range(count):
        words = batch(setting, draw, vocabulary, (2, 25), (64, 1024))
        yield model(input_ids=words).logits[:, -1].float().logsumexp(-1).mean()


def paged_adam(setting, count):
    """Trains a Llama by an optimiser of bitsandbytes, whose state may be moved to the host."""
    import bitsandbytes

    draw = setting.draw(184)
    model, vocabulary = llama(setting)
    optimiser = bitsandbytes.optim.PagedAdamW8bit(model.parameters(), lr=3e-4)
    for _ in range(count):
        words = batch(setting, draw, vocabulary, (2, 9), (64, 1024))
        with setting.autocast():
            loss = model(input_ids=words, labels=words).loss
        yield take_step(loss, optimiser)
