"""How long a slice trains between two snapshots."""

import pytest

from paceline.server.snapshots import snapshot_pause


@pytest.mark.parametrize(
    ("took", "pause"), [(None, 1.0), (0.0, 1.0), (0.4, 1.0), (0.6, 1.2), (12.0, 24.0), (15.0, 30.0), (600.0, 30.0)]
)
def test_without_a_setting_it_is_twice_what_the_last_one_took_from_1_to_30_s(took: float | None, pause: float) -> None:
    assert snapshot_pause(None, took) == pytest.approx(pause)


@pytest.mark.parametrize("took", [None, 0.1, 50.0])
def test_a_setting_holds_whatever_it_takes(took: float | None) -> None:
    assert snapshot_pause(5.0, took) == 5.0
