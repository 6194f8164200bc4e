"""SETTINGS of a task file, read by processes that do not run it."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.server.command_line import ToldServer
from paceline.settings.load_settings import write_yaml
from paceline.tasks.task import load_config, load_task
from paceline.tasks.written_settings import written_settings
from paceline.worker.command_line import ToldLaunched, ToldWorker
from tests.support.tree import ROOT

FUNCTIONS = "\ndef data(path):\n    import torch\n\ndef model():\n    import torch\n"


def task(folder: Path, text: str) -> Path:
    file = folder / "mine.py"
    file.write_text(text + FUNCTIONS)
    return file


@pytest.mark.parametrize("name", ["wine.py", "flowers.py"])
def test_the_settings_of_the_examples_are_those_that_running_them_gives(name: str):
    pytest.importorskip("torch")
    file = ROOT / "examples" / name

    assert written_settings(file, None, {}) == load_task(str(file)).settings != {}


@pytest.mark.parametrize(
    "text",
    [
        "LR = 0.5\nSETTINGS = {'epochs': 7, 'optimizer': {'name': 'sgd', 'lr': LR / 2}, 'slow': {}}",
        "BASE: dict = {'optimizer': {'name': 'sgd', 'lr': 0.25}}\nSETTINGS = {**BASE, 'epochs': 9 - 2, 'slow': {}}",
    ],
)
def test_names_and_numbers_of_the_file_are_put_together(tmp_path: Path, text: str):
    file = task(tmp_path, text)

    found = written_settings(file, None, {})

    assert found == {"epochs": 7, "optimizer": {"name": "sgd", "lr": 0.25}, "slow": {}} == load_task(str(file)).settings


@pytest.mark.parametrize(("model", "epochs"), [(None, 5), ("small", 5), ("large", 90)])
def test_the_models_own_stand_in_their_place(tmp_path: Path, model: str | None, epochs: int):
    file = tmp_path / "mine.py"
    file.write_text(
        "def data(path): ...\ndef net(): ...\nMODELS = {'small': net, 'large': net}\n"
        "SETTINGS = {'epochs': 1, 'seed': 3}\nMODEL_SETTINGS = {'small': {'epochs': 5}, 'large': {'epochs': 90}}\n"
    )

    found = written_settings(file, model, {})

    assert found == {"epochs": epochs, "seed": 3} == load_task(str(file), model).settings


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import os\nSETTINGS = {'epochs': os.cpu_count()}", "epochs"),
        ("import os\nSETTINGS = {'optimizer': {'name': 'sgd', 'lr': float('1')}}", r"optimizer\.lr"),
        ("SETTINGS = dict(epochs=3)", "SETTINGS"),
        ("SETTINGS = {}\nSETTINGS['epochs'] = 3", "SETTINGS"),
        ("SETTINGS = {}\nSETTINGS.update(epochs=3)", "SETTINGS"),
        ("if True:\n    SETTINGS = {'epochs': 3}", "SETTINGS"),
        ("from json import loads as SETTINGS", "SETTINGS"),
        ("LR = 1\nLR = 2\nSETTINGS = {'epochs': LR}", "epochs"),
    ],
)
def test_what_only_running_it_tells_is_refused_by_its_name(tmp_path: Path, text: str, what: str):
    with pytest.raises(ConfigError, match=rf"^{what} in .*mine\.py is computed .* Write .*`paceline run`"):
        written_settings(task(tmp_path, text), None, {})


@pytest.mark.parametrize("given", [{"optimizer": {"lr": 0.3}}, {"optimizer": "adam"}])
def test_a_computed_value_does_not_matter_where_the_config_says_it(tmp_path: Path, given: dict[str, Any]):
    file = task(tmp_path, "SETTINGS = {'epochs': 3, 'optimizer': {'name': 'sgd', 'lr': float('1')}}")

    assert written_settings(file, None, given) == {"epochs": 3, "optimizer": {"name": "sgd"}}


@pytest.mark.parametrize(
    "told",
    [
        lambda config: ToldServer(config=config, folder=Path()),
        lambda config: ToldWorker(config=config, shards=Path(), servers="a:1"),
        lambda config: ToldLaunched(config=config, shards=Path(), servers="a:1"),
    ],
)
def test_processes_started_by_hand_take_the_same_settings_without_running_the_file(
    tmp_path: Path, told: Any, monkeypatch: pytest.MonkeyPatch
):
    file = task(tmp_path, "import torch\nSETTINGS = {'epochs': 3, 'batch_size': 16}")
    monkeypatch.setitem(sys.modules, "torch", None)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"task": str(file), "batch_size": 8}))

    found = told(config).load()

    assert (found.epochs, found.batch_size) == (3, 8)


def test_a_config_that_says_all_leaves_nothing_to_read(tmp_path: Path):
    file = task(tmp_path, "SETTINGS = dict(epochs=3)")
    write_yaml(Config(task=str(file), epochs=2), tmp_path / "config.yaml")

    assert load_config(tmp_path / "config.yaml", own_file=False).epochs == 2


def test_a_file_that_is_not_there_or_no_python_is_no_secret(tmp_path: Path):
    assert written_settings(tmp_path / "none.py", None, {}) == {}
    (tmp_path / "mine.py").write_text("SETTINGS = {")
    with pytest.raises(ConfigError, match=r"Can't read the task file .*mine\.py: .*never closed"):
        written_settings(tmp_path / "mine.py", None, {})
