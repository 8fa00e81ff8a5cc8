"""Trains a detector on images of varying number, height and width: few blocks, each a large part of what is live."""

import torch
from torch import nn
from torch.nn import functional

from programs.setting import take_step

WIDTHS = (64, 128, 256, 512, 1024)


def convolutions(inner, outer):
    """Returns three convolutions, the first of which halves both sides of an image."""
    layers = [nn.Conv2d(inner, outer, 3, 2, 1), nn.ReLU(), nn.Conv2d(outer, outer, 3, 1, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(outer, outer, 3, 1, 1), nn.ReLU())


class Detector(nn.Module):
    """A backbone, a pyramid of features, and a head for regions of 7 by 7 features."""

    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, WIDTHS[0], 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.levels = nn.ModuleList(convolutions(*pair) for pair in zip(WIDTHS, WIDTHS[1:]))
        self.sides = nn.ModuleList(nn.Conv2d(width, 256, 1) for width in WIDTHS[1:])
        self.head = nn.Sequential(nn.Linear(256 * 49, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.classes = nn.Linear(1024, classes)

    def forward(self, images, regions):
        features, found = [], self.stem(images)
        for level in self.levels:
            found = level(found)
            features.append(found)
        pyramid = [side(feature) for side, feature in zip(self.sides, features)]
        for level in reversed(range(len(pyramid) - 1)):
            above = functional.interpolate(pyramid[level + 1], size=pyramid[level].shape[-2:])
            pyramid[level] = pyramid[level] + above
        # Half of the regions are on the finest level, half of the rest on the next, and so on.
        cut = []
        for level in pyramid:
            here = max(1, regions // 2)
            regions -= here
            each = -(-here // len(images))
            grid = torch.zeros(len(images), 7 * each, 7, 2, device=images.device)
            sampled = functional.grid_sample(level, grid, align_corners=False)
            cut.append(sampled.permute(0, 2, 3, 1).reshape(-1, 49 * 256))
        scores = sum(torch.sigmoid(level.float()).mean() for level in pyramid)
        return self.classes(self.head(torch.cat(cut))), scores


def steps(setting, count):
    draw = setting.draw(11)
    classes, (least, most) = setting.pick((91, (20, 42)), (7, (1, 3)))
    with setting.building():
        network = Detector(classes)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    for _ in range(count):
        number = draw.randrange(2, setting.pick(9, 4))
        height, width = 32 * draw.randrange(least, most), 32 * draw.randrange(least, most)
        images = torch.randn(number, 3, height, width, device=setting.device)
        regions = sum(draw.randrange(*setting.pick((100, 512), (4, 9))) for _ in range(number))
        found, scores = network(images, regions)
        targets = setting.tokens(classes, len(found))
        yield take_step(functional.cross_entropy(found, targets) + scores, optimiser)
