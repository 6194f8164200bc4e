"""`paceline reproduce` as a user types it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


def reproduce(*words: str) -> str:
    said = CliRunner().invoke(app, ["reproduce", *words])
    return f"{said.output}\nexit code {said.exit_code}"


def test_without_a_name_all_are_listed_with_their_last_result() -> None:
    listed = reproduce()
    assert "shat/table-2" in listed
    assert "sharding/fig-7" in listed
    assert "exit code 0" in listed

    told = reproduce("sharding/fig-7", "--seeds", "8")
    assert "[Sharding] Fig. 7" in told
    assert "agrees: some class has as few as 175 examples or fewer in a shard" in told
    assert "The page is reproduction." in told
    assert "agrees" in next(line for line in reproduce().splitlines() if line.startswith("sharding/fig-7"))


def test_mistakes_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    assert "No table or figure is called 'table-9'" in reproduce("table-9")
    assert "has no --full size" in reproduce("sharding/fig-7", "--full")
    assert "exit code 64" in reproduce("sharding/fig-7", "--full")
    assert "exit code 0" not in reproduce("sharding/fig-7", "--seeds", "0")
    assert not list(tmp_path.iterdir())
