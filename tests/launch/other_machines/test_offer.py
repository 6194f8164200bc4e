"""What a machine lends if nobody says how much, and where the key comes from."""

import io
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.launch.other_machines import agent
from paceline.launch.other_machines.agent import make_offer, read_key
from paceline.launch.this_machine.processors import visible_gpus


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
    with pytest.raises(UsageError, match=r"The key is missing.*--key KEY, or PACELINE_KEY"):
        read_key(None, {})
