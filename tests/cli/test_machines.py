"""Options by which other machines take part: what does not go together is told before anything starts."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.cli.machines import Machines
from paceline.core.errors import UsageError
from paceline.core.settings.config import Config


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (Machines(here=0), "--here"),
        (Machines(servers_here=1), "--servers-here"),
        (Machines(port=7077), "--port"),
        (Machines(address="10.0.0.1"), "--address"),
    ],
)
def test_an_option_on_how_to_listen_is_refused_where_nobody_listens(options: Machines, name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} goes with --listen or --hosts; this run is on this machine alone"):
        options.checked(Config())


def test_without_any_option_the_run_is_on_this_machine() -> None:
    assert Machines().checked(Config()) is None


def test_what_is_said_goes_to_the_run_that_listens() -> None:
    found = Machines(listen=True, here=1, port=7078, address="10.0.0.1").checked(Config(workers=3))

    assert found is not None
    assert (found.workers_here, found.port, found.address, found.servers_here) == (1, 7078, "10.0.0.1", None)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Machines(listen=True, here=4), "--here 4: the run has 3 workers"),
        (Machines(listen=True, servers_here=0), "--servers-here 0: expected 1 to"),
    ],
)
def test_numbers_that_the_run_does_not_have_are_refused(options: Machines, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        options.checked(Config(workers=3))


@pytest.mark.parametrize("command", ["run", "launch"])
@pytest.mark.parametrize(("option", "value"), [("--here", "1"), ("--port", "7077")])
def test_the_command_ends_with_the_exit_code_of_a_mistake_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, option: str, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n")

    what = "train.py" if command == "launch" else "svm"
    ended = CliRunner().invoke(app, [command, option, value, what])

    assert ended.exit_code == UsageError.exit_code
    assert f"{option} goes with --listen or --hosts" in ended.stderr
    assert not (tmp_path / "runs").exists()
