"""What recipes in virtual time use: links of a known speed, slow spells, waiting, and networks of torch's."""

import json
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from paceline.core.settings.config import Config
from paceline_papers.reproduce.claims import RunFigures
from paceline_papers.reproduce.recipe import Around
from paceline_papers.reproduce.recipes.survey import ad_psgd, dssp
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.survey_on_digits import REACHED, config_of, measured
from paceline_studies.simulator.links import Links
from paceline_studies.simulator.pace import Chances
from paceline_studies.simulator.problem import Other, Problem, problem_of
from paceline_studies.simulator.timeline import Timeline
from paceline_studies.simulator.training import training_of
from paceline_studies.simulator.workers import Training


# links
def came(links: Links, *messages: tuple[str, str, int]) -> list[float]:
    """When each of these messages has come, all sent at once; latency 1."""
    time, found = Timeline(), {}
    for number, (sender, to, values) in enumerate(messages):

        def action(number: int = number) -> None:
            found[number] = time.now

        links.carry(time, 1.0, (sender, to), values, action)
    time.to_the_end()
    return [found[number] for number in range(len(messages))]


def test_a_message_takes_its_values_time_on_the_slower_of_its_two_links() -> None:
    assert came(Links(10.0), ("a", "b", 20)) == [3.0]
    assert came(Links(10.0, {"b": 4.0}), ("a", "b", 20)) == [9.0]
    assert came(Links(10.0, {"a": 4.0}), ("a", "b", 20)) == [9.0]
    assert came(Links(10.0), ("a", "b", 0)) == [1.0]


def test_what_a_node_sends_or_gets_goes_one_after_the_other_and_both_ways_at_once() -> None:
    assert came(Links(10.0), ("a", "server", 20), ("b", "server", 20)) == [3.0, 5.0]
    assert came(Links(10.0), ("a", "b", 20), ("a", "c", 20)) == [3.0, 5.0]
    assert came(Links(10.0), ("a", "b", 20), ("b", "a", 20)) == [3.0, 3.0]


# trainings
@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shards")


def problem(config: Config, folder: Path) -> Problem:
    return problem_of(config, folder / f"{config.workers}-{config.seed}")


def ran(folder: Path, policy: Mapping[str, Any], links: Links | None = None, **others: Any) -> Training:
    config = config_of(policy, "connected", 0, 2, workers=4, **others)
    training = training_of(config, problem(config, folder), links)
    training.run()
    return training


def test_only_who_must_wait_waits_and_a_bound_holds(folder: Path) -> None:
    slow = {"3": "10x"}
    bsp, asp, ssp = (ran(folder, policy, slow=slow) for policy in ({"name": "bsp"}, {"name": "asp"}, {"name": "ssp"}))

    assert bsp.waited > ssp.waited > asp.waited == 0
    assert (bsp.most_ahead, ssp.most_ahead) == (1, 4)
    assert asp.most_ahead > 4


@pytest.mark.parametrize(
    ("policy", "served"), [("bsp", True), ("allreduce", False), ("dpsgd", False), ("adpsgd", False)]
)
def test_slow_links_take_time_and_change_no_lock_step(policy: str, served: bool, folder: Path) -> None:
    fast, slow = (ran(folder, {"name": policy}, Links(speed), served=served) for speed in (1e6, 1e4))

    assert slow.time.now > 1.5 * fast.time.now
    if policy == "bsp":
        assert slow.model() == pytest.approx(fast.model(), abs=1e-5)


def test_a_slow_spell_lasts_its_number_of_steps() -> None:
    config = config_of({"name": "asp"}, "connected", 0, 10, workers=1, slow={"0": "100x@5%"})
    pace = Chances(config, Timeline(), spell=10)
    is_slow = [pace.step(0, position, 1.0) > 50 for position in range(500)]

    text = "".join("s" if each else " " for each in is_slow)
    spells = [len(spell) for spell in text.rstrip("s").split()]
    assert spells
    assert all(length % 10 == 0 for length in spells)
    assert text.count(" ") > 0


@pytest.mark.parametrize("model", ["connected", "convolutional"])
def test_the_gradient_of_a_convolutional_network_is_torchs(model: str, folder: Path) -> None:
    found = problem(config_of({"name": "asp"}, model, 1, 1, workers=2), folder / model)
    inputs, labels = (part[:32] for part in found.shards[0])
    gradient = found.net.gradient(found.first, inputs, labels)

    assert isinstance(found.net, Other)
    step = np.float32(1e-3 / np.linalg.norm(gradient))
    before, after = (
        found.net.loss(found.net.outputs(weights, inputs).astype(np.float64), labels)
        for weights in (found.first + step * gradient, found.first - step * gradient)
    )
    assert before - after == pytest.approx(2e-3 * np.linalg.norm(gradient), rel=0.02)


def test_a_network_with_buffers_is_refused() -> None:
    with pytest.raises(ValueError, match="has buffers; in virtual time a network has weights alone"):
        Other(nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)))


# [Survey]'s recipes
@pytest.mark.parametrize(
    ("recipe", "row"),
    [
        (dssp, "fully connected, transient: DSSP"),
        (ad_psgd, "VGG, slow link: AD-PSGD"),
        pytest.param(ad_psgd, "VGG, slow network: ASGD, period 4", marks=pytest.mark.nightly),
        pytest.param(ad_psgd, "more data, fast network: D-PSGD", marks=pytest.mark.nightly),
    ],
)
def test_a_run_gives_its_figures_and_gives_them_again(
    recipe: Any, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "EPOCHS", 4)
    first, again = (recipe.run(Around(tmp_path), row, 1) for _ in range(2))

    assert set(recipe.RECIPE.columns) <= set(first)
    assert json.loads(json.dumps(first)) == json.loads(json.dumps(again))


def test_who_never_reached_it_took_the_whole_run_at_least(folder: Path) -> None:
    found = measured(Around(folder), config_of({"name": "asp"}, "convolutional", 0, 1))

    assert max(found["scores"]) < REACHED
    assert found["reached"] == inf
    assert found["time"] == found["times"][-1]


class Times(RunFigures):
    """Of three seeds each: when AD-PSGD and others reached it, and how long they took or were looked at."""

    def __init__(self, **rows: tuple[float, float]) -> None:
        self._rows = rows

    def of(self, row: str, column: str) -> list[float]:
        reached, time = next(times for name, times in self._rows.items() if row.endswith(name))
        return [reached if column == "reached" else time] * 3


def test_no_time_is_compared_with_that_of_an_algorithm_that_never_learned() -> None:
    faster, *_, best = ad_psgd.by_time("VGG", ad_psgd.FAST)
    never, some = (inf, 30.0), (20.0, 20.0)

    assert faster.verdict(Times(AllReduce=(inf, 50.0), PSGD=some), {}) is Verdict.AGREES, "it took 50 at least"
    assert faster.verdict(Times(AllReduce=(60.0, 60.0), PSGD=never), {}) is Verdict.CANNOT
    assert faster.verdict(Times(AllReduce=(10.0, 10.0), PSGD=some), {}) is Verdict.DOES_NOT
    assert faster.verdict(Times(AllReduce=(inf, 10.0), PSGD=some), {}) is Verdict.CANNOT, "it took longer than 10"
    assert ad_psgd.robust(ad_psgd.HE2).verdict(Times(PSGD=never), {}) is Verdict.CANNOT
    assert best.verdict(Times(AllReduce=some, PSGD=some, ASGD=some), {}) is Verdict.CANNOT, "a tie"


@pytest.mark.parametrize("says", ["worker 100 x slower: AD-PSGD is faster", "slow link: AllReduce suffers more"])
def test_a_time_that_is_too_small_is_no_evidence_against_a_sentence(says: str) -> None:
    claim = next(claim for claim in ad_psgd.RECIPE.claims if claim.says.startswith(says))
    fast, ours = (20.0, 20.0), (10.0, 10.0)
    rows = {"fast network: AllReduce": fast, "fast network: AD-PSGD": (2.0, 2.0), "AD-PSGD": ours}

    assert claim.verdict(Times(**rows, AllReduce=(30.0, 30.0)), {}) is Verdict.DOES_NOT
    assert claim.verdict(Times(**rows, AllReduce=(inf, 30.0)), {}) is Verdict.CANNOT
    assert claim.verdict(Times(**rows, AllReduce=(inf, 3000.0)), {}) is Verdict.AGREES


def test_the_accuracy_over_time_is_that_of_the_last_score_until_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dssp, "HORIZON", 10.0)

    assert dssp.over_time([2.0, 4.0], [0.5, 1.0]) == pytest.approx((2 * 0.5 + 6 * 1.0) / 10)
    assert dssp.over_time([5.0, 20.0], [0.5, 1.0]) == pytest.approx(0.25)
    assert dssp.over_time([20.0], [1.0]) == 0
