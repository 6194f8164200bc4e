"""What a machine lends if nobody says how much, where the key comes from and what it carries, and servers out of reach."""

import io
import socket
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.launch.other_machines import agent
from paceline.launch.other_machines.agent import make_offer, read_key
from paceline.launch.other_machines.key import JoinKey
from paceline.launch.other_machines.reach_servers import ReachServers
from paceline.launch.this_machine.processors import visible_gpus
from tests.support.processes import eventually


def test_a_worker_for_each_core_or_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "cores", lambda: 6)
    monkeypatch.setattr(agent, "visible_gpus", lambda *_: ["0", "1"])
    assert make_offer(None, 0, "auto", "", "b", None)[1] == "one for each of its 2 GPUs"
    made, why = make_offer(None, 0, "cpu", "", "b", None)
    assert (made.workers, why) == (6, "one for each of its 6 cores")


@pytest.mark.parametrize(("given", "count"), [("0,3", ["0", "3"]), ("", []), ("-1", [])])
def test_gpus_that_are_hidden_do_not_count(given: str, count: list[str], tmp_path: Path) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": given}, tmp_path) == count


def test_gpus_are_counted_by_their_devices(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "null"):
        (tmp_path / name).touch()
    assert visible_gpus({}, tmp_path) == ["0", "1"]


def test_nothing_is_no_offer() -> None:
    with pytest.raises(UsageError, match="-w 0 -s 0: a machine must lend at least one worker or server"):
        make_offer(0, 0, "auto", "", "", None)


def test_the_key_comes_from_the_option_the_environment_or_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_key("abc", {"PACELINE_KEY": "def"}) == "abc"
    assert read_key(None, {"PACELINE_KEY": "def"}) == "def"
    monkeypatch.setattr("sys.stdin", io.StringIO("by stdin\nmore"))
    assert read_key("-", {}).strip() == "by stdin"
    with pytest.raises(UsageError, match=r"The key is missing.*PACELINE_KEY=\.\.\. paceline join"):
        read_key(None, {})


KEY = JoinKey(bytes(range(10)), bytes(range(100, 113)))


def test_a_key_is_forty_letters_in_groups_and_comes_back_as_it_was() -> None:
    text = KEY.text()
    assert [len(group) for group in text.split("-")] == [8, 8, 8, 8, 8]
    assert JoinKey.read(text) == KEY


def test_capitals_spaces_and_hyphens_do_not_matter() -> None:
    assert JoinKey.read(f"  {KEY.text().upper().replace('-', ' ')}\n") == KEY


def test_two_keys_of_one_certificate_have_other_secrets() -> None:
    assert JoinKey.new(b"certificate").secret != JoinKey.new(b"certificate").secret
    assert JoinKey.new(b"certificate").fingerprint == JoinKey.new(b"certificate").fingerprint


def test_a_key_that_is_cut_off_is_refused() -> None:
    with pytest.raises(UsageError, match=r"The key has 39 letters and digits; a key has 40. Copy the whole key"):
        JoinKey.read(KEY.text()[:-1])


def test_letters_that_no_key_has_are_named() -> None:
    with pytest.raises(UsageError, match=r"The key holds '0', '8'; a key has only .*a to z and .*2 to 7"):
        JoinKey.read("08" + KEY.text()[2:])


@pytest.mark.parametrize("place", [0, 11, 43])
def test_one_wrong_letter_is_noticed(place: int) -> None:
    text = KEY.text()
    other = "b" if text[place] == "a" else "a"
    with pytest.raises(UsageError, match="has a wrong letter, or two letters that are swapped"):
        JoinKey.read(text[:place] + other + text[place + 1 :])


def until(reach: ReachServers, done: bool) -> None:
    eventually(lambda: reach.is_done is done and (done or reach.trouble))


def test_servers_that_accept_are_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        reach = ReachServers([f"127.0.0.1:{each.getsockname()[1]}" for each in (one, two)])
        until(reach, True)
    assert (reach.trouble, reach.waited) == ("", 0.0)


def test_one_that_can_not_be_reached_is_named_until_it_can() -> None:
    with socket.create_server(("127.0.0.1", 0)) as open_one, socket.socket() as shut:
        shut.bind(("127.0.0.1", 0))  # nobody listens there yet
        address = f"127.0.0.1:{shut.getsockname()[1]}"
        reach = ReachServers([f"127.0.0.1:{open_one.getsockname()[1]}", address])
        until(reach, False)
        assert f"servers at {address} can't be reached from here (Connection refused), so no worker" in reach.trouble
        assert "--set ports=7100-7119" in reach.trouble
        shut.listen()
        until(reach, True)
