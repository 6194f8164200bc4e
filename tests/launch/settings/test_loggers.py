"""Which loggers the settings name, and what is said of those that can't be had, before anything is started."""

from pathlib import Path
from typing import Any

import pytest

from paceline.callback import PACKAGE, Callback
from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config, Options
from paceline.launch.folder.run_folder import open_run
from paceline.launch.settings import loggers
from paceline.launch.settings.loggers import check_loggers, loggers_of
from paceline.launch.settings.read_config import complete, read_config
from paceline.settings.flags import Flags
from paceline.settings.load_settings import load
from tests.support.tree import ROOT

OWN = """
import paceline


class Mine(paceline.Callback):
    def __init__(self, channel="here"):
        self.channel = channel
"""


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "is_installed", lambda name: False)


def named(*names: Any) -> Config:
    return Config(loggers=names)


@pytest.mark.parametrize("name", registry.names(PACKAGE))
def test_a_logger_is_one_file_with_an_extra_of_its_name(name: str) -> None:
    import tomllib

    kind = registry.find(PACKAGE, Callback, name)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [requirement.partition(">")[0] for requirement in extras[name]] == [kind.needs]


@pytest.mark.parametrize("name", registry.names(PACKAGE))
@pytest.mark.usefixtures("nothing_installed")
def test_a_library_that_lacks_is_said_with_its_extra(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} needs the library .* pip install 'paceline\[{name}\]'"):
        check_loggers(named(name))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (named("mlfow"), r"no 'mlfow' among the loggers: .* Did you mean 'mlflow'\?"),
        (named("tensorboard", "tensorboard"), "names tensorboard twice"),
        (named({"name": "tensorboard", "colour": "red"}), "the options don't fit .*'colour'"),
    ],
)
def test_what_can_not_be_had_is_refused(config: Config, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_loggers(config)


@pytest.mark.usefixtures("nothing_installed")
def test_the_command_line_refuses_it_before_there_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="mlflow needs the library"):
        read_config("xor", Flags(log=["mlflow"]))
    assert not list(tmp_path.iterdir())


def test_settings_name_them_in_a_list_or_with_commas(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("loggers: [mlflow, {name: wandb}]\n")
    both = (Options(name="mlflow"), Options(name="wandb"))
    assert load(tmp_path / "run.yaml").loggers == both
    assert load(overrides={"loggers": "mlflow,wandb"}).loggers == both


def test_tensorboards_curves_are_written_wherever_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "is_installed", lambda name: True)
    assert [name for name, _ in loggers_of(Config())] == ["tensorboard"]
    assert [name for name, _ in loggers_of(named("mlflow"))] == ["tensorboard", "mlflow"]
    assert [name for name, _ in loggers_of(named("mlflow", "tensorboard"))] == ["mlflow", "tensorboard"]


@pytest.mark.usefixtures("nothing_installed")
def test_without_it_there_are_none() -> None:
    assert loggers_of(Config()) == []


@pytest.mark.usefixtures("nothing_installed")
def test_a_file_of_ones_own_is_a_logger_and_goes_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    config = complete({"task": "xor", "loggers": [{"name": "mine.py", "channel": "there"}], "run": "one"})
    (found,) = loggers_of(config)
    assert found[0] == "mine.py"
    assert vars(found[1]) == {"channel": "there"}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import nowhere\n", "mine.py, line 1: ModuleNotFoundError"),
        ("x = 1\n", "mine.py defines no logger: a class that inherits from paceline.callback.Callback"),
        (OWN.replace("self.channel = channel", "1 / 0"), r"mine.py, line 7 can't be made: ZeroDivisionError"),
    ],
)
def test_a_file_that_is_none_is_refused(
    source: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(source)
    with pytest.raises(ConfigError, match=text):
        loggers_of(complete({"task": "xor", "loggers": ["mine.py"]}))


def test_a_run_may_be_resumed_with_other_loggers(tmp_path: Path) -> None:
    open_run(Config(run="one"), runs=tmp_path)
    assert open_run(Config(run="one", loggers=("mlflow",)), runs=tmp_path)[1].loggers == (Options(name="mlflow"),)
    with pytest.raises(ConfigError, match="epochs: 10 before, 9 now"):
        open_run(Config(run="one", epochs=9), runs=tmp_path)
