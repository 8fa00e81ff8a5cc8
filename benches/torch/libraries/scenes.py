"""Models of torchvision: a detector, a network for segmentation, and one for videos."""

import contextlib

import torch
from torch.nn import functional

from programs.setting import take_step


def rcnn(setting, count):
    """Trains Mask R-CNN on pictures of many sizes, each with its own number of objects."""
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    draw = setting.draw(151)
    sizes = setting.pick(
        {"min_size": (480, 512, 544, 576, 608, 640), "max_size": 960},
        {"min_size": (32,), "max_size": 48, "rpn_post_nms_top_n_train": 8, "box_batch_size_per_image": 8})
    with setting.building():
        # Weights are random, so that normalisation may not be frozen.
        backbone = resnet_fpn_backbone(backbone_name=setting.pick("resnet50", "resnet18"), weights=None,
                                       trainable_layers=5, norm_layer=torch.nn.BatchNorm2d)
        network = MaskRCNN(backbone, setting.pick(91, 5), **sizes)
    network.train()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.002, momentum=0.9)
    for _ in range(count):
        pictures, targets = [], []
        for _ in range(draw.randrange(*setting.pick((2, 7), (2, 4)))):
            high, wide = (draw.randrange(*setting.pick((320, 900), (32, 60))) for _ in range(2))
            pictures.append(torch.rand(3, high, wide, device=setting.device))
            targets.append(objects(setting, draw, high, wide))
        with setting.autocast():
            loss = sum(network(pictures, targets).values())
        yield take_step(loss, optimiser)


def objects(setting, draw, high, wide):
    """Returns what is in a picture of this size: boxes, their kinds and their masks."""
    number = draw.randrange(*setting.pick((1, 20), (1, 3)))
    most = torch.tensor([wide - 24, high - 24], device=setting.device)
    corners = torch.rand(number, 2, 2, device=setting.device) * most
    boxes = torch.cat([corners.amin(1), corners.amax(1) + 20], 1)
    masks = torch.zeros(number, high, wide, dtype=torch.uint8, device=setting.device)
    for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist()):
        mask[top:bottom, left:right] = 1
    labels = torch.randint(1, setting.pick(91, 5), (number,), device=setting.device)
    return {"boxes": boxes, "labels": labels, "masks": masks}


def deeplab(setting, count):
    """Trains DeepLabV3 with its second loss, on pictures of varying number and size."""
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large, deeplabv3_resnet50

    draw = setting.draw(152)
    classes = setting.pick(21, 4)
    with setting.building():
        build = setting.pick(deeplabv3_resnet50, deeplabv3_mobilenet_v3_large)
        network = build(weights=None, weights_backbone=None, num_classes=classes, aux_loss=True)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    for _ in range(count):
        number = draw.randrange(*setting.pick((4, 13), (2, 4)))
        high, wide = (32 * draw.randrange(*setting.pick((10, 19), (1, 3))) for _ in range(2))
        pictures = torch.randn(number, 3, high, wide, device=setting.device)
        targets = torch.randint(classes, (number, high, wide), device=setting.device)
        with setting.autocast():
            found = network(pictures)
            loss = functional.cross_entropy(found["out"], targets)
            loss = loss + 0.5 * functional.cross_entropy(found["aux"], targets)
        yield take_step(loss, optimiser)


def video(setting, count):
    """Trains a network of three-dimensional convolutions on clips of varying number, length and size."""
    from torchvision.models.video import r2plus1d_18

    draw = setting.draw(153)
    classes = setting.pick(400, 5)
    with setting.building():
        network = r2plus1d_18(weights=None, num_classes=classes)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.001, momentum=0.9)
    for _ in range(count):
        number, fours = (draw.randrange(*one) for one in setting.pick(((4, 17), (2, 6)), ((2, 4), (1, 3))))
        side = draw.choice(setting.pick((96, 112, 128, 160), (16, 24)))
        clips = torch.randn(number, 3, 4 * fours, side, side, device=setting.device)
        # The processor has no such convolutions in bfloat16 that are right.
        with setting.autocast() if setting.is_cuda else contextlib.nullcontext():
            loss = functional.cross_entropy(network(clips), torch.randint(classes, (number,), device=setting.device))
        yield take_step(loss, optimiser)
