"""What a training in virtual time does with its settings."""

from pathlib import Path

import numpy as np

from paceline.reproduce.recipe import Around
from paceline.reproduce.shat_on_digits import METHODS, config_of, problem
from paceline.simulator.training import train


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
