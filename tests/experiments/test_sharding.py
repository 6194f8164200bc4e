"""The experiment on sharding strategies at a tiny size, and the task with a hidden stratum that it trains."""

import numpy as np
import pytest

from experiments.sharding import HIDDEN, STRATA, base_config, main, rarest
from paceline.core.errors import ConfigError
from paceline.tasks.task import load_task

RARE = 6
"""The label of the rare stratum."""


def test_the_strata_are_labels_of_the_very_examples_that_the_classes_are():
    classes, strata = (load_task(task).data("8") for task in (HIDDEN, STRATA))

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
        load_task(HIDDEN).data(path)


@pytest.mark.parametrize(("data", "each"), [("bundled", {2}), ("8", {8})])
def test_distribution_aware_gives_every_worker_its_share_of_the_rare_kind_or_all_of_it(data, each):
    labels = load_task(STRATA).data(data).train.classes

    config = base_config(HIDDEN, data, None, 12, 2, 0.0, "distribution_aware", [])

    assert set(rarest(config, labels).tolist()) == each
    stratified = base_config(HIDDEN, data, None, 12, 2, 0.0, "stratified", [])
    assert 0 in rarest(stratified, labels)


def test_the_experiment_trains_for_real_and_prints_a_row_for_each_strategy(capsys):
    main(
        ["stratified", "distribution_aware"], data="8", workers=3, seeds=2, epochs=1, step=0.0, sets=["batch_size=600"]
    )

    head, _, _, _, *rows = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert head == "task hidden_strata, data 8, 3 workers, 1 server, 1 epochs, seeds 0 to 1"
    assert [found[0] for found in cells] == ["stratified", "distribution_aware"]
    for found in cells:
        validation, spread, span = float(found[2]), float(found[3]), found[4].split(" to ")
        assert 0 < float(span[0]) <= validation <= float(span[1]) <= 1
        assert spread == pytest.approx((float(span[1]) - float(span[0])) / 2**0.5, abs=2e-4)
