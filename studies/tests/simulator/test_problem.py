"""What computes a task's network in virtual time, which tasks it refuses, and what a training does with its settings."""

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.core.settings.config import Config
from paceline_papers.reproduce import survey_on_digits
from paceline_papers.reproduce.recipe import Around
from paceline_papers.reproduce.shat_on_digits import METHODS, config_of, problem
from paceline_studies.simulator.links import Links
from paceline_studies.simulator.problem import net_of, problem_of
from paceline_studies.simulator.training import train, training_of
from paceline_studies.simulator.workers import Training

TASK = """
import numpy, torch
from paceline.extend import Dataset, Labelled

def data(path):
    features = numpy.random.default_rng(0).normal(size=(90, 4)).astype("float32")
    return Dataset(train=Labelled(features, numpy.arange(90) % 3))

def model():
    return torch.nn.Linear(4, 3)

def prepare(features, labels, rng):
    if rng is not None:
        features = features + {noise}
    return torch.from_numpy(features), torch.from_numpy(labels)
"""


def test_a_network_is_scored_without_dropout_and_trained_with_it() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(), torch.nn.Linear(64, 3))
    net, inputs = net_of(model), np.ones((5, 8), np.float32)
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()

    def gradient() -> bytes:
        return net.gradient(weights, inputs, np.arange(5) % 3).tobytes()

    first, second = net.outputs(weights, inputs), (gradient(), net.outputs(weights, inputs))[1]

    assert first.tobytes() == second.tobytes()
    assert gradient() != gradient()


@pytest.mark.parametrize(("noise", "augments"), [("0", False), ("rng.normal(size=features.shape)", True)])
def test_a_task_that_augments_is_refused(tmp_path: Path, noise: str, augments: bool) -> None:
    (tmp_path / "own.py").write_text(TASK.format(noise=noise))
    config = Config.model_validate({"task": str(tmp_path / "own.py"), "workers": 2})

    if augments:
        with pytest.raises(ValueError, match=r"prepare\(\) draws random numbers"):
            problem_of(config, tmp_path / "shards")
    else:
        assert problem_of(config, tmp_path / "shards").examples > 50


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
