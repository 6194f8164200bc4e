"""What computes a task's network in virtual time, and which tasks it refuses."""

from pathlib import Path

import numpy as np
import pytest

from paceline.core.settings.config import Config

torch = pytest.importorskip("torch")
from paceline.studies.simulator.problem import net_of, problem_of  # noqa: E402

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
