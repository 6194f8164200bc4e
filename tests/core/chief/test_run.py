"""The life of a run: waiting, training, stopping, scoring, finished; budgets, time-outs and restarts of the chief."""

import json
import math
from typing import Any

import pytest

from paceline.core.chief.budget import Milestones
from paceline.core.chief.leases import NOTHING, Lease, Wish
from paceline.core.chief.other_servers import OtherServers
from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.chief.scoring import Score
from paceline.core.chief.workers import ENDED_EARLY, WorkerReport
from paceline.core.errors import ConfigError, DataError, Fenced, NotYet
from paceline.core.policies.clocks import Clocks
from paceline.core.settings.config import Config, Options

FACTS = (100, 10, "digest")


def config(**settings: Any) -> Config:
    return Config(**({"workers": 2, "epochs": 2, "policy": Options(name="asp")} | settings))


def started(*workers: str, **settings: Any) -> tuple[Run, Clocks]:
    """A run whose workers are seated, with the clocks of the chief's slice."""
    run, clocks = Run(config(**({"workers": len(workers)} | settings))), Clocks()
    run.ready(0.0)
    for worker in workers:
        run.seat(worker, run.join(worker, False, *FACTS, 0.0), 0, lambda: clocks, 0.0)
    clocks.take_view(run.membership.view)
    return run, clocks


def test_a_run_waits_for_its_workers_and_says_for_whom():
    run, clocks = Run(config(workers=3)), Clocks()
    run.ready(0.0)
    run.join("worker-1", False, *FACTS, 0.0)
    incarnation = run.join("worker-0", False, *FACTS, 0.0)

    assert run.seat("worker-0", incarnation, 0, lambda: clocks, 0.0) is False
    assert run.missing() == ["2 of 3 workers (ready: worker-0; joining: worker-1)"]
    assert run.phase is RunPhase.WAITING


def test_a_run_waits_for_the_evaluators_data():
    run, clocks = Run(config(workers=1)), Clocks()
    incarnation = run.join("a", False, *FACTS, 0.0)

    assert run.seat("a", incarnation, 0, lambda: clocks, 0.0) is False
    assert run.missing() == ["the evaluator's data"]

    run.ready(1.0)
    assert run.phase is RunPhase.TRAINING
    assert run.seat("a", incarnation, 0, lambda: clocks, 1.0) is True
    assert run.phases.seconds(5.0) == 4.0


def test_a_run_starts_with_as_many_as_are_enough_or_with_those_who_came_after_its_time_out():
    assert started("a", "b", workers=3, start_when=2)[0].phase is RunPhase.TRAINING
    run, clocks = Run(config(workers=2, start_timeout=60)), Clocks()
    run.ready(0.0)
    incarnation = run.join("a", False, *FACTS, 0.0)
    run.seat("a", incarnation, 0, lambda: clocks, 0.0)

    for now in range(62):
        run.seat("a", incarnation, 0, lambda: clocks, float(now))
        run.tick(float(now))

    assert run.phase is RunPhase.TRAINING
    assert set(run.membership.view.seats) == {"a"}


def test_the_time_out_counts_from_the_first_worker_on_since_the_data_may_have_taken_longer():
    run, clocks = Run(config(workers=2, start_timeout=60)), Clocks()
    run.tick(0.0)
    run.tick(100.0)
    run.ready(100.0)
    incarnation = run.join("a", False, *FACTS, 100.0)

    run.seat("a", incarnation, 0, lambda: clocks, 100.0)
    run.tick(100.2)

    assert run.phase is RunPhase.WAITING


def test_the_budget_ends_the_run_with_a_view_that_names_clocks():
    run, clocks = started("a", "b")
    clocks.examples = 199
    clocks.entry("a").clock = 7
    run.counted(clocks, 5.0)
    assert run.phase is RunPhase.TRAINING

    clocks.examples = 200
    run.counted(clocks, 6.0)

    assert (run.phase, run.reason, run.budget.epoch) == (RunPhase.STOPPING, "the budget of epochs is spent", 2)
    assert {worker: seat.last for worker, seat in run.membership.view.seats.items()} == {"a": 8, "b": 1}


def test_in_rounds_the_end_is_named_in_advance_so_that_the_run_trains_exactly_its_epochs():
    run, clocks = started("a", "b", policy=Options(name="bsp"))

    for number in range(1, 9):  # of the ten rounds of 20 examples in two epochs
        for worker, clocks.version in (("a", number - 1), ("b", number)):
            clocks.examples += 10
            clocks.entry(worker).clock = number
            if worker == "b":
                clocks.close_round()
            run.counted(clocks, 5.0)
        assert (run.phase is RunPhase.STOPPING) == (number == 8)

    assert {seat.last for seat in run.membership.view.seats.values()} == {10}


def test_the_budget_is_that_of_the_slice_that_got_the_least_of_workers_that_are_gone():
    run, clocks = started("a", servers=3)
    clocks.examples, clocks.gone = 1000, 500
    view = run.membership.view.number

    for server, gone in ((1, 200), (2, 450)):
        run.other_servers.acknowledged(server, 1, view, 0, gone=gone)
    run.counted(clocks, 1.0)

    assert run.budget.examples == 700


def test_a_run_with_a_budget_per_worker_ends_when_all_have_left():
    run, _ = started("a", "b", budget="per_worker")

    run.leave("a", 1, True, 1.0)
    assert run.phase is RunPhase.TRAINING
    run.leave("b", 1, True, 2.0)

    assert (run.phase, run.reason) == (RunPhase.SCORING, "every worker has finished its epochs")


def test_a_run_says_whose_loop_ended_early_and_what_that_left_out():
    run, _ = started("a", "b", budget="per_worker", epochs=9)
    for worker, figures in (("a", {}), ("b", {ENDED_EARLY: 1.0})):
        run.beat(worker, 1, WorkerReport(1, "finished", figures=figures), 1.0)

    run.leave("b", 1, True, 1.0)
    run.leave("a", 1, True, 2.0)

    left_out = "900 of all workers' 900 examples were left out"
    assert run.reason == f"every worker has finished its epochs, b by leaving its loop early; {left_out}"


@pytest.mark.parametrize(
    ("budget", "has_finished", "who", "left_out"),
    [
        ("per_worker", False, " but b", "; 900 of all workers' 900 examples were left out"),
        ("total", True, "", ""),
    ],
)
def test_a_run_is_over_with_its_last_worker_and_says_who_was_gone_before_its_end(budget, has_finished, who, left_out):
    run, _ = started("a", "b", budget=budget, epochs=9, start_timeout=30)

    run.leave("b", 1, has_finished, 1.0)
    run.leave("a", 1, True, 32.0 if budget == "per_worker" else 2.0)

    assert (run.phase, run.reason) == (RunPhase.SCORING, f"every worker{who} has finished its epochs{left_out}")


@pytest.mark.parametrize("budget", ["total", "per_worker"])
def test_a_worker_that_is_told_to_stop_after_all_others_have_finished_is_waited_for(budget: str):
    run, clocks = started("a", "b", budget=budget, epochs=9)
    run.leave("a", 1, True, 1.0)
    run.stop_signal("b", 1, 2.0)
    run.leave("b", 1, False, 2.5, was_told=True)
    assert (run.phase, run.awaited(3.0)) == (RunPhase.TRAINING, ["b"])
    again = Run(run.config)

    again.restore(json.loads(json.dumps(run.state())), 500.0)
    for now in (500.0, 510.0, 790.0):
        again.tick(now)
    assert again.seat("b", again.join("b", False, *FACTS, 790.0), 0, lambda: clocks, 791.0) is True
    assert again.awaited(791.0) == []
    again.leave("b", 2, True, 900.0)

    assert (again.phase, again.reason) == (RunPhase.SCORING, "every worker has finished its epochs")


def test_without_servers_nobody_has_the_model_for_a_worker_that_would_come_back():
    run, _ = started("a", "b", epochs=9, servers=0, policy=Options(name="allreduce"))
    run.leave("b", 1, False, 1.0)
    run.leave("a", 1, True, 2.0)

    assert (run.phase, run.awaited(2.0)) == (RunPhase.SCORING, [])


def test_a_worker_on_the_way_to_its_seat_is_waited_for_as_long_as_it_is_heard_of():
    run, _ = started("a", "b", epochs=9, start_timeout=30, lease=15)
    run.leave("b", 1, False, 1.0)
    run.leave("a", 1, True, 2.0)
    run.join("b", False, *FACTS, 20.0)

    for now in (30.0, 33.0, 40.0):
        run.beat("b", 2, WorkerReport(phase="joining"), now)
        run.tick(now)
        assert run.awaited(now) == ["b"]
    run.tick(47.0)
    run.tick(54.0)
    run.tick(55.1)

    assert run.phase is RunPhase.SCORING


def test_a_run_that_loses_all_its_workers_waits_for_others():
    run, _ = started("a", budget="per_worker")

    run.leave("a", 1, False, 1.0)

    assert run.phase is RunPhase.TRAINING


@pytest.mark.parametrize("back_at", [None, 5.0], ids=["the same chief", "a restarted one"])
def test_a_run_that_all_have_left_waits_for_those_who_did_not_finish(back_at: float | None):
    run, _ = started("a", "b", epochs=9, start_timeout=30)
    run.leave("a", 1, True, 1.0)
    run.leave("b", 1, False, 2.0)
    if back_at:
        state, run = json.loads(json.dumps(run.state())), Run(run.config)
        run.restore(state, back_at)
    began = back_at or 2.0

    for now in (0.0, 7.0, 30.0):
        run.tick(began + now)
        assert run.phase is RunPhase.TRAINING
    run.tick(began + 30.1)

    assert run.phase is RunPhase.SCORING
    assert run.reason.startswith("every worker but b has finished its epochs")


def test_a_worker_that_is_replaced_finds_the_run_going_on_and_the_next_wait_begins_anew():
    run, clocks = started("a", "b", epochs=9, start_timeout=30)
    run.leave("a", 1, True, 1.0)
    run.leave("b", 1, False, 2.0)

    assert run.seat("b", run.join("b", False, *FACTS, 10.0), 0, lambda: clocks, 10.0) is True
    run.tick(17.0)
    run.leave("b", 2, False, 18.0)
    run.tick(24.0)
    run.tick(48.0)
    assert run.phase is RunPhase.TRAINING
    run.tick(48.1)

    assert run.phase is RunPhase.SCORING


def test_the_run_is_finished_when_the_final_version_is_scored():
    run, clocks = started("a")
    run.stop("asked to", lambda: clocks, 5.0)
    run.leave("a", 1, True, 6.0)
    assert run.due_score() is None, "server 1 has not said yet that it has the last view"
    run.other_servers.acknowledged(1, 1, run.membership.view.number, 0)
    assert run.due_score() == (0, True)
    assert run.phases.seconds(99.0) == 6.0

    run.score(Score(0, 6.0, [1], {"test_accuracy": 0.9}, final=False), 7.0)
    assert run.phase is RunPhase.SCORING
    run.score(Score(0, 6.0, [1], {"test_accuracy": 0.9}, final=True), 8.0)

    assert run.phase is RunPhase.FINISHED


def test_the_first_worker_that_is_there_scores_between_epochs_where_no_evaluator_does():
    run, clocks = started("worker-0", "worker-1", epochs=9, scored_by="worker", data={"source": "script"}, task="a.py")
    run.budget.examples = 2 * run.budget.examples_per_epoch - 1

    assert (run.workers.first, run.due_score(), run.due_midway(3)) == ("worker-0", None, 2)
    run.score(Score(2, 1.0, [1], {}), 1.0)
    assert run.due_midway(4) is None, "this one has been scored"
    run.leave("worker-0", 1, False, 2.0)
    assert run.workers.first == "worker-1"
    run.stop("asked to", lambda: clocks, 5.0)
    run.leave("worker-1", 1, True, 6.0)
    run.other_servers.acknowledged(1, 1, run.membership.view.number, 0)

    assert (run.workers.first, run.due_score()) == ("worker-1", (1, True))


def test_a_score_is_of_the_workers_own_epoch_though_others_have_pushed_for_the_next_round():
    script = {"scored_by": "worker", "data": {"source": "script"}, "task": "a.py", "budget": "per_worker"}
    run, _ = started("worker-0", "worker-1", epochs=9, **script)
    run.budget.examples = run.budget.examples_per_epoch * 3 // 2

    assert run.due_midway(1) == 1
    run.score(Score(1, 1.0, [1], {}), 1.0)
    assert (run.due_midway(1), run.due_midway(2), run.due_midway(9)) == (None, 2, None)


def test_a_run_that_nobody_scores_finishes_and_says_so():
    run, clocks = started("a", score_timeout=30)
    run.stop("asked to", lambda: clocks, 5.0)
    run.leave("a", 1, True, 6.0)

    run.tick(37.0)

    assert (run.phase, run.reason) == (RunPhase.FINISHED, "asked to; unscored: no score came in time")


def test_scores_are_due_at_epoch_ends_and_skips_are_counted():
    run, clocks = started("a", epochs=9)
    assert run.due_score() == (0, False)
    run.score(Score(0, 0.0, [0], {}), 0.0)
    assert run.due_score() is None

    clocks.examples = 310
    run.counted(clocks, 1.0)
    assert run.due_score() == (3, False)
    run.score(Score(3, 1.0, [9], {}), 2.0)

    assert run.scoring.skipped == 2


def test_nobody_new_is_seated_while_the_run_stops():
    run, clocks = started("a", workers=2, start_when=1)
    run.stop("asked to", lambda: clocks, 1.0)

    assert run.seat("b", run.join("b", False, *FACTS, 2.0), 0, lambda: clocks, 2.0) is False


def test_a_worker_whose_lease_lapses_while_the_run_stops_does_not_keep_it():
    run, clocks = started("a")
    run.stop("asked to", lambda: clocks, 1.0)

    for now in range(2, 20):
        run.tick(float(now))

    assert run.phase is RunPhase.SCORING


def test_a_restarted_chief_goes_on_where_it_was():
    run, clocks = started("a", "b")
    run.score(Score(0, 1.0, [0], {"test_accuracy": 0.1}), 1.0)
    run.phases.checkpoint(8.0)
    state = json.loads(json.dumps(run.state()))

    again = Run(config())
    again.restore(state, 100.0)

    assert (again.phase, again.scoring.scores) == (RunPhase.TRAINING, run.scoring.scores)
    assert again.membership.view == run.membership.view
    assert sorted(again.workers.reports) == ["a", "b"], "members are shown before they beat again"
    assert (again.phases.seconds(102.0), again.phases.waited(103.0)) == (10.0, 3.0)
    assert again.seat("a", 1, 0, lambda: clocks, 100.0) is True
    with pytest.raises(DataError):
        again.join("c", False, 100, 9, "digest", 101.0)


def test_a_chief_that_does_not_know_how_far_its_members_are_neither_seats_nor_stops():
    run, clocks = started("a", workers=2, start_when=1)
    run = restarted(run, is_behind=True)
    run.beat("a", 1, WorkerReport(phase="joining"), 1.0)
    run.beat("a", 1, WorkerReport(phase="compute", reached=7), 1.0, clock=6)
    clocks.examples = 10_000

    run.counted(clocks, 1.0)
    assert run.seat("b", run.join("b", False, *FACTS, 1.0), 0, lambda: clocks, 1.0) is False
    assert run.seat("a", run.join("a", False, *FACTS, 1.0), 0, lambda: clocks, 1.0) is True
    with pytest.raises(NotYet, match=r"ask again in a few seconds"):
        run.stop("asked to", lambda: clocks, 2.0)
    assert run.phase is RunPhase.TRAINING

    run.beat("a", 2, WorkerReport(phase="compute", reached=7), 2.0, clock=7)
    run.counted(clocks, 3.0)
    assert run.phase is RunPhase.STOPPING


def test_a_heartbeat_that_may_be_older_than_the_chiefs_restart_does_not_say_how_far_its_worker_is():
    run, clocks = started("a", workers=2, start_when=1)
    state, run = run.state(), Run(run.config)
    run.restore(state, 1.0)
    clocks.examples = 10_000

    run.beat("a", 1, WorkerReport(phase="compute", reached=6), 1.0, clock=6)
    run.counted(clocks, 1.0)
    assert run.phase is RunPhase.TRAINING

    run.beat("a", 1, WorkerReport(phase="compute", reached=7), 2.0, clock=6)
    run.counted(clocks, 2.0)
    assert run.phase is RunPhase.TRAINING

    run.beat("a", 1, WorkerReport(phase="compute", reached=7), 3.0, clock=7)
    run.counted(clocks, 3.0)
    assert run.phase is RunPhase.STOPPING


def test_a_restarted_chief_remembers_that_a_worker_has_finished():
    run, _ = started("a", "b", budget="per_worker")
    run.leave("a", 1, True, 1.0)
    again = Run(config(budget="per_worker"))
    again.restore(json.loads(json.dumps(run.state())), 2.0)

    again.leave("b", 1, False, 3.0)
    again.tick(303.1)

    assert again.phase is RunPhase.SCORING


def test_a_restarted_chief_that_was_still_waiting_waits_again():
    run = Run(config())
    again = Run(config())

    again.restore(json.loads(json.dumps(run.state())), 5.0)

    assert again.phase is RunPhase.WAITING
    assert again.missing()


# a change of policy
def switched(run: Run, policy: str, clocks: Clocks, **options: Any) -> None:
    run.switch(Options(name=policy, **options), lambda: clocks)
    clocks.take_view(run.membership.view)


def test_policies_whose_servers_remember_nothing_follow_each_other():
    plain = Options(name="sgd", momentum=0, weight_decay=0)
    run, clocks = started("worker-0", optimizer=plain)

    switched(run, "local_sgd", clocks, steps=2)

    assert run.policy == Options(name="local_sgd", steps=2)


def test_a_policy_changes_only_in_training_and_one_at_a_time():
    waiting = Run(config())
    run, clocks = started("worker-0")
    run = restarted(run, is_behind=True)
    for one in (waiting, run):
        with pytest.raises(NotYet, match="Try again while it trains"):
            one.switch(Options(name="ssp"), lambda: clocks)
    run.beat("worker-0", 1, WorkerReport(phase="compute"), 1.0)
    with pytest.raises(ConfigError, match="bound"):
        run.switch(Options(name="ssp", bound=-1), lambda: clocks)
    switched(run, "ssp", clocks)

    with pytest.raises(NotYet, match="or it restarts or changes its policy"):
        run.switch(Options(name="asp"), lambda: clocks)
    run.switched()
    run.switch(Options(name="asp"), lambda: clocks)


def test_a_run_neither_stops_nor_ends_its_budget_while_the_policy_changes():
    run, clocks = started("worker-0", epochs=1)
    switched(run, "ssp", clocks)
    assert restarted(run).policy == Options(name="ssp")
    clocks.examples = 100

    run.counted(clocks, 1.0)
    with pytest.raises(NotYet, match="The policy is just changing"):
        run.stop("asked to", lambda: clocks, 1.0)
    assert run.phase is RunPhase.TRAINING
    run.switched()
    run.counted(clocks, 2.0)

    assert run.phase is RunPhase.STOPPING


def test_a_change_of_policy_ends_once_every_slice_has_made_it():
    run, clocks = started("worker-0")
    switched(run, "ssp", clocks)
    ended = []

    for own, other in ((0, 1), (1, 0), (1, 1), (1, 1)):
        run.other_servers = OtherServers(2)
        run.other_servers.acknowledged(1, 1, 2, other)
        ended.append(run.maybe_switched(own))

    assert ended == [False, False, True, False]


def test_only_rounds_and_only_with_other_servers_stay_open_for_a_view_on_its_way():
    firsts = []
    for settings in ({"policy": Options(name="bsp")}, {"policy": Options(name="bsp"), "servers": 1}, {}):
        run, _ = started("worker-0", **settings)
        run.publish(0)
        run.other_servers.acknowledged(1, 1, run.membership.view.number, 0)
        run.membership.rename_ends(None)
        run.publish(7)
        firsts.append(run.open_from)

    assert firsts == [9, None, None]


def test_a_chief_that_was_started_again_keeps_the_open_round_open_as_a_member_may_begin_after_it():
    run, _ = started("worker-0", policy=Options(name="bsp"))

    run.publish(7)

    assert run.open_from == 8


def test_a_joiner_begins_with_the_version_of_the_round_that_its_view_keeps_open():
    run, clocks = started("a", policy=Options(name="bsp"), workers=3, start_when=1)
    run.publish(0)
    run.other_servers.acknowledged(1, 1, run.membership.view.number, 0)
    clocks.version = 7
    found = []
    for worker in "bc":
        run.seat(worker, run.join(worker, False, *FACTS, 1.0), 0, lambda: clocks, 1.0)
        run.publish(7)
        found.append((run.membership.view.seats[worker].handicap, run.open_from))

    assert found == [(8, 8), (9, 8)]


def test_joiners_wait_until_the_policy_has_changed():
    run, clocks = started("worker-0", workers=2, start_when=1)
    switched(run, "bsp", clocks)
    incarnation = run.join("worker-1", False, *FACTS, 1.0)

    assert not run.seat("worker-1", incarnation, 0, lambda: clocks, 1.0)
    run.switched()
    assert run.seat("worker-1", incarnation, 0, lambda: clocks, 1.0)


def test_a_process_that_was_replaced_takes_its_seat_where_it_has_clocks_left_under_the_old_policy():
    run, clocks = started("worker-0", "worker-1")
    clocks.entry("worker-0").clock = 3
    switched(run, "ssp", clocks)
    first, second = run.join("worker-0", False, *FACTS, 1.0), run.join("worker-1", False, *FACTS, 1.0)

    assert run.seat("worker-0", first, 3, lambda: clocks, 1.0)
    assert not run.seat("worker-1", second, 1, lambda: clocks, 1.0), "it would begin under a policy that ends"
    run.switched()
    assert run.seat("worker-1", second, 1, lambda: clocks, 1.0)


# stopping together
TOGETHER = {
    "updates": "sparse",
    "optimizer": {"name": "sgd", "lr": 0.1},
    "epochs": 99,
    "svm": {"stopping": {"rule": "window", "window": 1}, "stop": "all"},
}


def restarted(run: Run, *, is_behind: bool = False) -> Run:
    """The chief comes back. `is_behind`: and its slice lacks what other slices have."""
    again = Run(run.config)
    again.restore(json.loads(json.dumps(run.state())), 1.0)
    again.counted(Clocks(), 1.0)
    for worker, seat in 2 * [*again.membership.view.seats.items()]:
        again.beat(worker, seat.incarnation, WorkerReport(phase="compute", reached=int(is_behind)), 1.0)
    return again


def test_of_fitted_steps_losses_count_from_the_last_quarter_on():
    svm = {"stopping": {"rule": "delta"}, "stop": "all", "steps": "fitted"}
    run, clocks = started("a", epochs=8, svm=svm)

    for epoch in range(5):
        run.validated("a", epoch, 1.0 + 1e-5 * epoch, 10, lambda: clocks, 1.0)
    assert (run.common_stopping.losses, run.phase) == ([], RunPhase.TRAINING)
    run.validated("a", 5, 0.5, 10, lambda: clocks, 1.0)
    run.validated("a", 6, 0.5001, 10, lambda: clocks, 1.0)

    assert run.common_stopping.losses == [0.5, 0.5001]
    assert run.phase is RunPhase.STOPPING


def test_the_chief_looks_at_its_slice_where_a_score_is_due_and_where_the_run_may_end():
    run, clocks = started("a", "b")
    assert run.milestones == Milestones(math.inf, 200, 0), "the first score is due already"
    run.score(Score(0, 1.0, [0], {}), 1.0)
    assert run.milestones == Milestones(100, 200, 0)

    switched(run, "bsp", clocks)
    assert run.milestones.end == math.inf, "no clocks are named while the policy changes"
    run.switched()
    assert run.milestones == Milestones(100, 200, 2)

    clocks.examples, clocks.round_examples = 100, 49.0
    assert not run.milestones.may_end(clocks)
    clocks.round_examples = 50.0
    assert run.milestones.may_end(clocks)
    run.stop("asked to", lambda: clocks, 2.0)
    assert run.milestones.end == math.inf


def test_an_end_is_looked_for_where_the_slice_that_got_the_least_comes_to_it():
    run, _ = started("a", "b", servers=2)
    run.other_servers.acknowledged(1, 1, run.membership.view.number, 0, gone=10)

    run.trained(150, gone=40, in_round=0.0)

    assert (run.budget.examples, run.milestones.end) == (120, 230)


def test_nobody_waits_for_the_loss_of_a_worker_that_has_left():
    run, clocks = started("a", "b", **TOGETHER)
    run.validated("a", 0, 1.0, 10, lambda: clocks, 1.0)

    run.leave("b", 1, False, 2.0)
    clocks.take_view(run.membership.view)
    run.stop_early(lambda: clocks, 3.0)

    assert run.common_stopping.losses == [1.0]


def test_losses_that_settle_while_the_policy_changes_end_the_run_after_it():
    run, clocks = started("a", **TOGETHER)
    run.validated("a", 0, 1.0, 10, lambda: clocks, 1.0)
    switched(run, "ssp", clocks)

    run.validated("a", 1, 2.0, 10, lambda: clocks, 2.0)
    assert run.phase is RunPhase.TRAINING
    run.switched()
    clocks.take_view(run.membership.view)
    run.validated("a", 2, 0.5, 10, lambda: clocks, 3.0)

    assert run.phase is RunPhase.STOPPING


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("cut", range(1, 6))
def test_a_chief_that_restarts_between_two_losses_stops_by_the_same_ones(cut: int, repeats: bool):
    """`repeats`: the worker did not hear that its last loss had come."""
    run, clocks = started("a", "b", **TOGETHER)
    losses = [("a", 0, 3.0), ("b", 0, 5.0), ("a", 1, 2.0), ("b", 1, 1.0), ("b", 2, 3.0), ("a", 2, 1.0)]
    phases = []

    for number, (worker, epoch, loss) in enumerate(losses):
        if number == cut:
            run = restarted(run)
        if number == cut and repeats:
            run.validated(*losses[cut - 1], 10, lambda: clocks, 1.0)
        run.validated(worker, epoch, loss, 10, lambda: clocks, 1.0)
        phases.append(run.phase)

    assert run.common_stopping.losses == [4.0, 1.5, 2.0]
    assert phases == [RunPhase.TRAINING] * 5 + [RunPhase.STOPPING]
    assert run.reason == "the validation loss has settled at 2"


def test_losses_that_settle_while_the_chief_recovers_end_the_run_once_it_has():
    run, clocks = started("a", "b", **TOGETHER)
    for worker, epoch, loss in (("a", 0, 1.0), ("b", 0, 1.0), ("a", 1, 2.0)):
        run.validated(worker, epoch, loss, 30, lambda: clocks, 1.0)
    run = restarted(run, is_behind=True)

    run.validated("b", 1, 6.0, 10, lambda: clocks, 2.0)
    assert run.phase is RunPhase.TRAINING
    for worker in "ab":
        run.beat(worker, 1, WorkerReport(phase="compute"), 2.0)
    run.stop_early(lambda: clocks, 3.0)

    assert (run.phase, run.reason) == (RunPhase.STOPPING, "the validation loss has settled at 3")


# more epochs than before
def with_epochs(run: Run, epochs: int, clocks: Clocks) -> tuple[Run, bool]:
    """The chief started again with that many, and whether its run, which was over, goes on."""
    again = Run(run.config.model_copy(update={"epochs": epochs}))
    again.restore(json.loads(json.dumps(run.state())), 20.0)
    return again, again.extend(lambda: clocks, 20.0)


def ended(**settings: Any) -> tuple[Run, Clocks]:
    """A finished run of two workers, in which each has made ten pushes."""
    run, clocks = started("a", "b", **settings)
    for worker in ("a", "b"):
        clocks.entry(worker).clock = 10
    clocks.version = 10 if run.membership.rounds else 20
    run.stop("asked to", lambda: clocks, 10.0)
    for worker in ("a", "b"):
        run.leave(worker, 1, True, 11.0)
    run.score(Score(2, 11.0, [clocks.version], {}, final=True), 12.0)
    assert run.phase is RunPhase.FINISHED
    return run, clocks


@pytest.mark.parametrize("policy", ["asp", "bsp"])
def test_a_finished_run_with_more_epochs_waits_for_its_workers_and_starts_them_where_they_were(policy: str):
    run, clocks = ended(policy=Options(name=policy))

    again, goes_on = with_epochs(run, 5, clocks)

    assert goes_on
    assert (again.phase, again.reason, again.scoring.is_ready) == (RunPhase.WAITING, "", False)
    again, _ = with_epochs(again, 5, clocks)
    again.ready(21.0)
    for worker in ("a", "b"):
        again.seat(worker, again.join(worker, False, *FACTS, 21.0), 10, lambda: clocks, 21.0)
    assert again.phase is RunPhase.TRAINING
    assert {seat.incarnation for seat in again.membership.view.seats.values()} == {2}
    level = {10 + seat.handicap for seat in again.membership.view.seats.values()}
    assert level == ({clocks.version} if policy == "bsp" else {0})
    assert again.extend(lambda: clocks, 22.0) is False


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_finished_run_without_more_epochs_stays_finished(epochs: int):
    run, clocks = ended()

    again, goes_on = with_epochs(run, epochs, clocks)

    assert (goes_on, again.phase) == (False, RunPhase.FINISHED)


def test_a_run_that_is_stopping_stops_before_it_goes_on_with_more_epochs():
    run, clocks = started("a")
    run.stop("asked to", lambda: clocks, 10.0)

    again, goes_on = with_epochs(run, 5, clocks)
    assert (goes_on, again.phase) == (False, RunPhase.STOPPING)
    again.leave("a", 1, True, 21.0)

    assert again.extend(lambda: clocks, 21.0) is True
    assert again.phase is RunPhase.WAITING


def test_a_run_that_trains_with_more_epochs_names_its_workers_later_last_clocks():
    run, clocks = started("a", "b", budget="per_worker")
    assert {seat.last for seat in run.membership.view.seats.values()} == {20}

    again, goes_on = with_epochs(run, 5, clocks)

    assert (goes_on, again.phase) == (False, RunPhase.TRAINING)
    assert {seat.last for seat in again.membership.view.seats.values()} == {50}
    assert again.membership.view.number == run.membership.view.number + 1


def test_who_is_above_the_norm_cap_is_judged_until_the_first_worker_has_finished() -> None:
    run, _ = started("a", "b", "c", push_norm_cap=1.0)
    run.capped({"c": 1.0})
    assert [each.said[:3] for each in run.warnings.listed] == ["c: "]

    run.leave("c", 1, True, 1.0)
    run.capped({"a": 1.0, "c": 1.0})

    assert [(each.said[:3], each.passed) for each in run.warnings.listed] == [("c: ", False)]


# leases
def test_a_run_leases_to_members_alone_and_a_restarted_chief_gives_the_same():
    run, clocks = started("a", "b")
    incarnation = run.membership.incarnations["a"]
    first = run.lease(Wish("a", 0, 1, 3), incarnation, lambda: clocks)
    with pytest.raises(Fenced, match="has no seat"):
        run.lease(Wish("a", 0, 1, 3), incarnation + 1, lambda: clocks)

    again, _ = started("a", "b")
    again.restore(json.loads(json.dumps(run.state())), 0.0)

    assert first == Lease(0, 0, 0, 3)
    assert again.lease(Wish("a", 1, 1, 3), incarnation, lambda: clocks) == first


def test_the_rest_of_a_worker_that_has_left_is_free_once_all_servers_know_how_far_it_was():
    run, clocks = started("a", "b", servers=2, epochs=1)
    incarnations = run.membership.incarnations
    run.lease(Wish("b", 0, 1, 10), incarnations["b"], lambda: clocks)
    run.leave("b", incarnations["b"], False, 1.0)
    view = run.membership.view.number

    run.other_servers.acknowledged(1, 1, view - 1, 0, 0, {})
    run.leasing.free({"b": 2})
    assert run.lease(Wish("a", 0, 1, 1), incarnations["a"], lambda: clocks).stream == 0
    run.other_servers.acknowledged(1, 1, view, 0, 0, {"b": 1})
    run.leasing.free({"b": 2})

    assert run.leasing.lacks == 1
    assert run.lease(Wish("a", 1, 1, 1), incarnations["a"], lambda: clocks) == Lease(1, 1, 1, 2, 1, has=(0,))


def test_in_rounds_the_end_waits_for_what_one_member_has_still_to_do():
    run, clocks = started("a", "b", policy=Options(name="bsp"), epochs=1)
    incarnations = run.membership.incarnations
    for worker in ("a", "b"):
        run.lease(Wish(worker, 0, 1, 10), incarnations[worker], lambda: clocks)
        clocks.entry(worker).clock = 7
    clocks.version, clocks.examples = 7, 100  # as if pushes had been larger than they are now

    run.counted(clocks, 1.0)
    assert run.phase is RunPhase.TRAINING
    for worker in ("a", "b"):
        clocks.entry(worker).clock = 8
    clocks.version = 8
    run.counted(clocks, 2.0)

    assert run.phase is RunPhase.STOPPING
    assert {seat.last for seat in run.membership.view.seats.values()} == {10}


def test_without_leases_the_end_says_what_a_worker_has_taken_along():
    run, clocks = started("a", "b")
    run.leave("b", run.membership.incarnations["b"], False, 1.0)
    clocks.take_view(run.membership.view)
    clocks.examples, clocks.entry("b").examples = 200, 30

    run.counted(clocks, 2.0)

    assert "nobody has trained the rest of b's 100 examples, which left after 30" in run.reason


def test_rows_beyond_the_epochs_never_replace_what_a_worker_has_left_undone():
    run, _ = started("a", "b", servers=2)
    run.lease(Wish("b", 0, 1, 3), 1, Clocks)
    run.leave("b", 1, False, 1.0)

    rows, after = set[tuple[int, int]](), 0
    for _ in range(100):
        lease = run.lease(Wish("a", after, 1, 100), 1, Clocks)
        rows |= {(lease.stream, row) for row in range(lease.start, lease.stop) if lease.stream != NOTHING}
        after = lease.end

    assert rows == {(stream, row) for stream in (0, 1) for row in range(20)} - {(1, 0), (1, 1), (1, 2)}

    run.other_servers.acknowledged(1, term=1, view=run.membership.view.number, switch=0)
    run.leasing.free({})

    lease = run.lease(Wish("a", after, 1, 100), 1, Clocks)
    assert (lease.stream, lease.start) == (1, 0)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_chief_that_is_back_does_not_end_a_run_in_rounds_before_all_rows_are_done(leaves):
    run, clocks = started("a", "b", policy=Options(name="bsp"))
    for worker in ("a", "b"):
        run.lease(Wish(worker, 0, 1, 20 if leaves else 10), 1, lambda: clocks)
        clocks.table[worker].clock = 19 if leaves else 10
    if leaves:
        run.leave("b", 1, False, 1.0)
        clocks.take_view(run.membership.view)
    clocks.version, clocks.examples = 19, 200

    restored = Run(run.config)
    restored.restore(json.loads(json.dumps(run.state())), 2.0)
    restored.counted(clocks, 2.0)

    assert restored.phase is RunPhase.TRAINING


@pytest.mark.parametrize("most", [18, 20])
def test_lock_step_ends_with_the_same_round_however_long_leases_are(most):
    run, clocks = started("a", "b", policy=Options(name="bsp"))
    for worker in ("a", "b"):
        run.lease(Wish(worker, 0, 1, most), 1, lambda: clocks)
        clocks.table[worker].clock = 18
    clocks.version, clocks.examples, clocks.round_examples = 18, 180, 10.0

    run.counted(clocks, 2.0)

    assert {seat.last for seat in run.membership.view.seats.values()} == {20}


def test_in_lock_step_all_make_up_for_examples_that_were_not_learned_from_until_the_last_clock():
    run, clocks = started("a", "b", policy=Options(name="bsp"))
    for worker in ("a", "b"):
        run.lease(Wish(worker, 0, 1, 20), 1, lambda: clocks)
        clocks.table[worker].clock = 20
    clocks.version, clocks.examples, clocks.round_examples = 20, 180, 10.0
    run.counted(clocks, 2.0)

    found = [run.lease(Wish(worker, 20, 1, 20), 1, lambda: clocks) for worker in ("a", "b")]

    assert run.phase is RunPhase.STOPPING
    assert sorted((lease.stream, list(lease.rows(21))) for lease in found) == [(0, [20]), (1, [20])]


def test_leases_of_an_older_policy_count_in_the_clocks_of_the_present_one():
    run, clocks = started("a", policy=Options(name="bsp"), servers=1)
    run.lease(Wish("a", 0, 10, 20), 1, lambda: clocks)
    clocks.table["a"].clock = 1

    assert run.leasing.clocks_left(clocks.marks(), 1) == 10
