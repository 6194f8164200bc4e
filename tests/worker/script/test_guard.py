"""A process that a script starts and that imports it never trains in its place."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import ConfigError

pytest.importorskip("torch")
from paceline.worker.script.guard import refuse_import, unguarded_loader
from paceline.worker.script.loaders import loader
from tests.support.script_run import FakeRun, rows_of_shards

BARE = "import paceline\nif 1 > 0:\n    print(1)\n"
GUARDED = "import paceline\ndef main(): ...\nif __name__ == '__main__':\n    main()\n"
REFUSED = (
    r"train.py starts by spawn or forkserver.* imports train.py, .* Put what trains behind `if __name__ == '__main__':`"
)


def loaded(script: Path, **options: Any) -> Any:
    run = FakeRun(task=str(script), data={"source": "script"})
    return loader(run, rows_of_shards, list(range(40)), batch_size=4, **options)


@pytest.mark.parametrize(
    "context", ["spawn", "forkserver", multiprocessing.get_context("spawn")], ids=["spawn", "forkserver", "a context"]
)
def test_a_loader_that_spawns_in_a_script_without_a_guard_is_refused_before_the_join(
    tmp_path: Path, context: Any
) -> None:
    script = tmp_path / "train.py"
    script.write_text(BARE)
    with pytest.raises(ConfigError, match=REFUSED):
        loaded(script, num_workers=1, multiprocessing_context=context)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (GUARDED, {"num_workers": 1, "multiprocessing_context": "spawn"}),
        (BARE, {"num_workers": 1, "multiprocessing_context": "fork"}),
        (BARE, {"num_workers": 1, "multiprocessing_context": multiprocessing.get_context("fork")}),
        (BARE, {}),
        (None, {"num_workers": 1, "multiprocessing_context": "spawn"}),
    ],
    ids=["guarded", "fork", "a context of fork", "no processes", "no file"],
)
def test_any_other_loader_is_made(tmp_path: Path, text: str | None, options: dict[str, Any]) -> None:
    script = tmp_path / "train.py"
    if text is not None:
        script.write_text(text)
    assert loaded(script, **options).num_workers == options.get("num_workers", 0)


def test_a_start_method_that_the_script_has_set_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text(BARE)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "spawn")
    with pytest.raises(ConfigError, match=REFUSED):
        loaded(script, num_workers=1)
    assert loaded(script).num_workers == 0


def test_an_import_of_the_script_by_a_child_never_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_import("train.py")
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigError, match=REFUSED):
        refuse_import("train.py")


class EndedLoader:
    """Raises as torch's DataLoader does when a process of it has ended."""

    def __init__(self, method: str) -> None:
        self._workers = [multiprocessing.get_context(method).Process()]

    def __next__(self) -> None:
        raise RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")


@pytest.mark.parametrize(
    ("text", "method", "is_explained"),
    [(BARE, "spawn", True), (BARE, "forkserver", True), (BARE, "fork", False), (GUARDED, "spawn", False)],
)
def test_a_loader_whose_processes_have_imported_the_script_is_explained(
    tmp_path: Path, text: str, method: str, is_explained: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    with pytest.raises(RuntimeError) as raised:
        next(EndedLoader(method))

    assert ("Put what trains behind" in unguarded_loader(raised.value, script)) == is_explained
