"""Which loggers the settings name, and what is said of those that can't be had, before anything is started; and of a training
script, which is looked through: what is certainly wrong is reported, what may be right is left alone."""

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
from paceline.launch.settings.read_config import check_script, complete, read_config
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


GOOD = [
    "from math import *\nprint(sqrt(2), whatever)\n",
    "import a.b as c\n\ndef f(x, *y):\n    global z\n    z = [i for i in y if c]\n    return g(x)\n\ndef g(x):\n    return z\n",
    "try:\n    x\nexcept NameError:\n    x = 1\n",
    "class A:\n    one = 1\n    two = one + 1\n    def f(self):\n        return __class__, __file__, super().f()\n",
    "globals()['later'] = 3\nprint(later)\n",
    "for i, (j, k) in []:\n    del i\nwith open(__file__) as f, f as (g, h):\n    print(f, g, h, j, k)\n",
    "if (n := 3) > 2:\n    print(n)\nmatch n:\n    case [a, *b]:\n        print(a, b)\n",
    "def outer():\n    x = 1\n    def inner():\n        nonlocal x\n        x += 1\n    return inner\n",
]


@pytest.mark.parametrize("text", GOOD)
def test_a_script_that_may_run_passes(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)

    check_script(tmp_path / "train.py")


BAD = [
    ("x = 1\nfor i in range(3)\n    pass\n", r"script: .*train.py, line 2 is not Python: expected ':'"),
    (
        "optimizer = 1\n\ndef f():\n    optimiser.step()\n",
        r"line 4: there is no name 'optimiser'\. Did you mean 'optimizer'\?",
    ),
    ("x = 1\nprint(x, y)\n", r"line 2: there is no name 'y'"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "train.py").write_text(text)

    with pytest.raises(ConfigError, match=sentence):
        check_script(tmp_path / "train.py")
