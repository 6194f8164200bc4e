"""The file of hosts, and ssh in place of which a small script stands."""

import time
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError, UsageError
from paceline.launch.other_machines.hosts import Hosts
from paceline.launch.other_machines.key import JoinKey
from paceline.launch.other_machines.ssh import SshHost, begin_by_ssh, read_hosts
from tests.support.processes import eventually

KEY = JoinKey(bytes(10), bytes(13))


def file_of(folder: Path, text: str) -> Path:
    (folder / "hosts.txt").write_text(text)
    return folder / "hosts.txt"


def test_a_line_is_a_machine_and_what_it_lends(tmp_path: Path) -> None:
    text = "# our machines\nnode1\nme@node2 workers=4 servers=1 python=/opt/py/bin/python  # the fast one\n\n"
    assert read_hosts(file_of(tmp_path, text)) == [
        SshHost("node1"),
        SshHost("me@node2", workers=4, servers=1, python="/opt/py/bin/python"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("node1 worker=2", "line 1: got worker=2; It takes a line a machine"),
        ("a\nnode1 workers=two", "line 2: got workers=two; It takes"),
        ("node1 workers", "line 1: got 'workers'. It takes"),
        ("-oProxyCommand=x", "line 1: got '-oProxyCommand=x' as the machine's name"),
        ("workers=2", "line 1: got 'workers=2' as the machine's name"),
        ("# nobody\n", "names no machine"),
        ("a\nb\na", "names a twice"),
    ],
)
def test_a_line_that_can_not_be_read_is_named(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        read_hosts(file_of(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Can't read --hosts .*nobody.txt: No such file or directory"):
        read_hosts(tmp_path / "nobody.txt")


def test_the_key_is_not_on_the_command_line() -> None:
    command = SshHost("me@node2", workers=4, python="/opt/my py/python").command("10.0.0.1:7077")
    assert command[0] == "ssh"
    assert command[-3:] == [
        "--",
        "me@node2",
        "'/opt/my py/python' -m paceline.cli join 10.0.0.1:7077 --key - --name node2 -s 0 -w 4",
    ]


def test_the_shell_of_the_other_machine_finds_the_home_there() -> None:
    command = SshHost("node2", python="~/my venv/bin/python").command("10.0.0.1:7077")
    assert command[-1].startswith("~/'my venv/bin/python' -m paceline.cli join 10.0.0.1:7077 ")


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called ssh, found first, whose text the test writes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    program = folder / "ssh"
    program.touch(0o755)
    return program


def test_an_ssh_that_ends_before_its_machine_has_joined_is_told_with_its_words(stand_in: Path, tmp_path: Path) -> None:
    stand_in.write_text("#!/bin/sh\necho 'me@node2: Permission denied (publickey).' >&2\nexit 255\n")
    hosts = Hosts("play", {"worker": 1, "server": 0}, time.monotonic)
    log = lambda name: tmp_path / "logs" / f"{name}.log"  # noqa: E731
    with begin_by_ssh([SshHost("me@node2")], "10.0.0.1:7077", KEY, hosts, log) as look:
        eventually(lambda: "denied" in log("ssh-me@node2").read_text())
        with pytest.raises(ConfigError, match=r"(?s)node2 ended with exit code 255 .*=yes me@node2 true` must.*denied"):
            eventually(look)


@pytest.mark.parametrize(
    ("python", "told"),
    [("", "The command `paceline` is not on the PATH that ssh gives there"), ("/opt/py", "There is no /opt/py there")],
)
def test_a_machine_without_paceline_is_told_of_with_what_to_write(
    python: str, told: str, stand_in: Path, tmp_path: Path
) -> None:
    stand_in.write_text("#!/bin/sh\necho 'bash: paceline: command not found' >&2\nexit 127\n")
    hosts = Hosts("play", {"worker": 1, "server": 0}, time.monotonic)
    with (
        begin_by_ssh(
            [SshHost("node2", python=python)], "10.0.0.1:7077", KEY, hosts, lambda name: tmp_path / name
        ) as look,
        pytest.raises(ConfigError, match=rf"(?s){told}: say python=PROGRAM in its line.*not found"),
    ):
        eventually(look)


def test_an_ssh_gets_the_key_by_stdin_and_may_end_after_its_machine_has_joined(stand_in: Path, tmp_path: Path) -> None:
    stand_in.write_text(f'#!/bin/sh\nread key\necho "$key" > {tmp_path}/heard\n')
    hosts = Hosts("play", {"worker": 1, "server": 0}, time.monotonic)
    hosts.join("node2", 1, 0, "10.0.0.2")
    with begin_by_ssh([SshHost("node2")], "10.0.0.1:7077", KEY, hosts, lambda name: tmp_path / name) as look:
        eventually(lambda: (tmp_path / "heard").exists() and (tmp_path / "heard").read_text().strip() == KEY.text())
        look()


@pytest.mark.parametrize(("lent", "is_needed"), [(6, False), (5, True)])
def test_a_machine_that_finds_no_free_seat_ends_no_run_that_has_all_its_workers(
    lent: int, is_needed: bool, stand_in: Path, tmp_path: Path
) -> None:
    stand_in.write_text("#!/bin/sh\necho no free seat\nexit 75\n")
    hosts = Hosts("play", {"worker": 6, "server": 0}, time.monotonic)
    hosts.join("node1", lent, 0, "10.0.0.2")
    with begin_by_ssh([SshHost("me@node2")], "10.0.0.1:7077", KEY, hosts, lambda name: tmp_path / name) as look:
        if is_needed:
            with pytest.raises(ConfigError, match=r"(?s)ssh me@node2 ended with exit code 75 .*no free seat"):
                eventually(look)
            return
        said: list[str] = []
        eventually(lambda: said.extend(look()) or said)
        assert said[0].startswith("host node2 is not needed: other machines lend all that the run takes.")
        assert look() == []


def test_an_ssh_that_stays_ends_with_the_run(stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.launch.other_machines.ssh._END", 0.1)
    stand_in.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    hosts = Hosts("play", {"worker": 1, "server": 0}, time.monotonic)
    with begin_by_ssh([SshHost("node2")], "10.0.0.1:7077", KEY, hosts, lambda name: tmp_path / name):
        eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_without_an_ssh_client_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    hosts = Hosts("play", {"worker": 1, "server": 0}, time.monotonic)
    with (
        pytest.raises(ConfigError, match="Can't start ssh, which --hosts needs: No such file or directory"),
        begin_by_ssh([SshHost("node2")], "10.0.0.1:7077", KEY, hosts, lambda name: tmp_path / name),
    ):
        raise AssertionError("there is no ssh")
