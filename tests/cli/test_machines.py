"""Options by which other machines take part: an error comes before anything starts if they don't fit together."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.cli.machines import Machines, served
from paceline.core.errors import UsageError
from paceline.core.settings.config import Config

NOBODY = "needs --listen or --hosts; without them the run uses this machine only"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Machines(here=0), f"^--here {NOBODY}"),
        (Machines(servers_here=1), f"^--servers-here {NOBODY}"),
        (Machines(port=7077), f"^--port {NOBODY}"),
        (Machines(address="10.0.0.1"), f"^--address {NOBODY}"),
        (Machines(listen=True, here=4), "--here 4: the run has 3 workers"),
        (Machines(listen=True, servers_here=0), "--servers-here 0: expected 1 to"),
    ],
)
def test_an_option_that_does_not_fit_the_run_or_where_nobody_listens_is_refused(options: Machines, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        options.checked(Config(workers=3))


SERVED = ("data.source=server",)


def test_without_any_option_the_run_is_on_this_machine() -> None:
    assert Machines().checked(Config()) is None
    assert Machines().part_here(Config(workers=3)) == Config(workers=3)


def test_what_is_said_goes_to_the_run_that_listens() -> None:
    found = Machines(listen=True, here=1, port=7078, address="10.0.0.1").checked(Config(workers=3))

    assert (found.workers_here, found.port, found.address, found.servers_here) == (1, 7078, "10.0.0.1", None)
    assert found.options == "--listen --here 1 --port 7078 --address 10.0.0.1"


def test_the_file_of_hosts_is_named_to_whom_goes_on(tmp_path: Path) -> None:
    (tmp_path / "my hosts").write_text("gpu-1 workers=2\n")
    found = Machines(hosts=tmp_path / "my hosts").checked(Config(workers=2))

    assert found.options == f"--hosts '{tmp_path}/my hosts'"


def test_a_task_is_dealt_by_a_shard_server_and_a_script_brings_its_data_when_it_goes_on_too(tmp_path: Path) -> None:
    """Otherwise the script would be loaded as a task, and train in the launcher's own process."""
    for name, source in (("script.yaml", "script"), ("task.yaml", "folder")):
        (tmp_path / name).write_text(f"task: train.py\ndata: {{source: {source}}}\n")

    assert served(str(tmp_path / "script.yaml"), []) == ()
    assert served(str(tmp_path / "task.yaml"), []) == served("digits", ["seed=1"]) == served(None, []) == SERVED


def test_nobody_serves_shards_that_are_in_an_object_store(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("task: digits\ndata: {shards_at: s3://mine/shards}\n")

    (tmp_path / "run.yml").write_text((tmp_path / "run.yaml").read_text())
    (tmp_path / "own.py").write_text("SETTINGS = {'data': {'shards_at': 's3://mine/shards'}}\n")

    assert served(str(tmp_path / "run.yaml"), []) == served("digits", ["data.shards_at=s3://mine/shards"]) == ()
    assert served(str(tmp_path / "run.yml"), []) == served(str(tmp_path / "own.py"), []) == ()


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
    assert f"{option} needs --listen or --hosts" in ended.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("machines", "workers", "servers"),
    [(Machines(listen=True), 0, 2), (Machines(listen=True, here=3, servers_here=1), 3, 1)],
)
def test_only_what_this_machine_starts_counts_as_its_part(machines: Machines, workers: int, servers: int) -> None:
    found = machines.part_here(Config(workers=64, servers=2))

    assert (found.workers, found.servers) == (workers, servers)
