"""Scores by epoch, of runs that went back, too."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paceline.core.chief.scoring import Score
from paceline.launch.folder.run_folder import RunFolder
from paceline.studies.comparison.finished import Finished
from paceline.studies.comparison.pictures import by_epoch, by_time
from paceline.studies.comparison.sides import Side


class Ended(Finished):
    """A run of which the scores are known."""

    def __init__(self, *scores: tuple[int, float]) -> None:
        super().__init__(RunFolder(Path("one")), "one")
        self.__dict__["scores"] = [
            Score(epoch, float(number), [], {"test_loss": value}) for number, (epoch, value) in enumerate(scores)
        ]

    @property
    def history(self) -> list[Score]:
        found: list[Score] = self.__dict__["scores"]
        return found


def test_of_an_epoch_that_a_run_has_trained_twice_the_newest_score_counts() -> None:
    run = Ended((0, 4.0), (1, 3.0), (2, 9.0), (3, 90.0), (2, 2.0), (3, 1.0))
    comparison: Any = SimpleNamespace(sides=[Side("a", [run])], split="test", measure=SimpleNamespace(name="loss"))

    (curve,) = by_epoch(comparison)
    assert (curve.at.tolist(), curve.mean.tolist()) == ([0, 1, 2, 3], [4, 3, 2, 1])
    (curve,) = by_time(comparison)
    assert (curve.at[-1], curve.mean[-1]) == (5, 1)
