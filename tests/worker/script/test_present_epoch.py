"""Whether a script steps with each mini-batch that it draws."""

import pytest

from paceline.core.errors import ConfigError
from paceline.worker.script.course import PresentEpoch


def drawn(parts: int, accumulate: int = 1, whole: bool = True) -> PresentEpoch:
    """The first epoch of 8 steps, with this number of parts drawn."""
    epoch = PresentEpoch(accumulate)
    epoch.begin(0, 8)
    for _ in range(parts):
        epoch.drew()
    if whole:
        epoch.drew_all()
    return epoch


def test_an_epoch_after_a_restart_ends_with_the_pass_and_later_ones_are_whole() -> None:
    epoch = PresentEpoch()
    epoch.begin(13, 8)
    assert epoch.end == 16
    epoch.begin(16, 8)
    assert epoch.end == 24
    epoch.begin(19, 8)  # the script broke the last one off
    assert epoch.end == 27


def test_few_steps_that_lack_are_counted() -> None:
    assert drawn(8).missing(6, 2) == 2
    assert drawn(8).missing(8, 0) == 0
    assert drawn(3, whole=False).missing(2, 6) == 0  # broken off


def test_an_epoch_with_few_steps_is_told_of_accumulate() -> None:
    with pytest.raises(ConfigError, match=r"called 2 times in an epoch of 8 steps.*accumulate=4"):
        drawn(8).missing(2, 6)


def test_a_step_before_its_mini_batches_is_refused() -> None:
    epoch = drawn(4, accumulate=4, whole=False)
    epoch.check_step(0)
    with pytest.raises(ConfigError, match=r"came 2 times for 4 mini-batches.*4 mini-batches"):
        epoch.check_step(1)
    drawn(1, whole=False).check_step(5)  # one mini-batch over and over
    drawn(0, accumulate=4, whole=False).check_step(5)  # a DataLoader of one's own
