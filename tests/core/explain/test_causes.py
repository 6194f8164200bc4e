"""Each cause is named on the right side of its threshold, and no other is named with it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.chief.warnings import RunWarning
from paceline.core.chief.worker_time import WorkerTime
from paceline.core.explain.cause import Finding, causes, finding_of
from paceline.core.explain.evidence import Evidence, ServerTime
from paceline.core.settings.config import Config, Options

MS = 0.001
STEPS = 100


def worker(
    rank: int, compute: float = 20, data: float = 1, exchange: float = 4, wait: float = 0, **more: Any
) -> WorkerTime:
    """Its parts in milliseconds of a step."""
    parts = {"compute": compute, "data": data, "exchange": exchange, "wait": wait}
    spent = {part: STEPS * MS * value for part, value in parts.items()}
    return WorkerTime(f"worker-{rank}", STEPS, **spent, traffic=STEPS * more.pop("traffic", 40e3), **more)


def server(number: int = 0, load: float = 0.05, service: float = 1, **more: Any) -> ServerTime:
    """`service`: milliseconds of a push."""
    return ServerTime(f"server-{number}", 60.0, 60 * load, 60 * load / (service * MS), **{"slice_bytes": 9600} | more)


TWO = (server(0), server(1))


def run(*workers: WorkerTime, servers: Any = TWO, **more: Any) -> Evidence:
    settings = {"workers": max(2, len(workers)), "servers": len(servers), "batch_size": 256, **more.pop("settings", {})}
    policy = Options(name=more.pop("policy", "bsp"), **more.pop("options", {}))
    config = Config(policy=policy, **settings)
    facts = {"seconds": 60.0, "age": 60.0, "members": len(workers)} | more
    return Evidence(config, workers=workers, servers=tuple(servers), **facts)


def named(evidence: Evidence) -> list[str]:
    return [finding.cause for finding in causes(evidence)]


def only(evidence: Evidence) -> Finding:
    (found,) = causes(evidence)
    return found


def four(**last: Any) -> list[WorkerTime]:
    """Three equal workers, and another one."""
    waits = {"wait": last.pop("others_wait", 0)}
    return [*(worker(rank, **waits) for rank in range(3)), worker(3, **last)]


# nothing is wrong
def test_equal_workers_in_lock_step_on_a_busy_machine_are_not_blamed() -> None:
    uneven = [(20, 4, 9), (26, 6, 3), (23, 5, 6), (18, 7, 9)]
    assert not causes(run(*(worker(rank, c, 1, x, w) for rank, (c, x, w) in enumerate(uneven))))


def test_of_a_run_that_has_said_nothing_yet_nothing_is_said() -> None:
    assert not causes(run())
    assert not causes(Evidence(Config()))


# a slow worker
def test_a_slow_worker_is_named_with_what_the_others_wait() -> None:
    found = only(run(*four(compute=100, others_wait=76)))
    assert found.cause == "slow_worker"
    assert str(found) == (
        "cause: 75% of the 3 other workers' time went into waiting for worker-3, whose steps take 5.0 times as long "
        "(100 ms each). Try policy=asp, which waits for nobody."
    )
    assert found.advice.settings == ("policy=asp",)
    assert found.share == pytest.approx(3 * 76 / (3 * 101 + 105))


@pytest.mark.parametrize(
    ("compute", "seconds", "is_named"),
    [(32, 60.0, False), (34, 60.0, True), (42, 10.0, False), (46, 10.0, True), (100, 3.9, False), (100, 4.0, True)],
)
def test_a_worker_is_slow_from_half_as_long_again_on_and_in_a_short_look_from_twice(compute, seconds, is_named) -> None:
    evidence = run(*four(compute=compute, others_wait=compute - 20), seconds=seconds)
    assert (named(evidence) == ["slow_worker"]) is is_named


def test_a_slow_worker_for_which_nobody_waits_costs_its_own_work() -> None:
    found = only(run(*four(compute=100), policy="asp"))
    assert found.said == "nobody waits for worker-3, whose steps take 5.0 times as long (100 ms each)"
    assert found.advice.settings == ("batch=speed",)
    assert found.share == pytest.approx((1 - 25 / 105) / 4)
    many = [worker(rank) for rank in range(31)]
    assert not causes(run(*many, worker(31, compute=100), policy="asp"))


@pytest.mark.parametrize("policy", ["auto", "asp"])
def test_a_script_whose_loader_reads_ahead_is_not_advised_to_deal_by_speed(policy: str) -> None:
    settings = {"data": {"source": "script"}}
    found = only(run(*four(compute=100), policy=policy, settings=settings))
    assert found.advice.settings == ()


def test_several_slow_workers_are_named_together() -> None:
    fast = [worker(rank, wait=76) for rank in range(2)]
    found = only(run(*fast, worker(2, compute=100), worker(3, compute=100)))
    assert "waiting for worker-2 and worker-3, whose" in found.said


def test_without_servers_another_policy_of_peers_is_advised() -> None:
    found = only(run(*four(compute=100, others_wait=76), servers=[], policy="allreduce"))
    assert found.advice.settings == ("policy=adpsgd",)


# links
def test_a_slow_link_of_one_worker_is_named_and_not_the_worker() -> None:
    late = four(exchange=84, others_wait=80, traffic=40e3, has_link=True)
    found = only(run(*late))
    assert found.cause == "slow_link"
    assert found.said == (
        "76% of the 3 other workers' time went into waiting for worker-3, whose pushes and pulls take 21.0 times as long "
        "(84 ms for 39.1 KiB): its network link is slow"
    )
    assert found.advice.settings == ("policy=local_sgd",)


def test_a_push_that_a_frozen_server_held_up_is_no_slow_link_where_there_is_no_network() -> None:
    assert not causes(run(*four(exchange=681, others_wait=0, traffic=40e3)))


def test_large_pushes_over_a_slow_link_are_to_be_coded() -> None:
    found = only(run(*four(exchange=400, others_wait=396, traffic=8e6, has_link=True)))
    assert found.advice.settings == ("codec.push=int8",)


@pytest.mark.parametrize(
    ("exchange", "traffic", "load", "is_named"),
    [
        (400, 8e6, 0.05, True),  # 20 MB/s
        (200, 8e6, 0.05, False),  # 40 MB/s
        (60, 40e3, 0.05, True),  # latency
        (40, 40e3, 0.05, False),
        (400, 8e6, 0.3, False),  # the server has something to do
        (18, 8e6, 0.05, False),  # computing takes longer
    ],
)
def test_a_slow_network_of_all_is_named_where_servers_are_idle(
    exchange: float, traffic: float, load: float, is_named: bool
) -> None:
    all_alike = [worker(rank, exchange=exchange, traffic=traffic, has_link=True) for rank in range(4)]
    assert (named(run(*all_alike, servers=[server(load=load)])) == ["slow_link"]) is is_named
    here = [replace(each, has_link=False) for each in all_alike]
    assert not causes(run(*here, servers=[server(load=load)]))  # on one machine there is no network


# data
def test_slow_data_of_one_worker_is_named_and_not_the_worker() -> None:
    found = only(run(*four(data=81, others_wait=80)))
    assert found.cause == "slow_data"
    assert "waiting for worker-3, which loads its examples 81.0 times as long (81 ms a step)" in found.said


@pytest.mark.parametrize(("data", "is_named"), [(10, False), (11, True)])
def test_slow_data_of_all_are_named_from_a_third_of_the_time_on(data: float, is_named: bool) -> None:
    evidence = run(*(worker(rank, data=data) for rank in range(4)))
    assert (named(evidence) == ["slow_data"]) is is_named


def test_a_script_is_told_to_load_ahead() -> None:
    slow = [worker(rank, data=40) for rank in range(2)]
    assert "prepare() does" in only(run(*slow)).advice.text
    assert "num_workers=4" in only(run(*slow, settings={"data": {"source": "script"}})).advice.text


# servers
@pytest.mark.parametrize(
    ("load", "service", "exchange", "is_named"),
    [
        (0.65, 1, 40, True),  # no time left
        (0.55, 1, 40, False),
        (0.4, 8, 40, True),  # 4 pushes take 32 ms, a step 30 of CPU time
        (0.4, 7, 40, False),
        (0.65, 1, 12, False),  # exchanges don't matter
    ],
)
def test_a_busy_server_is_named(load: float, service: float, exchange: float, is_named: bool) -> None:
    busy = [server(load=load, service=service, slice_bytes=16_000_000)]
    evidence = run(*(worker(rank, exchange=exchange, cpu=STEPS * 0.03) for rank in range(4)), servers=busy)
    assert (named(evidence) == ["busy_server"]) is is_named
    if is_named:
        assert only(evidence).advice.settings == ("servers=2",)


@pytest.mark.parametrize(("seconds", "is_named"), [(3.9, False), (4.0, True)])
def test_a_server_is_not_judged_by_a_run_of_a_few_seconds(seconds: float, is_named: bool) -> None:
    evidence = run(*(worker(rank, exchange=40) for rank in range(4)), servers=[server(load=0.9)], seconds=seconds)
    assert (named(evidence) == ["busy_server"]) is is_named
    if is_named:  # by many small pushes
        assert only(evidence).advice.settings == ("policy=local_sgd",)


@pytest.mark.parametrize(("first", "exchange", "is_named"), [(7.4e6, 20, False), (7.6e6, 20, True), (7.6e6, 6, False)])
def test_a_slice_that_is_too_large_is_named_and_not_its_server(first: float, exchange: float, is_named: bool) -> None:
    servers = [server(0, 0.7, slice_bytes=int(first)), server(1, 0.2, slice_bytes=int(10e6 - first))]
    alike = [worker(rank, exchange=exchange) for rank in range(4)]
    evidence = run(*alike, servers=servers, settings={"plan": {"slices": "layerwise"}})
    assert ("large_slice" in named(evidence)) is is_named
    if is_named:
        found = only(evidence)
        assert "server-0 holds 7.2 MiB of the model's 9.5 MiB, 1.5 times its share" in found.said
        assert found.advice.settings == ("plan.slices=memorywise",)


def test_what_makes_a_slice_large_is_what_is_to_be_changed() -> None:
    servers = [server(0, slice_bytes=9_000_000), server(1, slice_bytes=1_000_000)]
    alike = [worker(rank, exchange=20) for rank in range(4)]
    limited = run(*alike, servers=servers, settings={"plan": {"max_slice_bytes": 5_000_000}})
    assert "lower plan.max_slice_bytes" in only(limited).advice.text
    assert only(run(*alike, servers=servers)).advice.text == "fewer servers"


def test_small_slices_may_be_as_uneven_as_they_like() -> None:
    servers = [server(0, slice_bytes=9_000), server(1, slice_bytes=1_000)]
    assert not causes(run(*(worker(rank, exchange=20) for rank in range(4)), servers=servers))


# mini-batches
@pytest.mark.parametrize(
    ("batch", "exchange", "is_named"), [(4, 5, True), (4, 1.5, False), (32, 5, True), (36, 5, False)]
)
def test_mini_batches_that_are_too_small_are_named(batch: int, exchange: float, is_named: bool) -> None:
    tiny = [worker(rank, compute=1.5, data=0.1, exchange=exchange) for rank in range(4)]
    evidence = run(*tiny, servers=[server(load=0.5)], settings={"batch_size": batch}, policy="asp")
    assert (named(evidence) == ["small_batch"]) is is_named
    if is_named:
        assert only(evidence).advice.settings == (f"batch_size={8 * batch}",)


def test_a_script_that_draws_its_own_mini_batches_is_not_blamed_for_their_size() -> None:
    tiny = [worker(rank, compute=1.5, data=0.1, exchange=5) for rank in range(4)]
    script = {"data": {"source": "script"}, "batch_size": 4}
    assert not causes(run(*tiny, servers=[server()], settings=script))


def test_a_linear_model_is_to_push_less_often() -> None:
    tiny = [worker(rank, compute=1.5, data=0.1, exchange=5) for rank in range(4)]
    sparse = {"updates": "sparse", "batch_size": 4, "svm": {"batches": 2}}
    assert only(run(*tiny, settings=sparse, policy="asp")).advice.settings == ("svm.batches=16",)


# the disk
WHY = "Can't write a snapshot: No space left on device."


def test_a_full_disk_is_named_first() -> None:
    full = [server(0, disk_trouble=WHY, disk_works=False), server(1)]
    found = causes(run(*four(compute=100, others_wait=76), servers=full, is_now=True))
    assert [each.cause for each in found] == ["full_disk", "slow_worker"]
    assert found[0].said.startswith(f"server-0 can't keep what is trained ({WHY.rstrip('.')});")


def test_a_disk_that_was_full_for_a_while_is_named_last_and_only_afterwards() -> None:
    was_full = [server(0, disk_trouble=WHY, disk_seconds=20.4), server(1)]
    evidence = run(*four(compute=100, others_wait=76), servers=was_full)
    found = causes(evidence)
    assert [each.cause for each in found] == ["slow_worker", "full_disk"]
    assert found[1].said == (
        "for 20 s server-0 could not keep what was trained (Can't write a snapshot: No space left on device), and then it "
        "could again; snapshots of that time are missing, and workers kept their pushes until there was one again"
    )
    assert named(replace(evidence, is_now=True)) == ["slow_worker"]


def test_a_disk_that_was_full_to_the_end_endangers_what_is_kept() -> None:
    full = [server(number, disk_trouble=WHY, disk_seconds=20.4 + number, disk_works=False) for number in range(2)]
    found = only(run(*four(), servers=full))
    assert found.said.startswith("for 21 s server-0 and server-1 could not keep what was trained, to the end (")
    assert (found.share, found.advice.text) == (1.0, "to make room on that disk before you resume the run")


# what is learned
def warned(kind: str, *settings: str, passed: bool = False) -> RunWarning:
    return RunWarning(kind, "training explodes", "less", list(settings), 0.5, passed)


@pytest.mark.parametrize(
    ("warning", "is_named"),
    [
        (warned("exploding", "optimizer.lr=0.001"), True),
        (warned("exploding", "optimizer.lr=0.001", passed=True), False),
        (warned("majority_class", "optimizer.lr=10"), False),  # a higher one is advised
        (warned("dropped", "batch=speed"), False),
        (warned("other_bits"), False),
    ],
)
def test_a_rate_that_is_too_high_is_named_by_what_the_run_warns_of(warning: RunWarning, is_named: bool) -> None:
    found = causes(run(*four(), warnings=(warning,)))
    assert [each.cause for each in found] == ["high_rate"] * is_named
    for each in found:
        assert each.said == "the rate is too high: training explodes"
        assert each.is_warned


@pytest.mark.parametrize(
    ("reading", "alpha", "is_named"),
    [("difference", 0.25, True), ("difference", 0.5, False), ("complement", 0.25, False)],
)
def test_an_alpha_at_its_floor_is_named_where_formula_and_figures_agree(
    reading: str, alpha: float, is_named: bool
) -> None:
    alike = [worker(rank, alpha=alpha) for rank in range(3)]
    found = causes(run(*alike, policy="shat", options={"reading": reading}))
    assert [each.cause for each in found] == ["alpha_floor"] * is_named
    for each in found:
        assert "at its floor, policy.alpha_min: 0.25: with any staleness a worker takes 0.25" in each.said


# restarts
@pytest.mark.parametrize(
    ("restarts", "age", "is_named"),
    [({"worker-1": 3}, 60, True), ({"worker-1": 2}, 60, False), ({"worker-1": 2, "server-0": 1}, 1900, False)],
)
def test_frequent_restarts_are_named(restarts: dict[str, int], age: float, is_named: bool) -> None:
    found = causes(run(*four(), restarts=restarts, age=float(age)))
    assert [each.cause for each in found] == ["restarts"] * is_named
    assert not any("memory" in str(each) for each in found), "nobody knows it here"
    for each in found:
        assert "started again 3 times in 60 s (worker-1 3)" in each.said
        assert "logs/worker-1.log" in each.advice.text


# all of them
@given(
    st.lists(st.tuples(*[st.floats(0, 1e3)] * 4, st.floats(0, 1e9)), min_size=1, max_size=6),
    st.sampled_from(["bsp", "asp", "shat", "local_sgd"]),
    st.floats(0, 4),
    st.floats(0, 1e4),
)
def test_with_any_figures_no_worker_is_named_twice_and_shares_are_shares(
    parts: list[tuple[float, ...]], policy: str, load: float, service: float
) -> None:
    workers = [worker(rank, *times[:4], traffic=times[4]) for rank, times in enumerate(parts)]
    pushing = replace(server(load=load), pushes=1e3 / (service + 1))
    found = causes(run(*workers, servers=[pushing, server(1)], policy=policy))
    assert all(0 < each.share <= 1 for each in found)
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)
    assert sum("waiting for worker-" in each.said or "nobody waits for" in each.said for each in found) <= 1


def test_a_finding_comes_back_from_its_plain_values() -> None:
    from dataclasses import asdict

    found = only(run(*four(compute=100, others_wait=76)))
    assert finding_of(asdict(found)) == found
