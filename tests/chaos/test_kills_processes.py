"""Real processes that are killed lose no push, and no slice counts one twice. By day two of the
kinds and one of the forms, which take 5 s of CPU time each; `make chaos` does this for hours."""

from pathlib import Path

import pytest

from tests.chaos import rounds
from tests.chaos.own.dying_server import POINTS
from tests.chaos.rounds import FORMS, KINDS, Round, deaths
from tests.support.nights import some
from tests.support.processes import PATIENCE

SEED = 1218
"""All servers and two workers at once, then a server and a worker at once, each within a second or so."""
KILLS = 2


@pytest.mark.parametrize(
    ("kind", "retain"),
    some([*((kind, None) for kind in KINDS), ("asp", 0), ("bsp", 0)], [("asp", None)]),
    ids=str,
)
def test_killed_processes_lose_no_push_and_count_none_twice(kind: str, retain: int | None, tmp_path: Path) -> None:
    result = Round(KINDS[kind], SEED, tmp_path, retain).run(KILLS)

    assert result.is_good, str(result)


@pytest.mark.parametrize(
    ("form", "server"), some([("dense, lane", 0), ("coded, grpc", 1), ("sparse, lane", 0)], [("dense, lane", 0)])
)
def test_a_server_that_dies_at_any_point_of_a_push_with_its_power_loses_none(
    form: str, server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "MOST_TO_A_POINT", PATIENCE)  # every point must be reached
    kind, variant = FORMS[form]
    result = Round(kind, SEED, tmp_path, variant=variant).run(deaths([server]))

    assert result.is_good, str(result)
    assert result.points == list(POINTS)
