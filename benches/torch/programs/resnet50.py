"""Trains ResNet-50 in mixed precision with a scaler of gradients, on images whose size and number vary."""

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after),
        )
        self.short = nn.Identity()
        if stride != 1 or before != after:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return functional.relu(self.path(x) + self.short(x), inplace=True)


def resnet(width, depths, classes):
    """Returns a ResNet of bottlenecks; that of width 64 with the depths 3, 4, 6 and 3 is ResNet-50."""
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    before = width
    for stage, depth in enumerate(depths):
        inner = width << stage
        for place in range(depth):
            layers.append(Bottleneck(before, inner, 2 if stage > 0 and place == 0 else 1))
            before = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def steps(setting, count):
    draw = setting.draw(3)
    with setting.building():
        network = resnet(*setting.pick((64, (3, 4, 6, 3), 1000), (4, (1, 1, 1, 1), 10)))
    network = network.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler(setting.device.type, enabled=setting.is_cuda)
    for _ in range(count):
        side = draw.randrange(*setting.pick((128, 288, 32), (32, 72, 8)))
        batch = draw.choice(setting.pick([64, 96, 128], [2, 3, 4]))
        images = torch.randn(batch, 3, side, side, device=setting.device).to(memory_format=torch.channels_last)
        targets = setting.tokens(setting.pick(1000, 10), batch)
        with setting.autocast(torch.float16):
            loss = functional.cross_entropy(network(images), targets)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad(set_to_none=True)
        yield loss.detach()
