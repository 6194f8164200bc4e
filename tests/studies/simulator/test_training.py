"""What a training in virtual time does with its settings."""

from pathlib import Path

import numpy as np
import pytest

from paceline.studies.simulator.links import Links
from paceline.studies.simulator.problem import problem_of
from paceline.studies.simulator.training import train, training_of
from paceline.studies.simulator.workers import Training
from paceline_papers.reproduce import survey_on_digits
from paceline_papers.reproduce.recipe import Around
from paceline_papers.reproduce.shat_on_digits import METHODS, config_of, problem


def test_workers_clip_their_gradients(tmp_path: Path) -> None:
    free, short = (
        config_of(METHODS["ASP"], 2, 0, "deep", epochs=4, lr=0.01, clip=clip) for clip in (None, {"norm": 1e-4})
    )
    of = problem(Around(tmp_path), free)

    moved = [float(np.abs(train(config, of).model - of.first).max()) for config in (free, short)]

    assert moved[1] < moved[0] / 100


def test_servers_cap_the_norm_of_pushes(tmp_path: Path) -> None:
    free = config_of(METHODS["ASP"], 2, 0, "deep", epochs=4, lr=0.01)
    of = problem(Around(tmp_path), free)

    models = [train(free.model_copy(update={"push_norm_cap": cap}), of).model for cap in (None, 1e9, 1e-4)]

    moved = [float(np.abs(model - of.first).max()) for model in models]
    assert models[0].tobytes() == models[1].tobytes()
    assert moved[2] < moved[0] / 100


@pytest.mark.parametrize("speed", [5e5, 5e4])
def test_all_models_of_an_allreduce_stay_the_same_while_its_rate_rises(tmp_path: Path, speed: float) -> None:
    policy = {"name": "allreduce"}
    config = survey_on_digits.config_of(policy, "convolutional", 0, 2, served=False, workers=4, warm_up=1.5)
    models: dict[int, set[bytes]] = {}

    def watch(training: Training) -> None:
        for worker in training.workers:
            models.setdefault(worker.clock, set()).add(worker.own.local.tobytes())

    training_of(config, problem_of(config, tmp_path), Links(speed, {})).run(watch)

    last = max(models)
    assert last > 10
    assert [len(models[clock]) for clock in range(last)] == [1] * last
