"""VGG-16 (Simonyan and Zisserman 2014, configuration D): the model whose linear layers hold most of its parameters."""

from torch import nn

from paceline.tasks.models.first_weights import start_convolutions

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""Channels of the 3x3 convolutions; each stage ends with pooling by 2."""


def vgg16(classes: int = 10) -> nn.Module:
    """VGG-16 as [SHAT] counts it: the head of the original (25,088-4096-4096) with dropout, which 7x7 adaptive pooling
    feeds whatever the image's size. 134,301,514 parameters with 10 classes, 89 % of them in linear layers. Images
    (examples, 3, n, n), n >= 32, to class scores (examples, classes)."""
    model = nn.Sequential(
        *_convolutions(has_norm=False),
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, classes),
    )
    start_convolutions(model)
    return model


def small_vgg16(classes: int = 10) -> nn.Module:
    """Its 13 convolutions with batch normalisation and one linear layer, the usual form for CIFAR: 14,728,266 parameters
    with 10 classes. Images (examples, 3, 32, 32) to class scores (examples, classes)."""
    model = nn.Sequential(*_convolutions(has_norm=True), nn.Flatten(), nn.Linear(512, classes))
    start_convolutions(model)
    return model


def _convolutions(has_norm: bool) -> list[nn.Module]:
    layers: list[nn.Module] = []
    before = 3
    for stage in STAGES:
        for channels in stage:
            layers.append(nn.Conv2d(before, channels, 3, padding=1))
            layers += [nn.BatchNorm2d(channels)] if has_norm else []
            layers.append(nn.ReLU())
            before = channels
        layers.append(nn.MaxPool2d(2))
    return layers
