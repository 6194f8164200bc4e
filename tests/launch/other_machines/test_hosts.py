"""Who lends what, in virtual time: hosts that join, report, fall silent, come back and go."""

from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import ServersGone, UsageError
from paceline.launch.other_machines.hosts import LOST, Host, Hosts, RemoteProcess
from paceline.launch.other_machines.lent import LentProcesses, RemoteChild
from paceline.launch.supervise.children import Child
from paceline.v1 import host_service_pb2 as pb


class Rig:
    """The head's side, and what hosts say, at times that the test sets."""

    def __init__(self, folder: Path, workers: int = 3, servers: int = 0) -> None:
        self.now = 0.0
        self.folder = folder
        self.said: list[str] = []
        self.hosts = Hosts("play", {"worker": workers, "server": servers}, lambda: self.now)
        head = {"address": "10.0.0.1", "command": "paceline join X --key Y", "name": "head", "limit": 300.0}
        self.lent = LentProcesses(self.hosts, workers_here=0, servers_here=1, now=lambda: self.now, **head)
        self.lent.open(self.said.append)
        self.children: list[Child] = []
        self.lent.want_workers(range(workers), {"servers": "127.0.0.1:1"}, self.log, 3)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def report(self, host: Host, leaving: bool = False, **children: Any) -> pb.HostServiceReportReply:
        """`children`: exit codes by name, None for one that runs."""
        said = []
        for name, code in children.items():
            process = host.processes[name.replace("_", "-")]
            one = pb.ChildReport(name=process.name, start=process.start, pid=99, ended=f"ended with exit code {code}")
            if code is not None:
                one.code = code
            said.append(one)
        return self.hosts.report(pb.HostServiceReportRequest(host=host.number, children=said, leaving=leaving))

    def attend(self) -> list[str]:
        """The names of what runs on other machines now, with their machines."""
        self.lent.attend(self.children)
        return [f"{child.name} on {child.on.name}" for child in self.children if isinstance(child, RemoteChild)]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_workers_start_where_there_is_room_and_the_rest_waits(rig: Rig) -> None:
    assert rig.attend() == []
    host = rig.hosts.join("b", 2, 0, "10.0.0.2")
    assert rig.attend() == ["worker-0 on b", "worker-1 on b"]
    assert rig.lent.awaited()
    orders = rig.report(host).children
    found = [(order.name, order.start, order.role) for order in orders]
    assert found == [("worker-0", 1, pb.PROCESS_ROLE_WORKER), ("worker-1", 1, pb.PROCESS_ROLE_WORKER)]
    rig.hosts.join("c", 4, 0, "10.0.0.3")
    assert rig.attend()[-1] == "worker-2 on c"
    assert not rig.lent.awaited()
    assert rig.said[1:] == [
        "host b (10.0.0.2) has joined; it lends 2 workers",
        "host c (10.0.0.3) has joined; it lends 4 workers",
    ]


def test_a_silent_host_is_dead_and_the_next_one_takes_its_workers(rig: Rig) -> None:
    b = rig.hosts.join("b", 3, 0, "10.0.0.2")
    rig.attend()
    rig.report(b, worker_0=None, worker_1=None, worker_2=None)
    rig.now = LOST + 0.1

    assert rig.attend() == []

    assert rig.said[-2] == (
        "host b (10.0.0.2) has not answered for 10 s; worker-0, worker-1, worker-2 went with it. Another machine may take "
        "their place: paceline join X --key Y"
    )
    assert rig.report(b).is_unknown, "it has to join again if it lives"
    c = rig.hosts.join("c", 3, 0, "10.0.0.3")
    assert rig.attend() == ["worker-0 on c", "worker-1 on c", "worker-2 on c"]
    assert rig.said[-1] == "worker-2 goes on on host c (10.0.0.3)"
    assert [order.start for order in rig.report(c).children] == [1, 1, 1]


def test_a_host_that_fetches_files_is_not_dead(rig: Rig) -> None:
    host = rig.hosts.join("b", 3, 0, "10.0.0.2")
    rig.now = LOST - 1
    rig.hosts.heard(host.number)
    rig.now = LOST + 5
    assert rig.attend() == ["worker-0 on b", "worker-1 on b", "worker-2 on b"]


def test_a_spare_host_takes_the_workers_of_a_dead_one_at_once(rig: Rig) -> None:
    rig.hosts.join("b", 2, 0, "10.0.0.2")
    c = rig.hosts.join("c", 3, 0, "10.0.0.3")
    before = rig.attend()
    assert sum("on c" in each for each in before) == 2, "the one with most room is asked first"
    rig.now = LOST + 1
    rig.hosts.heard(c.number)
    assert all("on c" in each for each in rig.attend())


def test_workers_of_a_host_that_leaves_are_vacant_and_are_not_started_again_there(rig: Rig) -> None:
    host = rig.hosts.join("b", 3, 0, "10.0.0.2")
    rig.attend()
    rig.report(host, leaving=True, worker_0=None, worker_1=None, worker_2=None)
    assert rig.attend() == ["worker-0 on b", "worker-1 on b", "worker-2 on b"], "they are just leaving the run"
    rig.report(host, leaving=True, worker_0=143, worker_1=143, worker_2=143)
    assert rig.attend() == []
    assert rig.lent.awaited()


def test_a_worker_that_has_finished_is_not_started_elsewhere(rig: Rig) -> None:
    host = rig.hosts.join("b", 3, 0, "10.0.0.2")
    rig.attend()
    rig.report(host, worker_0=0, worker_1=0, worker_2=0)
    rig.now = LOST + 1
    assert [child.poll() for child in rig.children] == [0, 0, 0]
    rig.attend()
    assert not rig.lent.awaited()


def test_a_restart_is_a_new_start_and_older_reports_count_no_more(rig: Rig) -> None:
    host = rig.hosts.join("b", 3, 0, "10.0.0.2")
    rig.attend()
    rig.report(host, worker_0=1)
    child = rig.children[0]
    assert (child.poll(), child.how_it_ended()) == (1, "on b ended with exit code 1")
    old = pb.ChildReport(name="worker-0", start=1, code=1)
    child.start()
    rig.hosts.report(pb.HostServiceReportRequest(host=host.number, children=[old]))
    assert child.poll() is None
    assert rig.report(host).children[0].start == 2


def test_a_signal_goes_to_the_host(rig: Rig) -> None:
    host = rig.hosts.join("b", 3, 0, "10.0.0.2")
    rig.attend()
    rig.children[1].signal(15)
    assert [order.signal for order in rig.report(host).children] == [0, 15, 0]


def test_a_log_arrives_once_whatever_is_said_twice(tmp_path: Path) -> None:
    process = RemoteProcess("worker-0", "worker", {"rank": 0}, tmp_path / "logs" / "worker-0.log", start=1)
    for at, log in ((0, b"one\n"), (0, b"one\ntwo\n"), (100, b"from nowhere\n"), (8, b"three\n")):
        process.note(pb.ChildReport(name="worker-0", start=1, log_from=at, log=log))
    assert process.log.read_bytes() == b"one\ntwo\nthree\n"
    assert process.order().log_size == 14


def test_last_lines_of_a_process_elsewhere_are_those_of_its_newest_start(rig: Rig) -> None:
    host = rig.hosts.join("b", 3, 0, "10.0.0.2")
    rig.log("worker-0").write_text("of an earlier run\n")
    rig.attend()
    report = pb.ChildReport(name="worker-0", start=1, code=1, log=b"ValueError: no\n")
    rig.hosts.report(pb.HostServiceReportRequest(host=host.number, children=[report]))
    assert rig.children[0].tail() == "\n    ValueError: no"


def test_a_server_that_was_lost_has_no_restarts_and_says_that_its_slice_is_gone(tmp_path: Path) -> None:
    rig = Rig(tmp_path, workers=1, servers=1)
    rig.hosts.join("b", 0, 1, "10.0.0.2")
    server = rig.lent.lend_server(1, {"chief": "127.0.0.1:5"}, rig.log("server-1"), 3)
    assert server is not None
    rig.children.append(server)
    server.start()
    rig.now = LOST + 1
    rig.attend()
    assert (server.poll(), server.restarts_left) == (-9, 0)
    assert "its slice of the model" in server.how_it_ended()


def test_a_server_elsewhere_is_at_the_address_of_its_host(tmp_path: Path) -> None:
    rig = Rig(tmp_path, workers=1, servers=1)
    assert rig.lent.lend_server(1, {}, rig.log("server-1"), 3) is None, "nobody has joined"
    host = rig.hosts.join("b", 0, 1, "10.0.0.2")
    server = rig.lent.lend_server(1, {}, rig.log("server-1"), 3)
    server.start()
    assert server.listens_at == ""
    report = pb.ChildReport(name="server-1", start=1, pid=7, port=5005)
    rig.hosts.report(pb.HostServiceReportRequest(host=host.number, children=[report]))
    assert server.listens_at == "10.0.0.2:5005"


def test_hosts_of_one_name_get_numbers_and_nobody_joins_with_nothing(rig: Rig) -> None:
    assert [rig.hosts.join("laptop", 1, 0, "").name for _ in range(3)] == ["laptop", "laptop-2", "laptop-3"]
    with pytest.raises(UsageError, match="offers 0 workers and 0 servers"):
        rig.hosts.join("b", 0, 0, "10.0.0.2")


def test_all_hosts_hear_the_end_and_the_exit_code(rig: Rig) -> None:
    host = rig.hosts.join("b", 3, 0, "10.0.0.2")
    rig.attend()
    rig.hosts.end(70, "it broke")
    reply = rig.report(host, worker_0=0, worker_1=0, worker_2=143)
    assert (reply.is_over, reply.exit_code, reply.reason) == (True, 70, "it broke")
    assert rig.hosts.there == [], "the head need not wait for it any longer"


def test_a_run_that_nobody_joins_says_so_and_ends_after_its_start_timeout(rig: Rig) -> None:
    rig.attend()
    nobody = "no machine has come that lends workers to this run"
    assert rig.lent.waits() == f"{nobody}; it waits 300 s for one (start_timeout)"
    rig.now = 61
    rig.attend()
    assert rig.said[-1] == f"{nobody} for 61 s; it waits another 239 s for one: paceline join X --key Y"
    rig.now = 300
    with pytest.raises(ServersGone, match=r"no machine has come .* for 300 s \(start_timeout\), so the run has ended"):
        rig.attend()


def test_a_run_whose_machines_are_all_gone_waits_as_long_for_the_next_one(rig: Rig) -> None:
    rig.hosts.join("b", 3, 0, "10.0.0.2")
    rig.attend()
    assert rig.lent.waits() == ""
    rig.now = LOST + 1
    rig.attend()
    assert "no machine is left that lends workers to this run; it waits another 300 s for one" in rig.said[-1]
    rig.now += 299
    rig.hosts.join("c", 1, 0, "10.0.0.3")
    rig.attend()
    assert rig.lent.waits() == "", "one worker is enough to go on"
    rig.now += LOST + 1
    rig.attend()
    rig.now += 300
    with pytest.raises(ServersGone, match=r"no machine is left .* --run NAME, .*--set start_timeout=SECONDS"):
        rig.attend()


def test_a_run_that_is_scored_waits_for_nobody(rig: Rig) -> None:
    first = rig.hosts.join("b", 2, 0, "10.0.0.2")
    rig.attend()
    rig.report(first, worker_0=0, worker_1=0)
    rig.now = 400
    rig.report(first)
    rig.attend()
    assert rig.lent.awaited()
    assert rig.lent.waits() == ""


def test_what_keeps_a_host_from_starting_workers_is_said_once(rig: Rig) -> None:
    host = rig.hosts.join("b", 3, 0, "10.0.0.2")
    blocked = pb.HostServiceReportRequest(host=host.number, trouble="server at 10.0.0.1:5 can't be reached")
    for _ in range(2):
        rig.hosts.report(blocked)
        rig.attend()
    assert rig.said.count("host b says: server at 10.0.0.1:5 can't be reached") == 1
