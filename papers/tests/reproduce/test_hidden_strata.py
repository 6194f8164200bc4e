"""The recipe with a hidden stratum, and its task."""

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.sharder.sharding import make_shards
from paceline.tasks.task import load_task
from paceline_papers.reproduce.recipes.ours.hidden_strata import STRATA, TASK, config_of, rarest

RARE = 6
"""The label of the rare stratum."""


def test_the_strata_are_labels_of_the_very_examples_that_the_classes_are():
    classes, strata = (load_task(str(task)).data("8") for task in (TASK, STRATA))

    for name in ("train", "validation", "test"):
        seen, hidden = getattr(classes, name), getattr(strata, name)
        assert np.array_equal(seen.features, hidden.features)
        assert len({(stratum, label) for stratum, label in zip(hidden.labels, seen.labels, strict=True)}) == len(
            np.unique(hidden.labels)
        )
    assert np.count_nonzero(strata.train.labels == RARE) == 8
    assert np.unique(strata.test.labels).tolist() == [RARE]


@pytest.mark.parametrize("path", ["0", "601", "few"])
def test_a_rare_kind_of_another_size_than_there_can_be_is_refused(path):
    with pytest.raises(ConfigError, match=rf"data\.path of the task hidden_strata is '{path}'; it is .*1 to 600"):
        load_task(str(TASK)).data(path)


@pytest.mark.parametrize(("rare", "each"), [(24, {2}), (8, {8})])
def test_distribution_aware_gives_every_worker_its_share_of_the_rare_kind_or_all_of_it(rare, each, tmp_path):
    labels = load_task(str(STRATA)).data(str(rare)).train.classes
    for strategy in ("distribution_aware", "stratified"):
        make_shards(config_of(strategy, rare, 0), tmp_path / strategy)

    assert set(rarest(tmp_path / "distribution_aware", labels)) == each
    assert 0 in rarest(tmp_path / "stratified", labels)
