"""Which version the model is that answers once a run has ended, or its best one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder, open_run

torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402

from paceline.results.serving import follower  # noqa: E402


class Followed(follower.Trained):
    def load_into(self, model: Any, which: str = "last") -> None:
        """There is none here."""


class Following:
    """A follower of this run; which versions it has taken, what it says, and how often it could not read."""

    def __init__(self, place: RunFolder, config: Config, best: bool = True) -> None:
        self.swapped, self.said, self.failures = [], [], []
        spare = SimpleNamespace(replica=SimpleNamespace(model=None), flat=np.zeros(1, np.float32))
        model = SimpleNamespace(spare=spare, swap=lambda versions: self.swapped.append(versions.of_slices))
        metrics = SimpleNamespace(swapped=lambda newest: None, failed=lambda: self.failures.append(1))
        source, say = SimpleNamespace(place=place, config=config), lambda *words, **more: self.said.append(more)
        self.look = follower.Follower(source, model, metrics, say, best).look


@pytest.mark.parametrize(("best", "versions"), [(True, (30, 31)), (False, (50, 50))])
def test_a_kept_model_says_which_versions_it_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, best: bool, versions: tuple[int, ...]
) -> None:
    place, config = open_run(Config(run="one"), runs=tmp_path)
    scores = [(1, [30, 31], 0.75), (2, [40, 40], 0.5), (2, [50, 50], 0.625)]
    told = [{"epoch": epoch, "versions": of, "metrics": {"validation_accuracy": value}} for epoch, of, value in scores]
    place.metrics.write_text(json.dumps({"scores": told}) + "\n")
    place.write_facts(exit_code=0)
    place.models.mkdir()
    for name, (epoch, _, value) in (("best", scores[0]), ("last", scores[2])):
        facts = {"epoch": str(epoch), "validation_accuracy": f"{value:.6g}"}
        save_file({"w": torch.zeros(1)}, place.models / f"{name}.safetensors", facts)
    monkeypatch.setattr(follower, "Trained", Followed)
    followed = Following(place, config, best)

    assert followed.look()
    assert (followed.swapped, followed.failures) == ([versions], [])


def test_a_best_model_says_its_versions_itself_before_the_run_knows_its_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, config = open_run(Config(run="one"), runs=tmp_path)
    place.models.mkdir()
    facts = {"epoch": "1", "validation_accuracy": "0.5", "versions": "[30, 31]"}
    save_file({"w": torch.zeros(1)}, place.models / "best.safetensors", facts)
    monkeypatch.setattr(follower, "Trained", Followed)
    followed = Following(place, config)

    followed.look()

    assert followed.swapped == [(30, 31)]


def test_whatever_goes_wrong_at_a_look_is_counted_and_said_and_the_next_one_goes_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, config = open_run(Config(run="one"), runs=tmp_path)
    place.models.mkdir()
    save_file({"w": torch.zeros(1)}, place.models / "best.safetensors", {"versions": "[3]"})
    errors: list[Exception] = [RuntimeError("CUDA out of memory"), RuntimeError("CUDA out of memory")]

    class Failing(follower.Trained):
        def load_into(self, model: Any, which: str = "last") -> None:
            if errors:
                raise errors.pop()

    monkeypatch.setattr(follower, "Trained", Failing)
    followed = Following(place, config)

    assert [followed.look() for _ in range(3)] == [False, False, True]
    assert len(followed.failures) == 2
    assert [more["why"] for more in followed.said if "why" in more] == ["RuntimeError: CUDA out of memory"]
    assert followed.swapped == [(3,)]
