"""What the processes of a run are forked from, and what of it is begun before the config is read."""

import sys
from pathlib import Path

import pytest

from paceline.core.settings.config import Config, DataConfig
from paceline.local import begin_early, run_forkers
from paceline.local.begin_early import beginning, libraries
from paceline.local.forker import Forker
from paceline.local.run_forkers import forking

SPARSE = Config.model_validate({"updates": "sparse", "optimizer": {"name": "sgd", "momentum": 0, "weight_decay": 0}})
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork is for Linux")


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_forkers, "SERVERS", ("json",))
    for modules in ("WORKERS", "SCRIPTS"):
        monkeypatch.setattr(begin_early, modules, ("json",))
    monkeypatch.setattr(begin_early, "QUIET", ("torch", "wave"))  # a module that nobody else loads


def task(folder: Path, text: str) -> str:
    path = folder / "own.py"
    path.write_text(text)
    return str(path)


def test_a_task_that_imports_torch_has_its_workers_forker_before_its_config_is_read(tmp_path: Path) -> None:
    with beginning(task(tmp_path, "import numpy\nfrom torch import nn\n"), None) as begun:
        assert begun is not None
        for _ in range(2):  # --repeats forks several runs from it
            with forking(Config(), begun) as forkers:
                assert forkers["worker"] is forkers["check"] is forkers["evaluator"] is forkers["sharder"] is begun
                assert forkers["server"] is not begun
            child = begun.start(["-c.py"], tmp_path / "log", tmp_path, {})
            assert child is not None, "it lives as long as its own block"
            child.wait(10)


@pytest.mark.parametrize("data", [{"strategy": "distribution_aware"}, {"engine": "spark"}])
def test_a_sharder_that_clusters_or_has_another_engine_starts_afresh_with_all_cores(tmp_path: Path, data: dict) -> None:
    with (
        beginning(task(tmp_path, "import torch\n"), "loop.py") as begun,
        forking(Config(data=DataConfig.model_validate(data)), begun) as forkers,
    ):
        assert forkers["worker"] is begun
        assert "sharder" not in forkers


def test_sparse_updates_take_no_forker_with_torch(tmp_path: Path) -> None:
    with (
        beginning(task(tmp_path, "import torch\n"), None) as begun,
        forking(SPARSE, begun) as forkers,
    ):
        assert forkers["worker"] is forkers["server"]
        assert "sharder" not in forkers


@pytest.mark.parametrize(
    "text", ["import numpy\n", "def model():\n    import torch\n", "import torchvision\n", "import torch\n(", None]
)
def test_nothing_is_begun_for_other_tasks(tmp_path: Path, text: str | None) -> None:
    with beginning("digits" if text is None else task(tmp_path, text), None) as begun:
        assert begun is None
    with beginning(str(tmp_path / "none.py"), None) as missing, beginning(None, None) as nothing:
        assert missing is nothing is None


def test_what_a_file_imports_at_its_top_is_loaded_before_the_fork_where_that_is_known_to_be_safe(
    tmp_path: Path,
) -> None:
    text = "import os, wave as w\nimport mine\nfrom torch import nn, Tensor\nfrom . import wave\ndef f():\n    import wave.x\n"

    assert libraries(task(tmp_path, text)) == ["wave", "torch", "torch.nn", "torch.Tensor"]


def test_children_of_a_task_that_imports_torch_find_its_and_its_scripts_libraries_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    class Asked(Forker):
        def __init__(self, modules: tuple[str, ...], environment: dict[str, str], libraries: list[str]) -> None:
            asked.append((*modules, *libraries))
            super().__init__(("json",), environment, ["wave", "no.such.module"])

    monkeypatch.setattr(begin_early, "Forker", Asked)
    loop = tmp_path / "loop.py"
    loop.write_text("import wave\n")
    (tmp_path / "program.py").write_text("import sys\nprint('wave' in sys.modules)\n")

    with beginning(task(tmp_path, "import torch\n"), str(loop)) as begun:
        assert begun is not None
        child = begun.start([str(tmp_path / "program.py")], tmp_path / "log", tmp_path, {})
        assert child is not None, "that a library is missing is for the file to say"
        child.wait(10)

    assert asked == [("json", "json", "torch", "wave")]
    assert (tmp_path / "log").read_text() == "True\n"
