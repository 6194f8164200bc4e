"""What statuses are evidence of: whole runs with restarts in them, and the last seconds of one that trains."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.settings.config import Config, Options
from paceline.launch.status.chief_status import plain
from paceline.launch.status.evidence import Causes, Counters, evidence_of, look_of, restarts
from paceline.v1 import run_service_pb2 as pb
from paceline.v1.settings_pb2 import Policy

CONFIG = Config(workers=4, servers=1, policy=Options(name="bsp"), batch_size=256)


def status(at: float, steps: int, slow: float = 0.02, *, phase: str = "training", **more: Any) -> pb.StatusReply:
    """After `at` seconds and that many steps, of which those of worker-3 computed for `slow` seconds, and the others waited."""
    workers = [
        pb.WorkerStatus(
            worker=f"worker-{rank}",
            member=True,
            incarnation=1,
            figures={
                "steps": steps,
                "compute_seconds": steps * (slow if rank == 3 else 0.02),
                "data_seconds": steps * 0.001,
                "push_seconds": steps * 0.002,
                "pull_seconds": steps * 0.001,
                "wait_seconds": steps * (0.0 if rank == 3 else slow - 0.02),
                "sent_bytes": steps * 4e4,
                "alpha": 1.0,
            },
        )
        for rank in range(4)
    ]
    figures = pb.ServerFigures(seconds=at + 30, busy_seconds=0.1 * at, pushes=4 * steps, slice_bytes=4000)
    servers = [pb.ServerStatus(server=0, term=1, figures=figures)]
    policy = Policy(name="bsp")
    return pb.StatusReply(
        run="one",
        phase=f"RUN_PHASE_{phase.upper()}",
        seconds=at,
        workers=workers,
        servers=servers,
        policy=policy,
        **more,
    )


def test_a_whole_run_is_the_sum_of_all_looks_and_servers_count_from_the_first() -> None:
    looks = [plain(status(at, 10 * at)) for at in range(1, 11)]
    found = evidence_of(looks, CONFIG)
    assert found.seconds == found.age == 10
    assert found.workers[0].steps == 100
    assert found.workers[0].exchange == pytest.approx(0.3)
    assert found.workers[0].traffic == pytest.approx(4e6)
    assert (found.servers[0].seconds, found.servers[0].pushes) == (9, 360)
    assert found.servers[0].load == pytest.approx(0.1)
    assert found.members == 4


def test_a_process_that_was_started_again_counts_from_nothing() -> None:
    before, after = plain(status(10, 100)), plain(status(12, 120))
    after["workers"][0]["incarnation"] = after["servers"][0]["term"] = 2
    found = evidence_of([before, after], CONFIG)
    assert [worker.steps for worker in found.workers] == [220, 120, 120, 120]
    assert found.servers[0].seconds == 42


def test_a_worker_of_few_steps_is_no_evidence() -> None:
    assert not evidence_of([plain(status(1, 4))], CONFIG).workers


def test_the_policy_is_the_one_in_force() -> None:
    look = plain(status(1, 10)) | {"policy": '{"name": "ssp", "bound": 7}'}
    assert evidence_of([look], CONFIG).config.policy == Options(name="ssp", bound=7)


def test_starts_of_all_processes_are_a_resumed_runs_and_no_restarts() -> None:
    look = plain(status(1, 10))
    assert restarts(look) == {}
    for process in (*look["workers"], *look["servers"]):
        process["incarnation" if "incarnation" in process else "term"] = 3
    assert restarts(look) == {}
    look["workers"][2]["incarnation"] = 5
    assert restarts(look) == {"worker-2": 2}
    look["servers"][0]["term"] = 1_796_082_426
    assert restarts(look) == {"worker-2": 2}


def test_a_slow_worker_is_news_once_within_ten_seconds() -> None:
    causes, news = Causes(CONFIG), []
    for half in range(1, 21):
        news.append(causes.news(causes.now(status(half / 2, 5 * half, slow=0.1)), "one"))
    told = [(index, line) for index, lines in enumerate(news) for line in lines]
    ((index, line),) = told
    assert index < 20
    assert "waiting for worker-3, whose steps take 5.0 times as long" in line
    assert line.endswith("Now: paceline set one policy=asp")


def test_a_worker_that_becomes_slow_late_is_found_by_the_last_seconds() -> None:
    causes = Causes(CONFIG)
    for at in range(1, 601):
        assert not causes.now(status(at, 40 * at))
    late = plain(status(610, 24000 + 90))
    for worker in late["workers"]:
        worker["figures"]["compute_seconds"] = 24000 * 0.02 + 90 * (0.1 if worker["worker"] == "worker-3" else 0.02)
        worker["figures"]["wait_seconds"] = 0.0 if worker["worker"] == "worker-3" else 90 * 0.08
    (found,) = causes.of(late)
    assert found.cause == "slow_worker"
    assert not causes.whole()  # of all of the run it is nothing


def test_nothing_is_said_before_and_after_the_training_and_of_older_releases() -> None:
    causes = Causes(CONFIG)
    assert not causes.now(status(3, 60, slow=0.1))  # too early
    assert not causes.now(status(30, 300, slow=0.1, phase="scoring"))
    old = status(31, 310, slow=0.1)
    for worker in old.workers:
        del worker.figures["steps"]
    assert not causes.now(old)


def test_a_chief_that_came_back_with_less_begins_anew() -> None:
    causes = Causes(CONFIG)
    causes.now(status(30, 300))
    assert [each.cause for each in causes.of(plain(status(12, 120, slow=0.1)))] == ["slow_worker"]


def full(at: float, *servers: int, phase: str = "training") -> pb.StatusReply:
    """Two servers, of which these can't write."""
    found = status(at, 10 * int(at), phase=phase)
    found.servers.append(pb.ServerStatus(server=1, term=1, figures=found.servers[0].figures))
    for server in servers:
        found.servers[server].figures.disk_trouble = "No space left on device."
    return found


def test_a_full_disk_is_said_while_it_is_full_and_in_the_end_with_how_long_it_was() -> None:
    causes = Causes(CONFIG)
    said = [causes.now(full(at, *([1] if 10 <= at < 30 else []))) for at in range(5, 41)]
    assert [bool(found) for found in said] == [False] * 5 + [True] * 20 + [False] * 11
    ((there,), (after,)) = said[5], causes.whole()
    assert there.said.startswith("server-1 can't keep what is trained (No space left on device); the run goes on")
    assert after.said.startswith("for 20 s server-1 could not keep what was trained (No space left on device)")


def test_workers_that_leave_wait_for_a_full_disk_and_it_is_said() -> None:
    causes = Causes(CONFIG)
    slow = causes.now(status(30, 300, slow=0.1))
    assert [each.cause for each in slow] == ["slow_worker"]
    assert [each.cause for each in causes.now(full(31, 0, phase="stopping"))] == ["full_disk"]


def test_times_of_a_full_disk_add_up_and_a_chief_that_came_back_takes_none_away() -> None:
    looks = [
        plain(full(at, *([0] if is_full else [])))
        for at, is_full in [(5, 1), (6, 0), (20, 1), (25, 1), (22, 1), (23, 0)]
    ]
    first, second = evidence_of(looks, CONFIG).servers
    assert (first.disk_seconds, first.disk_works, first.disk_trouble) == (7, True, "No space left on device.")
    assert (second.disk_seconds, second.disk_works, second.disk_trouble) == (0, True, "")
    assert not evidence_of(looks[:4], CONFIG).servers[0].disk_works


def test_a_status_is_plain_json_with_all_that_is_in_it() -> None:
    figures = pb.ServerFigures(pushes=2, capped={"worker-1": pb.CappedPushes(pushes=1, share=0.5)})
    reply = pb.StatusReply(
        workers=[pb.WorkerStatus(worker="worker-1", figures={"capped": 1})], servers=[pb.ServerStatus(figures=figures)]
    )

    found = json.loads(json.dumps(plain(reply)))

    assert found["workers"][0]["figures"] == {"capped": 1}
    assert found["servers"][0]["figures"]["capped"] == {"worker-1": {"pushes": 1, "share": 0.5}}


@pytest.mark.parametrize("value", [None, 3, {}, {"phase": "training"}, plain(status(1, 1)) | {"workers": [{}]}])
def test_what_is_no_status_is_none(value: Any) -> None:
    assert look_of(value) is None


LIVES = st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=6), min_size=1, max_size=5)
"""Of each process what it counts until each look, and whether it is heard at that look."""


@given(LIVES)
def test_processes_with_numbers_add_up_however_much_they_count_before_they_are_looked_at(
    lives: list[list[tuple[int, bool]]],
) -> None:
    counters, total = Counters(), 0
    for start, life in enumerate(lives, 1):
        count = seen = 0
        for more, is_heard in life:
            count += more
            counters.add("worker-0", start, {"steps": count} if is_heard else {})
            seen = count if is_heard else seen
        total += seen
    assert counters.sums["worker-0"].get("steps", 0) == counters.total("steps") == total


@pytest.mark.parametrize("start", [0, 1])
def test_without_a_number_a_smaller_count_is_another_process_and_with_one_it_is_not(start: int) -> None:
    counters = Counters()
    for steps in (10, 4, 6):
        counters.add("worker-0", start, {"steps": steps, "sent": 100})
    assert counters.sums["worker-0"] == ({"steps": 12, "sent": 100} if start else {"steps": 16, "sent": 200})


def test_what_was_counted_before_it_began_is_left_out() -> None:
    counters = Counters()
    assert "server-0" not in counters
    counters.begin("server-0", 1, {"seconds": 30})
    assert "server-0" in counters
    counters.add("server-0", 1, {"seconds": 32})
    counters.add("server-0", 2, {"seconds": 40})
    assert counters.sums == {"server-0": {"seconds": 42}}
