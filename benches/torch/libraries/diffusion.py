"""Models of diffusers: training in several resolutions, and pipelines that make pictures of several sizes."""

import torch
from torch.nn import functional

from libraries.models import made
from programs.setting import take_step


def autoencoder(setting):
    """Returns an autoencoder of pictures, as Stable Diffusion has it, or a small one in a test."""
    from diffusers import AutoencoderKL

    widths = setting.pick((128, 256, 512, 512), (8, 8))
    return AutoencoderKL(
        block_out_channels=widths, down_block_types=("DownEncoderBlock2D",) * len(widths), latent_channels=4,
        up_block_types=("UpDecoderBlock2D",) * len(widths), layers_per_block=setting.pick(2, 1),
        norm_num_groups=setting.pick(32, 4))


def unet(setting):
    """Returns a UNet that is told what to draw, or a small one in a test."""
    from diffusers import UNet2DConditionModel

    widths = setting.pick((192, 384, 768, 768), (8, 16))
    down = ("CrossAttnDownBlock2D",) * (len(widths) - 1) + ("DownBlock2D",)
    up = ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * (len(widths) - 1)
    return UNet2DConditionModel(
        sample_size=64, block_out_channels=widths, down_block_types=down, up_block_types=up,
        layers_per_block=setting.pick(2, 1), cross_attention_dim=setting.pick(768, 16),
        norm_num_groups=setting.pick(32, 4), attention_head_dim=setting.pick(8, 2))


def train(setting, count):
    """Trains a UNet on the codes of pictures in several resolutions, which an autoencoder makes without gradients, and
    keeps a moving average of the weights."""
    from diffusers import DDPMScheduler
    from diffusers.training_utils import EMAModel

    draw = setting.draw(161)
    network, coder = made(setting, lambda: unet(setting)), made(setting, lambda: autoencoder(setting), torch.bfloat16)
    coder.requires_grad_(False)
    noise, average = DDPMScheduler(), EMAModel(network.parameters())
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4)
    for _ in range(count):
        high, wide = (setting.pick(64, 16) * draw.randrange(*setting.pick((4, 10), (1, 3))) for _ in range(2))
        number = draw.randrange(*setting.pick((2, 9), (1, 3)))
        pictures = torch.rand(number, 3, high, wide, device=setting.device, dtype=torch.bfloat16)
        with torch.no_grad():
            codes = coder.encode(pictures).latent_dist.sample().float() * coder.config.scaling_factor
        texts = torch.randn(number, setting.pick(77, 5), network.config.cross_attention_dim, device=setting.device)
        added, times = torch.randn_like(codes), torch.randint(0, 1000, (number,), device=setting.device)
        with setting.autocast():
            found = network(noise.add_noise(codes, added, times), times, texts).sample
        loss = take_step(functional.mse_loss(found.float(), added), optimiser)
        average.step(network.parameters())
        yield loss


def sample(setting, count):
    """Makes pictures of several sizes by the pipeline of Stable Diffusion, with guidance, from texts that were encoded
    before. The decoder's blocks are by far the largest."""
    from diffusers import DDIMScheduler, StableDiffusionPipeline

    draw = setting.draw(162)
    network = made(setting, lambda: unet(setting), torch.bfloat16)
    coder = made(setting, lambda: autoencoder(setting), torch.bfloat16)
    pipeline = StableDiffusionPipeline(
        unet=network, vae=coder, text_encoder=None, tokenizer=None, scheduler=DDIMScheduler(), safety_checker=None,
        feature_extractor=None, requires_safety_checker=False)
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator(setting.device).manual_seed(1)
    for _ in range(count):
        high, wide = (setting.pick(64, 16) * draw.randrange(*setting.pick((5, 15), (1, 3))) for _ in range(2))
        number = draw.randrange(*setting.pick((1, 5), (1, 2)))
        texts = torch.randn(2, number, setting.pick(77, 5), network.config.cross_attention_dim, device=setting.device,
                            dtype=torch.bfloat16)
        pictures = pipeline(prompt_embeds=texts[0], negative_prompt_embeds=texts[1], height=high, width=wide,
                            num_inference_steps=setting.pick(8, 2), generator=generator, output_type="pt").images
        yield pictures.float().mean()
