"""The layouts of the papers' models, without their weights."""

import math

from paceline.core.settings.config import PlanConfig
from paceline.core.slice.plan import make_plan
from paceline_papers.reproduce.layouts import LAYOUTS, resnet50, vgg16


def test_the_layouts_have_the_published_sizes() -> None:
    layouts = (resnet50(classes=1000), vgg16(classes=1000), LAYOUTS["resnet50"](), LAYOUTS["vgg16"]())
    totals = [sum(math.prod(shape) for _, shape in layout) for layout in layouts]
    assert totals == [25_557_032, 138_357_544, 23_528_522, 134_301_514]


def test_the_layouts_name_every_tensor_once_and_in_model_order() -> None:
    for name, tensors in (("resnet50", 161), ("vgg16", 32)):
        names = [tensor for tensor, _ in LAYOUTS[name]()]
        assert len(set(names)) == len(names) == tensors
    assert resnet50()[0] == ("conv1.weight", (64, 3, 7, 7))
    assert vgg16()[-1] == ("classifier.6.bias", (10,))


def test_most_of_vgg16_is_in_one_layer_so_layerwise_slices_are_uneven() -> None:
    uneven = make_plan(vgg16(), 4, PlanConfig(slices="layerwise")).imbalance
    assert uneven > 3
    assert make_plan(vgg16(), 4, PlanConfig(slices="memorywise")).imbalance < 1.001
