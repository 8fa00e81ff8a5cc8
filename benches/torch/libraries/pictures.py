"""Models of pictures: pairs of pictures and texts, segmentation, a model that reads pictures, and networks of timm."""

import torch
from torch.nn import functional

from libraries.models import VOCABULARY, made
from programs.setting import take_step


def clip(setting, count):
    """Trains CLIP on pairs of pictures and texts, in batches of varying number, with texts of varying length."""
    from transformers import CLIPConfig, CLIPModel

    draw = setting.draw(131)
    width, layers, side, patch, vocabulary = setting.pick((512, 12, 224, 16, VOCABULARY), (32, 2, 32, 16, 120))
    tower = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers,
             "num_attention_heads": setting.pick(8, 2)}
    text = {**tower, "vocab_size": vocabulary, "max_position_embeddings": 77, "bos_token_id": 0, "eos_token_id": 1,
            "pad_token_id": 1}
    config = CLIPConfig(text_config=text, vision_config={**tower, "image_size": side, "patch_size": patch})
    model = made(setting, lambda: CLIPModel(config))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(count):
        number, length = (draw.randrange(*one) for one in setting.pick(((32, 128), (16, 77)), ((2, 5), (4, 9))))
        pictures = torch.randn(number, 3, side, side, device=setting.device)
        words = torch.randint(2, vocabulary, (number, length), device=setting.device)
        words[:, -1] = 1
        with setting.autocast():
            loss = model(input_ids=words, pixel_values=pictures, return_loss=True).loss
        yield take_step(loss, optimiser)


def segformer(setting, count):
    """Trains SegFormer on pictures of varying number and size."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    draw = setting.draw(132)
    sizes, depths, labels = setting.pick(([64, 128, 320, 512], [3, 4, 6, 3], 150), ([8, 16, 16, 32], [1, 1, 1, 1], 5))
    config = SegformerConfig(hidden_sizes=sizes, depths=depths, num_labels=labels, num_attention_heads=[1, 2, 4, 8],
                             decoder_hidden_size=setting.pick(512, 16))
    model = made(setting, lambda: SegformerForSemanticSegmentation(config))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(count):
        # With pictures of twice the size, 30 steps on five allocators were not done after four minutes on an H200.
        number = draw.randrange(*setting.pick((3, 9), (1, 3)))
        height, width = (32 * draw.randrange(*setting.pick((4, 11), (2, 4))) for _ in range(2))
        pictures = torch.randn(number, 3, height, width, device=setting.device)
        targets = torch.randint(labels, (number, height, width), device=setting.device)
        with setting.autocast():
            loss = model(pixel_values=pictures, labels=targets).loss
        yield take_step(loss, optimiser)


def vision_language(setting, count):
    """Trains Qwen2-VL on texts with pictures of any size, each of which becomes as many tokens as it has patches."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    draw = setting.draw(133)
    width, layers, depth, vocabulary = setting.pick((1024, 8, 8, VOCABULARY), (32, 2, 2, 130))
    heads = setting.pick(16, 2)
    marks = {"vision_start_token_id": 3, "vision_end_token_id": 4, "image_token_id": 5, "video_token_id": 6}
    text = {"hidden_size": width, "intermediate_size": width * 11 // 4, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": heads // 2, "vocab_size": vocabulary,
            "rope_scaling": {"type": "mrope", "mrope_section": setting.pick([8, 12, 12], [2, 3, 3])},
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    vision = {"embed_dim": width // 2, "hidden_size": width, "depth": depth, "num_heads": heads // 2, "patch_size": 14}
    config = Qwen2VLConfig(text_config=text, vision_config=vision, **marks)
    model = made(setting, lambda: Qwen2VLForConditionalGeneration(config))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(count):
        yield take_step(read(setting, draw, model, vocabulary), optimiser)


def read(setting, draw, model, vocabulary):
    """Returns the loss of a text in which there are pictures of several sizes."""
    grids, words = [], []
    for _ in range(draw.randrange(*setting.pick((2, 9), (1, 3)))):
        high, wide = (2 * draw.randrange(*setting.pick((8, 25), (1, 4))) for _ in range(2))
        grids.append([1, high, wide])
        words += [3, *[5] * (high * wide // 4), 4]
        words += [draw.randrange(7, vocabulary) for _ in range(draw.randrange(*setting.pick((32, 256), (3, 9))))]
    patches = torch.randn(sum(high * wide for _, high, wide in grids), 3 * 2 * 14 * 14, device=setting.device)
    tokens = torch.tensor([words], device=setting.device)
    kinds = (tokens == 5).int()
    with setting.autocast():
        return model(input_ids=tokens, attention_mask=torch.ones_like(tokens), pixel_values=patches, labels=tokens,
                     image_grid_thw=torch.tensor(grids, device=setting.device), mm_token_type_ids=kinds).loss


def timm_train(setting, count):
    """Trains a ConvNeXt and an EfficientNet in turn, in resolutions and batches that change, with timm's augmentation,
    its optimiser and its moving average of the weights."""
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3

    draw = setting.draw(134)
    names = setting.pick(("convnext_tiny", "efficientnet_b2"), ("convnext_atto", "efficientnet_lite0"))
    classes = setting.pick(1000, 7)
    with setting.building():
        models = [timm.create_model(name, num_classes=classes) for name in names]
    averages = [ModelEmaV3(model, decay=0.99) for model in models]
    optimisers = [create_optimizer_v2(model, opt="lamb", lr=1e-3, weight_decay=0.02) for model in models]
    mix, loss_of = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=classes), SoftTargetCrossEntropy()
    for step in range(count):
        side = draw.choice(setting.pick((160, 192, 224, 256, 288), (32, 64)))
        number = 2 * draw.randrange(*setting.pick((16, 49), (1, 3)))
        pictures = torch.randn(number, 3, side, side, device=setting.device)
        pictures, targets = mix(pictures, torch.randint(classes, (number,), device=setting.device))
        which = step % 2
        with setting.autocast():
            loss = loss_of(models[which](pictures), targets)
        loss = take_step(loss, optimisers[which])
        averages[which].update(models[which])
        yield loss


def timm_distil(setting, count):
    """Trains a vision transformer of timm to tell what a large convolutional network tells, which only looks."""
    import timm

    draw = setting.draw(135)
    names = setting.pick(("vit_small_patch16_224", "resnet101"), ("vit_tiny_patch16_224", "resnet10t"))
    classes = setting.pick(1000, 7)
    with setting.building():
        learner = timm.create_model(names[0], num_classes=classes, dynamic_img_size=True, drop_path_rate=0.1)
        teacher = timm.create_model(names[1], num_classes=classes).eval()
    learner.set_grad_checkpointing(True)
    optimiser = torch.optim.AdamW(learner.parameters(), lr=1e-4)
    for _ in range(count):
        side = 16 * draw.randrange(*setting.pick((10, 20), (2, 4)))
        pictures = torch.randn(draw.randrange(*setting.pick((32, 128), (2, 5))), 3, side, side, device=setting.device)
        with setting.autocast():
            with torch.no_grad():
                wanted = teacher(pictures)
            found = learner(pictures)
        loss = functional.kl_div(found.float().log_softmax(-1), wanted.float().softmax(-1), reduction="batchmean")
        yield take_step(loss, optimiser)
