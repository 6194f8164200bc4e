"""What a host does with its orders: starts, restarts, signals, logs; with small programs in place of workers."""

import json
import re
import socket
import time
from pathlib import Path
from time import sleep

import pytest

from paceline.core.settings.config import Config
from paceline.launch.other_machines import own_work
from paceline.launch.other_machines.own_work import HostFacts, OwnWork
from paceline.launch.supervise.frozen_servers import Probe
from paceline.v1 import host_service_pb2 as pb
from tests.support.own_time import own_time
from tests.support.processes import eventually


class Reached:
    """Servers, one of which may be out of reach."""

    is_done = True

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses


class Rig:
    """A host whose workers are one line of Python."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, ports: str = "") -> None:
        self.told: list[dict[str, object]] = []

        def words(told: dict[str, object]) -> object:
            self.told.append(told)
            return ["-c", program]

        monkeypatch.setattr(own_work, "worker_words", words)
        monkeypatch.setattr(own_work, "ReachServers", Reached)
        self.said: list[str] = []
        place = HostFacts(
            folder=folder,
            config=Config(ports=ports),
            head="10.0.0.1",
            address="10.0.0.2",
            name="b",
            device="cpu",
            threads=1,
        )
        self.work = OwnWork(place, self.said.append)

    def order(self, start: int = 1, signal: int = 0, log_size: int = 0, name: str = "worker-3") -> pb.ChildOrder:
        servers = ["127.0.0.1:5", "10.0.0.7:6"]
        arguments = pb.ProcessArguments(number=3, servers=servers, shard_server="127.0.0.1:8")
        return pb.ChildOrder(
            name=name, start=start, role=pb.PROCESS_ROLE_WORKER, arguments=arguments, signal=signal, log_size=log_size
        )

    def ended(self) -> pb.ChildReport:
        eventually(lambda: self.work.reports()[0].HasField("code"))
        return self.work.reports()[0]


def test_a_worker_is_told_of_the_head_by_the_address_that_this_host_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, monkeypatch, "print('hello')")
    rig.work.carry_out([rig.order()])
    told = rig.told[0]
    assert (told["servers"], told["shard_server"]) == ("10.0.0.1:5,10.0.0.7:6", "10.0.0.1:8")
    assert (told["peer_host"], told["host"], told["rank"]) == ("10.0.0.2", "b", 3)
    said = rig.ended()
    assert (said.code, said.log, said.ended) == (0, b"hello\n", "ended with exit code 0")
    assert not rig.work.is_told
    rig.work.carry_out([rig.order(log_size=6)])
    assert rig.work.is_told
    assert rig.said[0].startswith("worker-3 is started (process ")


def test_a_start_is_made_once_and_a_later_one_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, monkeypatch, "raise SystemExit(3)")
    rig.work.carry_out([rig.order()])
    assert rig.ended().code == 3
    rig.work.carry_out([rig.order()])
    assert len(rig.told) == 1
    rig.work.carry_out([rig.order(start=2)])
    assert (len(rig.told), rig.ended().start) == (2, 2)


def test_a_signal_is_passed_on_and_what_is_wanted_no_more_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, monkeypatch, "import time; time.sleep(600)")
    rig.work.carry_out([rig.order()])
    rig.work.carry_out([rig.order(signal=9)])
    assert rig.ended().code == -9
    rig.work.carry_out([rig.order(start=2)])
    rig.work.carry_out([])
    assert rig.work.reports() == []


def test_an_end_is_told_only_with_the_last_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_work, "LOG_PART", 4)
    rig = Rig(tmp_path, monkeypatch, "print('123456789')")
    rig.work.carry_out([rig.order()])
    eventually(lambda: rig.work.reports()[0].log == b"1234")
    time.sleep(0.1)
    assert not rig.work.reports()[0].HasField("code")
    rig.work.note([rig.order(log_size=8)])
    said = rig.ended()
    assert (said.log, said.log_from, said.code) == (b"9\n", 8, 0)


def test_the_logs_of_many_processes_share_what_a_report_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_work, "LOG_PARTS", 6)
    rig = Rig(tmp_path, monkeypatch, "print('123456789')")
    rig.work.carry_out([rig.order(), rig.order(name="worker-1")])
    eventually(lambda: [each.log for each in rig.work.reports()] == [b"123"] * 2)


def test_a_process_listens_on_a_port_of_the_range_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        first = min(taken.getsockname()[1], 65000)
        rig = Rig(tmp_path, monkeypatch, "", ports=f"{first}-{first + 99}")
        rig.work.carry_out([rig.order()])
        rig.ended()
        rig.work.carry_out([rig.order(start=2)])
    one, two = (told["peer_port"] for told in rig.told)
    assert one == two
    assert first < int(str(one)) < first + 100


def test_no_worker_starts_before_the_servers_can_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, monkeypatch, "")
    monkeypatch.setattr(Reached, "is_done", False)
    rig.work.carry_out([rig.order()])
    reach = rig.work.reach
    assert isinstance(reach, Reached)
    assert reach.addresses == ["10.0.0.1:5", "10.0.0.7:6", "10.0.0.1:8"]
    assert rig.told == []
    reach.is_done = True
    rig.work.carry_out([rig.order()])
    assert len(rig.told) == 1


class Silent(Probe):
    """A server that has answered once."""

    def __init__(self, port: int) -> None:
        self._answers = [True]

    def ask(self) -> None:
        pass

    def answer(self) -> bool:
        return bool(self._answers and self._answers.pop())

    def close(self) -> None:
        pass


def test_a_frozen_server_here_is_ended_and_the_head_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(own_work, "server_words", lambda told: ["-c", "import time; time.sleep(60)"])
    own_time(monkeypatch, own_work, monotonic=lambda: now[0])
    place = HostFacts(folder=tmp_path, config=Config(), head="10.0.0.1", address="b", name="b", device="cpu", threads=1)
    work = OwnWork(place, lambda text: None, Silent)
    told = pb.ProcessArguments(number=1, chief="127.0.0.1:5")
    work.carry_out([pb.ChildOrder(name="server-1", start=1, role=pb.PROCESS_ROLE_SERVER, arguments=told)])
    (tmp_path / "ports").mkdir()
    ports = {"pid": work.reports()[0].pid, "port": 5, "health_port": 6}
    (tmp_path / "ports" / "server-1.json").write_text(json.dumps(ports))

    for _ in range(2000):
        now[0] += 0.1
        if (said := work.reports()[0]).HasField("code"):
            break
        sleep(0.001 if now[0] < 30 else 0.01)

    assert re.fullmatch(r"has not answered for 1\d s, so it was ended", said.ended)
    work.end()
