"""What the processes of a run are forked from, and what of it is begun before the config is read."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from paceline.core.settings.config import Config, DataConfig
from paceline.launch.forks import begin_early, run_forkers
from paceline.launch.forks.begin_early import beginning, libraries
from paceline.launch.forks.forker import Forker, Loads
from paceline.launch.forks.run_forkers import forking
from tests.support.processes import QUIET, TORCH, forker_of

SPARSE = Config.model_validate({"updates": "sparse", "optimizer": {"name": "sgd", "momentum": 0, "weight_decay": 0}})
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork is for Linux")


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run_forkers, begin_early):
        monkeypatch.setattr(module, "ROWS", ())
        monkeypatch.setattr(module, "LINEAR", ("json",))
    for modules in ("SHARDER", "SERVERS", "WORKERS", "SCRIPTS"):
        monkeypatch.setattr(begin_early, modules, ("json",))
    monkeypatch.setattr(begin_early, "OPTIMIZER", ())
    monkeypatch.setattr(begin_early, "QUIET", ("torch", "wave"))  # a module that nobody else loads


def task(folder: Path, text: str, name: str = "own.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_task_that_imports_torch_has_its_workers_forker_before_its_config_is_read(tmp_path: Path) -> None:
    with beginning(task(tmp_path, "import numpy\nfrom torch import nn\n")) as begun:
        assert begun.reads
        for _ in range(2):  # --repeats forks several runs from it
            with forking(Config(), begun) as forkers:
                assert forkers["worker"] is forkers["check"] is forkers["evaluator"] is begun.workers
                assert forkers["sharder"] is begun.workers
                assert forkers["server"] is begun.servers
            child = begun.workers.start(["-c.py"], tmp_path / "log", tmp_path, {})
            assert child is not None, "it lives as long as its own block"
            child.wait(10)


@pytest.mark.parametrize(
    ("what", "updates"),
    [
        ("digits", "dense"),
        ("cifar10", "dense"),
        ("svm", "sparse"),
        ("rcv1", "sparse"),
        ("def model():\n    import torch\n", "dense"),
        ("import numpy\n", "sparse"),
        ("import torch\n(", "sparse"),
    ],
)
def test_the_workers_of_other_tasks_begin_early_too_but_the_process_that_shows_the_run_reads_the_config(
    tmp_path: Path, what: str, updates: str
) -> None:
    what = what if what.isidentifier() else task(tmp_path, what)
    with beginning(what) as begun:
        assert (begun.updates, begun.reads) == (updates, False)
    with beginning(task(tmp_path, f"workers: 2\ntask: {what}  # mine\n", "run.yaml")) as named:
        assert named.updates == updates


def test_a_launched_script_has_its_workers_forker_before_its_config_is_read(tmp_path: Path) -> None:
    script = task(tmp_path, "import torch\n", "train.py")
    config = Config(task=script, data=DataConfig.model_validate({"source": "script"}))
    with beginning(script, is_script=True) as begun, forking(config, begun) as forkers:
        assert forkers["worker"] is forkers["evaluator"] is begun.workers
        assert forkers["server"] is begun.servers


def test_nothing_is_begun_for_a_task_that_is_not_there(tmp_path: Path) -> None:
    for what in ("digit", "__init__x", str(tmp_path / "none.py"), str(tmp_path / "none.yaml"), None):
        with beginning(what) as begun:
            assert begun is None


def test_the_sharder_of_a_task_that_ships_with_paceline_does_not_wait_for_what_servers_load(tmp_path: Path) -> None:
    with forking(Config()) as forkers:
        assert forkers["server"].before is forkers["sharder"]
        assert forkers["worker"].before is forkers["server"]
    with forking(Config(task=task(tmp_path, "import numpy\n"))) as own:
        assert "sharder" not in own, "what a user's file computes may want all cores"


@pytest.mark.parametrize("data", [{"strategy": "distribution_aware"}, {"engine": "spark"}])
def test_a_sharder_that_clusters_or_has_another_engine_starts_afresh_with_all_cores(tmp_path: Path, data: dict) -> None:
    config = Config(data=DataConfig.model_validate(data))
    with beginning(task(tmp_path, "import torch\n")) as begun, forking(config, begun) as forkers:
        assert forkers["worker"] is begun.workers
        assert "sharder" not in forkers


@pytest.mark.parametrize("what", ["svm", "import torch\n"])
def test_sparse_updates_take_no_forker_with_torch(tmp_path: Path, what: str) -> None:
    with (
        beginning(what if what == "svm" else task(tmp_path, what)) as begun,
        forking(SPARSE.model_copy(update={"task": "svm"}), begun) as forkers,
    ):
        assert (forkers["worker"] is begun.workers) == (what == "svm")
        assert forkers["worker"].before is begun.servers
        assert forkers["server"] is begun.servers
        assert forkers["sharder"] is begun.sharder


def test_what_a_file_imports_at_its_top_is_loaded_before_the_fork_if_that_is_known_to_be_safe(tmp_path: Path) -> None:
    text = "import os, wave as w\nimport mine\nfrom torch import nn, Tensor\nfrom . import wave\ndef f():\n    import wave.x\n"

    assert libraries(task(tmp_path, text)) == ["wave", "torch", "torch.nn", "torch.Tensor"]


def test_children_of_a_task_that_imports_torch_find_its_libraries_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    class Asked(Forker):
        def __init__(self, loads: Loads, environment: Mapping[str, str], before: Forker | None = None) -> None:
            asked.append((*loads.modules, *loads.libraries))
            libraries = ["wave", "no.such.module"] if "wave" in loads.libraries else []
            super().__init__(Loads(("json",), libraries), environment, before)

    monkeypatch.setattr(begin_early, "Forker", Asked)
    (tmp_path / "program.py").write_text("import sys\nprint('wave' in sys.modules)\n")

    with beginning(task(tmp_path, "import torch\nimport wave\n")) as begun:
        child = begun.workers.start([str(tmp_path / "program.py")], tmp_path / "log", tmp_path, {})
        assert child is not None, "that a library is missing is for the file to say"
        child.wait(10)

    assert asked == [("json",), ("json",), ("json", "torch", "wave")]
    assert (tmp_path / "log").read_text() == "True\n"


def test_the_first_optimizer_of_a_scripts_worker_has_nothing_left_to_load(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)\n"
        "print(*set(sys.modules) - before)\n"
    )

    child = forker_of(TORCH).start([str(tmp_path / "program.py")], tmp_path / "log", tmp_path, QUIET)

    assert child.wait(60) == 0
    assert (tmp_path / "log").read_text() == "\n"
