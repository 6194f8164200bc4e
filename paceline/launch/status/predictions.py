"""What a run would have taken under other policies: a package that can simulate it says so by an entry point of the group
`paceline.predictions`, a function of (evidence, examples, epochs, seconds) that returns a list of `Predicted`."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.base.installed_points import installed_points, not_loaded
from paceline.core.explain.evidence import Evidence
from paceline.launch.status.explained import Explained

GROUP = "paceline.predictions"
MISSING = "What other policies would give is not simulated here: pip install paceline-studies."
_SHORT = 0.5
"""CPU time of a step by its time, below which cores seem short (ratio)."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What is expected of a policy."""

    policy: str
    """As after --policy."""
    seconds: float
    """For as many examples as the run's."""


def predictions(found: Explained) -> list[Predicted]:
    """Returns what each installed package predicts of a run that has lost time; nothing of others. A note says where none is
    installed, or one can't be loaded."""
    if not found.examples or not any(0 < each.share < 1 for each in found.findings):
        return []

    points, predicted = installed_points(GROUP), list[Predicted]()
    if not points:
        found.notes.append(MISSING)
    for point in points:
        try:
            predict = point.load()
        except Exception as error:  # anything that another package's file does as it is imported
            found.notes.append(f"What other policies would give is simulated by {not_loaded(point, error)}")
        else:
            predicted += predict(found.evidence, found.examples, found.epochs, found.evidence.age)
    return predicted


def in_words(predicted: Sequence[Predicted], evidence: Evidence) -> str:
    """Returns a line. It says where CPU cores seem short, since each simulated process has one."""
    short = evidence.each("cpu") < _SHORT * evidence.each("compute", "exchange") and evidence.each("cpu") > 0
    more = " Processes wait for CPU cores, so a policy that waits less may gain less." if short else ""
    times = ", ".join(f"{each.policy} about {each.seconds:.3g} s" for each in predicted)
    present = f"{evidence.config.policy.name} has taken {evidence.age:.3g} s"
    return f"By simulation of these figures the same epochs take: {times}; {present}.{more}"
