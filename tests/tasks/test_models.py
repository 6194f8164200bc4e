"""The models have the sizes that their papers count, and the shapes that their tasks need."""

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.tasks.models.chars import NextByte
from paceline.tasks.models.cnn import Cnn
from paceline.tasks.models.resnet import CifarResNet
from paceline.tasks.task import load_task
from tests.support.nights import some

SIZES = {
    "resnet20": 269_722,
    "resnet32": 464_154,
    "resnet44": 658_586,
    "resnet56": 853_018,
    "resnet110": 1_727_962,
    "cnn": 545_098,
    "resnet50": 23_520_842,
    "alexnet": 2_472_266,
    "vgg16": 134_301_514,
    "vgg16_small": 14_728_266,
}


def weightless(task: str, name: str | None = None) -> nn.Module:
    """The model without memory for its weights: VGG-16 has half a GB of them."""
    with torch.device("meta"):
        return load_task(task, name).model().eval()


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "parameters"), SIZES.items())
def test_a_model_of_cifar10_has_the_parameters_of_its_paper_and_ten_scores(name: str, parameters: int):
    model = weightless("cifar10", name)

    assert count(model) == parameters
    assert model(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 10)


@pytest.mark.parametrize(("task", "classes"), some([("cifar100", 100), ("cifar100_coarse", 20)], [("cifar100", 100)]))
@pytest.mark.parametrize("name", SIZES)
def test_cifar100_has_the_models_of_cifar10_with_its_own_classes(task: str, classes: int, name: str):
    assert weightless(task, name)(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, classes)


def test_nine_tenths_of_vgg16_are_in_linear_layers():
    model = weightless("cifar10", "vgg16")

    linear = sum(count(layer) for layer in model.modules() if isinstance(layer, nn.Linear))

    assert linear == 119_586_826  # 25,088 x 4096 + 4096, 4096 x 4096 + 4096, 4096 x 10 + 10
    assert linear / count(model) == pytest.approx(0.890, abs=0.001)


@pytest.mark.parametrize("size", [32, 224])
def test_vgg16_takes_small_images_and_those_of_the_paper(size: int):
    assert weightless("cifar10", "vgg16")(torch.empty(1, 3, size, size, device="meta")).shape == (1, 10)


def test_resnet50_reaches_its_last_stage_with_four_by_four_pixels():
    model = weightless("cifar10", "resnet50")
    seen: list[torch.Size] = []
    model.blocks.register_forward_hook(lambda _, inputs, output: seen.append(output.shape))

    model(torch.empty(1, 3, 32, 32, device="meta"))

    assert seen == [(1, 2048, 4, 4)]


@pytest.mark.parametrize("depth", [2, 21, -4])
def test_a_resnet_of_another_depth_is_refused(depth: int):
    with pytest.raises(ConfigError, match=f"can't have depth {depth}"):
        CifarResNet(depth)


@pytest.mark.parametrize(
    ("task", "name", "parameters"),
    [
        ("mnist", None, 421_642),
        ("xor", None, 9),
        ("chars", None, 123_904),
        ("synthetic", "small", 9_610),
        ("synthetic", "wide", 23_501_670),
    ],
)
def test_the_other_models_have_the_sizes_that_their_tasks_tell(task: str, name: str | None, parameters: int):
    assert count(weightless(task, name)) == parameters


def test_a_cnn_has_four_layers_and_fits_its_images():
    model = Cnn(channels=1, size=28, classes=7)

    assert len([layer for layer in model if isinstance(layer, nn.Conv2d | nn.Linear)]) == 4
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 7)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_cnn_gives_what_its_layers_give_whichever_way_memory_is_laid_out(channels: int):
    model, images = Cnn(channels, size=28, classes=7), torch.rand(4, channels, 28, 28)

    outputs = model(images)

    torch.testing.assert_close(outputs, nn.Sequential(*model)(images))


def test_the_next_byte_is_scored_without_seeing_it():
    model, text = NextByte(), torch.arange(12).reshape(1, 12)
    changed = text.clone()
    changed[0, 7:] = 200

    before, after = model(text), model(changed)

    assert before.shape == (1, 12, 256)
    assert torch.equal(before[0, :7], after[0, :7])
    assert not torch.equal(before[0, 7:], after[0, 7:])


def test_convolutions_start_with_the_deviation_that_keeps_a_signals_size():
    torch.manual_seed(0)
    weights = Cnn(channels=3, size=32, classes=10)[3].weight

    assert weights.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
