"""Tensor names and shapes of the two models of [SHAT] Fig. 6, in model order, without torch.

ResNet-50 [He et al. 2015, table 1] and VGG-16 [Simonyan, Zisserman 2014, configuration D, input 224 x 224], as their
trained tensors are named in torchvision.
"""

from collections.abc import Callable

Shapes = list[tuple[str, tuple[int, ...]]]


def resnet50(classes: int = 10) -> Shapes:
    """Four stages of bottlenecks; about 23.5M values for 10 classes."""
    shapes = [*_convolution("conv1", 3, 64, 7), *_normalisation("bn1", 64)]
    inside = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for block in range(blocks):
            shapes += _bottleneck(f"layer{stage}.{block}", inside, width, project=block == 0)
            inside = 4 * width
    return [*shapes, *_linear("fc", inside, classes)]


def vgg16(classes: int = 10) -> Shapes:
    """13 convolutions and the 4096-4096 head, which holds nine tenths of its 134.3M values."""
    shapes: Shapes = []
    inside, place = 3, 0
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            name = f"features.{place}"
            shapes += [*_convolution(name, inside, width, 3), (f"{name}.bias", (width,))]
            inside, place = width, place + 2  # a ReLU follows each
        place += 1  # the pooling
    head = ((0, 512 * 7 * 7, 4096), (3, 4096, 4096), (6, 4096, classes))
    return shapes + [shape for number, a, b in head for shape in _linear(f"classifier.{number}", a, b)]


LAYOUTS: dict[str, Callable[[], Shapes]] = {"resnet50": resnet50, "vgg16": vgg16}


def _bottleneck(name: str, inside: int, width: int, *, project: bool) -> Shapes:
    shapes: Shapes = []
    for number, (a, b, kernel) in enumerate(((inside, width, 1), (width, width, 3), (width, 4 * width, 1)), start=1):
        shapes += [*_convolution(f"{name}.conv{number}", a, b, kernel), *_normalisation(f"{name}.bn{number}", b)]
    if project:
        shapes += _convolution(f"{name}.downsample.0", inside, 4 * width, 1)
        shapes += _normalisation(f"{name}.downsample.1", 4 * width)
    return shapes


def _convolution(name: str, inside: int, outside: int, kernel: int) -> Shapes:
    return [(f"{name}.weight", (outside, inside, kernel, kernel))]


def _normalisation(name: str, channels: int) -> Shapes:
    return [(f"{name}.weight", (channels,)), (f"{name}.bias", (channels,))]


def _linear(name: str, inside: int, outside: int) -> Shapes:
    return [(f"{name}.weight", (outside, inside)), (f"{name}.bias", (outside,))]
