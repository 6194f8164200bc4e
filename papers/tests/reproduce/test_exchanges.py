"""What servers and links let through: its settings, and a tiny real measurement."""

import json
from math import prod
from pathlib import Path

import pytest

from paceline.core.slice.plan import make_plan
from paceline_papers.reproduce.exchanges import Load, measure, server_node, worker_node
from paceline_papers.reproduce.network import UNLIMITED, missing
from paceline_papers.reproduce.recipe import Around
from paceline_papers.reproduce.recipes.shat import fig_6
from tests.support.nights import some


@pytest.fixture
def links() -> None:
    """For tests that need real namespaces."""
    if why := missing():
        pytest.skip(why)


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("cut", some(fig_6.CUTS, ["memorywise"]))
def test_workers_behind_links_push_to_all_servers_of_every_cut(cut: str) -> None:
    config = fig_6.config_of(cut, 2)
    nodes = [*map(server_node, range(config.servers)), *map(worker_node, range(config.workers))]
    shapes = [("first.weight", (64, 8)), ("first.bias", (8,)), ("second.weight", (8, 10))]

    found = measure(Load(config, shapes, 0.01, 1, 20), dict.fromkeys(nodes, UNLIMITED))

    assert found.steps > 0
    assert found.cores > 0


@pytest.mark.usefixtures("links")
def test_a_row_of_the_figure_gives_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig_6, "SCALE", 10_000)
    monkeypatch.setattr(fig_6, "COMPUTE", 0.01)

    found = fig_6.run(Around(tmp_path), "ResNet-50, layerwise, n = 2", 0)

    assert set(fig_6.RECIPE.columns) == set(found)
    assert json.loads(json.dumps(found)) == found


def test_a_part_of_all_tensors_is_as_unevenly_cut_as_the_whole_model() -> None:
    for model in fig_6.MODELS:
        plan = fig_6.config_of("layerwise", 8).plan
        whole, part = (make_plan(shapes, 4, plan) for shapes in (fig_6.MODELS[model](), fig_6.shapes_of(model)))
        assert part.imbalance == pytest.approx(whole.imbalance, rel=0.01)
        assert part.total == pytest.approx(sum(prod(shape) for _, shape in whole.shapes) / fig_6.SCALE, rel=0.01)
