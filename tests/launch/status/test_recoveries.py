"""What a run's recoveries took is said once, when it has come to rest, and is summed up at the end."""

from pathlib import Path

import pytest

from paceline.launch.status.recoveries import REST, Recoveries, standing_recoveries
from paceline.v1.run_service_pb2 import ServerStart, ServerStatus, StatusReply, WorkerStatus
from tests.support.chief import begun, followed, shown


def server(number: int, term: int, version: int | None = None, damaged: int = 0) -> ServerStatus:
    start = ServerStart(is_back=version is not None, version=version or 0, damaged=damaged, term=term)
    return ServerStatus(server=number, term=term, start=start)


def status(*servers: ServerStatus, replayed: int = 0, rerun: int = 0) -> StatusReply:
    worker = WorkerStatus(worker="worker-0", figures={"replayed": replayed, "rerun": rerun})
    return StatusReply(phase="RUN_PHASE_TRAINING", servers=servers, workers=[worker])


NEW = (server(0, 1), server(1, 1))


def test_servers_that_begin_are_not_worth_a_line() -> None:
    seen = Recoveries()

    assert seen.of(status(*NEW), 0.0) == []
    assert str(seen.sum) == ""
    assert standing_recoveries(status(*NEW)) == []


def test_a_server_that_comes_back_is_said_once_with_what_it_passed_over() -> None:
    seen = Recoveries()
    seen.of(status(*NEW), 0.0)
    back = status(server(0, 1), server(1, 2, version=1693, damaged=1))

    assert seen.of(back, 1.0) == [
        "server-1 went on from its snapshot of version 1,693 (term 2); 1 damaged snapshot was passed over"
    ]
    assert seen.of(back, 1.0) == []
    assert str(seen.sum) == "1 start of a server from its snapshot, 1 damaged snapshot passed over"


def test_a_server_that_died_before_its_first_snapshot_is_said_too() -> None:
    seen = Recoveries()
    seen.of(status(*NEW), 0.0)

    (line,) = seen.of(status(server(0, 1), server(1, 2)), 1.0)

    assert "server-1 came back without a snapshot (term 2)" in line


def test_a_server_that_the_chief_has_not_heard_of_is_waited_for() -> None:
    seen = Recoveries()
    seen.of(status(*NEW), 0.0)

    assert seen.of(status(server(0, 2, version=5), ServerStatus(server=1, term=2)), 1.0) == [
        "server-0 went on from its snapshot of version 5 (term 2)"
    ]
    assert len(seen.of(status(server(0, 2, version=5), server(1, 2, version=4)), 2.0)) == 1
    assert seen.sum.servers == 2


def test_what_is_done_again_is_said_once_it_has_come_to_rest() -> None:
    seen = Recoveries()
    news = [(0.0, 0, 0), (1.0, 3, 0), (4.0, 12, 5), (4.0 + REST / 2, 12, 5)]
    assert [seen.of(status(*NEW, replayed=sent, rerun=again), now) for now, sent, again in news] == [[], [], [], []]

    assert seen.of(status(*NEW, replayed=12, rerun=5), 4.0 + REST) == [
        "workers made up for what servers had lost: 12 pushes sent again, 5 mini-batches computed again"
    ]
    assert seen.of(status(*NEW, replayed=12, rerun=5), 60.0) == []


def test_a_worker_that_is_started_again_counts_on() -> None:
    seen = Recoveries()
    for now, replayed in enumerate((4, 9, 0, 2, 2)):
        lines = seen.of(status(*NEW, replayed=replayed), now * REST)

    assert (seen.sum.replayed, seen.sum.rerun) == (11, 0)
    assert lines == ["workers made up for what servers had lost: 2 pushes sent again"]


def test_one_look_shows_what_the_present_processes_came_back_from() -> None:
    assert standing_recoveries(status(server(0, 1), server(1, 3, version=7), replayed=1, rerun=2)) == [
        "server-1 went on from its snapshot of version 7 (term 3)",
        "workers made up for what servers had lost: 1 push sent again, 2 mini-batches computed again",
    ]


def gone_back(orders: int, version: int = 142, *, still: bool = False) -> StatusReply:
    """Server 0 has run on, server 1 was killed; both have followed the orders."""
    servers = [server(0, 1), server(1, 2, version=150)]
    for one in servers:
        one.term += orders
    return StatusReply(phase="RUN_PHASE_TRAINING", servers=servers, went_back=orders, back_to=version, going_back=still)


def test_that_all_servers_go_back_is_said_once_and_is_no_start_of_a_server() -> None:
    seen = Recoveries()
    seen.of(status(*NEW), 0.0)

    started, back = seen.of(gone_back(1, still=True), 1.0)

    assert started == "server-1 went on from its snapshot of version 150 (term 2)"
    assert back.startswith("all servers go back to their common snapshot of version 142, because ")
    assert seen.of(gone_back(1), 2.0) == []
    assert str(seen.sum) == "1 start of a server from its snapshot, all servers went back 1 time"
    assert [line.split(",")[0] for line in standing_recoveries(gone_back(1))] == [
        started,
        "all servers went back to their common snapshot of version 142",
    ]


def test_orders_to_go_back_of_an_earlier_launch_are_not_counted() -> None:
    seen = Recoveries()

    assert len(seen.of(gone_back(2), 0.0)) == 1  # the server's start
    assert len(seen.of(gone_back(3), 1.0)) == 1
    assert seen.sum.went_back == 1


def test_a_wait_for_other_workers_is_said_once_it_lasts_and_when_it_is_over() -> None:
    seen = Recoveries()
    waits = StatusReply(phase="RUN_PHASE_TRAINING", awaited=["worker-1", "worker-2"])

    lines = [seen.of(each, now) for each, now in [(waits, 0.0), (waits, 2.0), (waits, 6.0), (status(), 9.0)]]

    said = "the run has come back, and its workers wait for the others that it had; missing: worker-1, worker-2"
    assert lines == [[], [said], [], ["the wait for other workers is over after 9 s"]]
    assert standing_recoveries(waits) == [said]
    assert seen.sum.waited == 9.0
    assert str(seen.sum) == "workers waited 9 s for others"


def test_a_run_that_waits_for_workers_after_all_others_have_finished_says_so() -> None:
    seen = Recoveries()
    waits = StatusReply(phase="RUN_PHASE_TRAINING", unfinished=["worker-1"])

    lines = [seen.of(each, now) for each, now in [(waits, 0.0), (waits, 2.0), (status(), 9.0)]]

    said = "the run waits for workers that have not finished, as the others have (for start_timeout): worker-1"
    assert lines == [[], [said], ["the wait for other workers is over after 9 s"]]
    assert standing_recoveries(waits) == [said]


def test_a_short_wait_for_other_workers_is_not_worth_a_line() -> None:
    seen = Recoveries()
    waits = StatusReply(phase="RUN_PHASE_TRAINING", awaited=["worker-1"])

    assert [seen.of(waits, 0.0), seen.of(waits, 1.0), seen.of(status(), 1.5), seen.of(status(), 9.0)] == [[]] * 4
    assert str(seen.sum) == ""


def finished(*servers: ServerStatus) -> StatusReply:
    return StatusReply(phase="RUN_PHASE_FINISHED", servers=servers)


BACK = (server(0, 1), server(1, 2, version=7))
LINE = "server-1 went on from its snapshot of version 7 (term 2)"


def test_on_kubernetes_each_is_said_when_it_comes_and_summed_up_before_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, result = followed(monkeypatch, status(*NEW), status(*BACK), finished(*BACK))

    assert said.count(LINE) == 1
    assert result[0] == "Recovered: 1 start of a server from its snapshot"


def test_status_shows_it_of_a_run_that_goes_on_and_of_one_that_has_ended(tmp_path: Path) -> None:
    folder = begun(tmp_path)

    assert LINE in shown(folder, status(*BACK))
    folder.write_facts(exit_code=0, finished=True, recovery={"servers": 2, "damaged": 0, "replayed": 3, "rerun": 0})
    assert "Recovered: 2 starts of servers from their snapshots, 3 pushes sent again" in shown(folder)
