"""What is said of a run that goes on but does not learn: by what workers and the evaluator report; stragglers."""

import json
import math
from typing import Any

import pytest

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.chief.scoring import Score
from paceline.core.chief.straggler import slow_workers, straggler
from paceline.core.chief.warnings import OTHER_BITS, Kind, Warnings
from paceline.core.chief.workers import WorkerReport
from paceline.core.policies.clocks import Clocks
from paceline.core.settings.config import Config, Options

MEMBERS = ("worker-0", "worker-1")
BALANCED = {"train_loss": 2.3, "train_majority": 0.1, "train_examples": 1000}
BALANCED |= {"validation_majority": 0.1, "validation_examples": 200}


def config(**settings: Any) -> Config:
    sgd = Options(name="sgd", lr=0.1, momentum=0.0)
    return Config(**({"workers": 2, "optimizer": sgd, "epochs": 10} | settings))


def watching(baseline: dict[str, float] = BALANCED, **settings: Any) -> Warnings:
    watch = Warnings(config(**settings))
    watch.begins_with(baseline)
    return watch


def metrics(loss: float, train: float = 0.9, validation: float = 0.9, **more: float) -> dict[str, float]:
    return {"train_loss": loss, "train_accuracy": train, "validation_accuracy": validation, **more}


def kinds(watch: Warnings) -> dict[str, bool]:
    """Of all warnings: whether each has passed."""
    return {each.kind: each.passed for each in watch.listed}


# the loss
def test_a_loss_above_its_start_at_the_end_of_an_epoch_is_told_with_a_lower_rate() -> None:
    watch = watching()
    watch.scored(metrics(4.6), 1, 100, final=False)

    (found,) = watch.listed
    assert str(found) == (
        "warning: after epoch 1 the loss is 4.6, above the 2.3 that it began with. Try optimizer.lr=0.01 (it is 0.1), "
        "or inputs of about -1 to 1, if some are large."
    )
    assert (found.kind, found.settings, found.epoch) == ("loss_above_start", ["optimizer.lr=0.01"], 1)


MEAN_MODEL = {"mean_train_loss": 0.4, "mean_train_accuracy": 0.9, "mean_validation_accuracy": 0.9}


@pytest.mark.parametrize(
    ("baseline", "found", "epoch", "steps", "final"),
    [
        pytest.param(BALANCED, metrics(2.5), 1, 100, False, id="a loss only a little above its start"),
        pytest.param(BALANCED, metrics(math.inf, 0.1, 0.1), 0, 100, False, id="before the first epoch has ended"),
        pytest.param(BALANCED, metrics(9.0, 0.1, 0.1, **MEAN_MODEL), 3, 100, True, id="a better mean model"),
        pytest.param(BALANCED, metrics(1.5, 0.5, 0.1), 2, 200, True, id="learning on the training data alone"),
        pytest.param({"train_loss": 2.3}, metrics(1.0, 0.0, 0.0), 5, 500, True, id="labels that are no classes"),
    ],
)
def test_nothing_is_told_where_nothing_is_wrong(baseline, found, epoch: int, steps: int, final: bool) -> None:
    watch = watching(baseline)
    watch.scored(found, epoch, steps, final=final)
    assert watch.listed == []


def test_a_negative_loss_may_rise_by_a_tenth_of_its_size() -> None:
    watch = watching({"train_loss": -10.0})
    watch.scored({"train_loss": -9.5}, 1, 100, final=False)
    assert watch.listed == []
    watch.scored({"train_loss": -8.5}, 2, 100, final=False)
    assert kinds(watch) == {"loss_above_start": False}


def test_a_loss_that_comes_down_again_has_passed_and_what_is_seen_later_is_what_is_told() -> None:
    watch = watching()
    for epoch, loss in ((1, 4.6), (2, 6.9)):
        watch.scored(metrics(loss), epoch, 100, final=False)
    assert "after epoch 2 the loss is 6.9" in watch.listed[0].said
    assert watch.listed[0].epoch == 1

    watch.scored(metrics(0.5), 3, 100, final=True)
    assert kinds(watch) == {"loss_above_start": True}


def test_a_loss_that_is_no_number_is_told() -> None:
    watch = watching()
    watch.scored(metrics(math.nan, 0.5, 0.5), 1, 100, final=False)
    assert kinds(watch) == {"not_finite": False}
    assert "the loss is nan after epoch 1" in watch.listed[0].said


# the accuracy
def test_accuracy_at_the_largest_classs_share_is_told_once_an_epoch_is_over() -> None:
    watch = watching()
    watch.scored(metrics(2.3, 0.1, 0.1), 1, 100, final=False)
    assert "always naming the largest class gives 0.1000: nothing is learned" in watch.listed[0].said

    watch.scored(metrics(1.0, 0.6, 0.6), 2, 200, final=False)
    assert kinds(watch) == {"majority_class": True}


@pytest.mark.parametrize(
    ("epoch", "steps", "settings"),
    [(1, 20, {}), (2, 200, {"schedule": {"warmup_epochs": 3, "warmup_start": 0.1}})],
    ids=["few steps", "warm-up"],
)
def test_an_early_accuracy_is_not_judged_but_the_final_one_is(epoch: int, steps: int, settings: dict[str, Any]) -> None:
    watch = watching(**settings)
    watch.scored(metrics(2.3, 0.1, 0.1), epoch, steps, final=False)
    assert watch.listed == []
    watch.scored(metrics(2.3, 0.1, 0.1), epoch, steps, final=True)
    assert kinds(watch) == {"majority_class": False}


def test_with_a_rare_class_only_the_end_is_judged_and_finding_it_is_learning() -> None:
    rare = {"train_loss": 1.0, "train_majority": 0.95, "train_examples": 2000}
    rare |= {"validation_majority": 0.95, "validation_examples": 500}
    found = {"validation_recall": 0.6, "validation_precision": 0.4, "train_recall": 0.6, "train_precision": 0.4}

    watch = watching(rare)
    watch.scored(metrics(0.2, 0.95, 0.95), 5, 500, final=False)
    watch.scored(metrics(0.2, 0.94, 0.94, **found), 9, 900, final=True)
    assert watch.listed == []
    watch.scored(metrics(0.2, 0.95, 0.95), 10, 1000, final=True)
    assert kinds(watch) == {"majority_class": False}


def test_data_of_one_class_are_named_instead_of_a_rate() -> None:
    one = {"train_loss": 1.0, "train_majority": 1.0, "train_examples": 300, "test_majority": 1.0, "test_examples": 30}
    watch = watching(one)

    watch.scored({"train_loss": 0.1, "train_accuracy": 1.0, "test_accuracy": 1.0}, 1, 10, final=False)

    (found,) = watch.listed
    assert "all labels of the training and the test data are of one class" in found.said
    assert not found.settings


# what to try
@pytest.mark.parametrize(
    ("name", "lr", "found", "usual"),
    [("adam", 5.0, metrics(99.0), 0.001), ("sgd", 1e-6, metrics(2.299, 0.1, 0.1), 0.1)],
    ids=["very high", "so low that it has not moved the loss"],
)
def test_a_rate_that_nobody_uses_is_answered_with_a_usual_one(name: str, lr: float, found: Any, usual: float) -> None:
    watch = watching(optimizer=Options(name=name, lr=lr))
    watch.scored(found, 10, 1000, final=True)
    assert watch.listed[0].settings == [f"optimizer.lr={usual}"]


@pytest.mark.parametrize(
    ("workers", "scale", "is_told"), [(2, "linear", True), (2, "auto", False), (1, "linear", False)]
)
def test_a_rate_that_is_taken_as_it_is_by_several_workers_is_named(workers: int, scale: str, is_told: bool) -> None:
    watch = watching(workers=workers, schedule={"lr_scale": scale})
    watch.scored(metrics(9.0), 1, 100, final=False)
    assert ("schedule.lr_scale=auto (it is linear" in watch.listed[0].advice) is is_told


# a linear model
LINEAR = {"updates": "sparse", "optimizer": Options(name="sgd", lr=0.5), "epochs": 20}
UNEVEN = {"train_loss": 1.0, "train_majority": 0.7, "train_examples": 1000}


def linear(**svm: Any) -> Warnings:
    return watching(UNEVEN, svm={"steps": "fitted", "objective": {"c": 1.0}} | svm, **LINEAR)


@pytest.mark.parametrize(
    ("svm", "settings", "advice"),
    [
        ({}, ["svm.objective.c=0.1"], "svm.objective.c=0.1 (it is 1)"),
        ({"objective": {"lam": 1e-4}}, ["svm.objective.lam=0.001"], "svm.objective.lam=0.001 (it is 0.0001)"),
        ({"objective": {"lam": 0}}, ["svm.objective.lam=1e-05"], "svm.objective.lam=1e-05 (it is 0)"),
        ({"steps": "plain"}, ["optimizer.lr=0.05"], "optimizer.lr=0.05 (it is 0.5)"),
    ],
)
def test_a_loss_above_its_start_of_fitted_steps_is_told_with_dearer_weights(
    svm: dict[str, Any], settings: list[str], advice: str
) -> None:
    watch = linear(**svm)
    watch.scored(metrics(4.6), 20, 100, final=True)
    assert (watch.listed[0].settings, watch.listed[0].advice) == (settings, advice)


@pytest.mark.parametrize(
    ("svm", "settings", "advice"),
    [
        ({}, ["svm.class_weights=balanced"], "(errors in rare classes cost more), or svm.objective.c=10 (it is 1)"),
        ({"class_weights": "balanced"}, ["svm.objective.c=10"], "svm.objective.c=10 (it is 1)"),
        ({"objective": {"c": 0.1}}, ["svm.objective.c=1"], "svm.objective.c=1 (it is 0.1)"),
        ({"objective": {"c": 1e-7}}, ["svm.objective.c=1"], "svm.objective.c=1 (it is 1e-07)"),
        ({"objective": {"lam": 1e-4}}, ["svm.objective.lam=1e-05"], "svm.objective.lam=1e-05 (it is 0.0001)"),
        ({"objective": {"lam": 0.1}}, ["svm.objective.lam=1e-05"], "svm.objective.lam=1e-05 (it is 0.1)"),
        ({"objective": {"lam": 0}}, ["svm.class_weights=balanced"], "or epochs=40 (it is 20)"),
        ({"steps": "plain"}, ["optimizer.lr=0.05"], "optimizer.lr=0.05 (it is 0.5)"),
    ],
)
def test_fitted_steps_that_learn_nothing_are_answered_with_dearer_errors(
    svm: dict[str, Any], settings: list[str], advice: str
) -> None:
    watch = linear(**svm)
    watch.scored({"train_loss": 0.9, "train_accuracy": 0.7}, 20, 100, final=True)
    assert watch.listed[0].settings == settings
    assert advice in watch.listed[0].advice


@pytest.mark.parametrize(("precision", "told"), [(0.4, 0), (0.31, 1)])
def test_with_class_weights_more_of_the_rare_class_than_by_chance_is_learning(precision: float, told: int) -> None:
    watch = linear(class_weights="balanced")
    found = {"train_accuracy": 0.6, "train_recall": 0.6, "train_precision": precision}
    watch.scored({"train_loss": 0.9, **found}, 20, 100, final=True)
    assert len(watch.listed) == told


@pytest.mark.parametrize(("epoch", "told"), [(2, 0), (14, 0), (15, 2)])
def test_of_fitted_steps_nothing_but_nan_is_told_before_they_are_short(epoch: int, told: int) -> None:
    watch = linear()
    watch.scored({"train_loss": 1.5, "train_accuracy": 0.7}, epoch, 100, final=False)
    assert len(watch.listed) == told
    watch.scored({"train_loss": math.nan, "train_accuracy": 0.9}, epoch, 100, final=False)
    assert "not_finite" in kinds(watch)


def test_a_linear_models_loss_has_no_logarithm_of_ones_own_to_look_for() -> None:
    watch = linear(steps="plain")
    watch.scored(metrics(math.nan), 3, 100, final=False)
    assert watch.listed[0].advice == "optimizer.lr=0.05 (it is 0.5)"


# what workers say
def test_three_steps_in_a_row_without_a_finite_gradient_are_told_and_pass_when_gradients_are_back() -> None:
    watch = watching()
    watch.heard("worker-0", {"unusable_row": 2, "unusable_longest": 2}, MEMBERS, 0.1)
    assert watch.listed == []
    watch.heard("worker-1", {"unusable_row": 3, "unusable_longest": 3}, MEMBERS, 0.25)

    (found,) = watch.listed
    assert found.said == "worker-1: 3 steps in a row had no finite gradient (epoch 0.2)"
    assert found.advice.startswith("optimizer.lr=0.01 (it is 0.1), or clip.norm=1, or inputs of about -1 to 1")
    assert "look for log(0)" in found.advice

    watch.heard("worker-0", {"unusable_row": 0, "unusable_longest": 2}, MEMBERS, 0.3)
    assert kinds(watch) == {"not_finite": False}
    watch.heard("worker-1", {"unusable_row": 0, "unusable_longest": 3}, MEMBERS, 0.4)
    assert kinds(watch) == {"not_finite": True}


LARGE = "inputs[:, 3] (up to 1.7e+09)"


def test_where_columns_of_large_numbers_are_known_all_advice_names_them_and_no_rate() -> None:
    watch = watching()
    watch.large_inputs = LARGE
    watch.heard("worker-0", {"unusable_longest": 3, "exploding_longest": 3}, MEMBERS, 0.1)
    watch.scored(metrics(4.6, 0.1, 0.1), 1, 100, final=False)
    watch.rolled_back("the run went back", {}, 1, 1.0)

    assert len(watch.listed) == 5
    for each in watch.listed:
        assert (each.advice, each.settings) == (f"inputs of about -1 to 1: scale or leave out {LARGE}", [])


def test_a_rate_beyond_any_sense_is_lowered_first_and_columns_are_named_after_a_restart() -> None:
    run, _ = started(optimizer={"name": "sgd", "lr": 1e6})
    run.beat("worker-0", 1, WorkerReport(1, "compute", 0.1, {}, large_inputs=LARGE), 1.0)
    run.beat("worker-1", 1, WorkerReport(1, "compute", 0.1, {}), 1.0)
    again = Warnings(run.config)
    again.restore(json.loads(json.dumps(run.warnings.state())))

    again.scored(metrics(math.nan), 1, 100, final=False)

    (found,) = again.listed
    assert found.settings == ["optimizer.lr=0.1"]
    assert found.advice.endswith(f"or inputs of about -1 to 1: scale or leave out {LARGE}")


def test_what_stood_when_the_last_member_left_stands_at_the_end() -> None:
    watch = watching()
    figures = {"unusable_row": 40, "unusable_longest": 40}
    watch.heard("worker-0", figures, MEMBERS, 0.1)
    watch.heard("worker-0", figures, (), 0.1)
    assert kinds(watch) == {"not_finite": False}

    good = figures | {"unusable_row": 0}
    watch.heard("worker-0", good, MEMBERS, 0.2)
    watch.heard("worker-0", good, (), 0.2)
    assert kinds(watch) == {"not_finite": True}


def test_the_final_version_is_judged_for_a_loss_that_is_no_number_also_before_an_epoch() -> None:
    watch = watching()
    watch.scored(metrics(99.0, 0.1, 0.1), 0, 10, final=True)
    assert watch.listed == []
    watch.scored(metrics(math.nan, 0.1, 0.1), 0, 10, final=True)
    assert kinds(watch) == {"not_finite": False}


def test_fp16_may_look_for_its_factor_first() -> None:
    watch = watching(precision="fp16")
    watch.heard("worker-0", {"unusable_row": 16, "unusable_longest": 16}, MEMBERS, 0.1)
    assert watch.listed == []


def test_an_explosion_is_told_with_its_losses() -> None:
    watch = watching()
    figures = {"exploding_row": 3, "exploding_longest": 3, "first_loss": 2.3, "exploding_loss": 4.1e9}
    watch.heard("worker-0", figures, MEMBERS, 0.5)
    assert watch.listed[0].said == "worker-0: training explodes: its loss rose from 2.3 to 4.1e+09 (epoch 0.5)"


def test_a_worker_whose_pushes_are_all_dropped_is_told() -> None:
    watch = watching()
    watch.heard("worker-1", {"dropped_row": 100, "dropped_longest": 100}, MEMBERS, 2.0)
    assert kinds(watch) == {"dropped": False}
    assert watch.listed[0].settings == ["batch=speed"]


@pytest.mark.parametrize(
    ("rows", "is_over"), [((20, 20), True), ((2, 90), False), ((10, 10), False), ((30,), False), ((), False)]
)
def test_a_run_is_hopeless_when_every_members_mini_batches_fail(rows: tuple[int, ...], is_over: bool) -> None:
    watch = watching()
    for worker, row in zip(MEMBERS, rows, strict=False):
        watch.heard(worker, {"unusable_row": row, "unusable_longest": row}, MEMBERS, 0.1)
    assert bool(watch.hopeless(MEMBERS)) is is_over
    assert watch.hopeless(()) == "", "nobody is left"


@pytest.mark.parametrize(("losses", "is_over"), [(False, False), (True, True)])
def test_losses_that_explode_are_divergence_only_where_the_user_asks(losses: bool, is_over: bool) -> None:
    watch = watching(divergence={"losses": losses})
    for worker in MEMBERS:
        watch.heard(worker, {"exploding_row": 90, "exploding_longest": 90}, MEMBERS, 0.1)

    assert watch.diverged(MEMBERS) == ("the loss explodes (180 bad steps in a row)" if is_over else "")
    assert kinds(watch) == {"exploding": False}
    assert not watch.is_well(MEMBERS), "no snapshot of these weights is a good one"


# the run
def started(**settings: Any) -> tuple[Run, Clocks]:
    run, clocks = Run(config(**settings)), Clocks()
    run.ready(0.0)
    for worker in MEMBERS:
        run.seat(worker, run.join(worker, False, 100, 10, "digest", 0.0), 0, lambda: clocks, 0.0)
    clocks.take_view(run.membership.view)
    return run, clocks


def test_a_run_that_can_not_learn_any_more_stops_and_says_why() -> None:
    run, clocks = started()
    for worker in MEMBERS:
        figures = {"unusable_row": 40.0, "unusable_longest": 40.0}
        run.beat(worker, 1, WorkerReport(50, "compute", 0.1, figures), 1.0)
    for server in range(run.config.servers):
        run.divergence.reported(server, (), ())
    run.give_up(lambda: clocks, 1.0)
    before = run.phase  # a server may still be writing its first weights
    run.give_up(lambda: clocks, 2.0)

    assert (before, run.phase) == (RunPhase.TRAINING, RunPhase.STOPPING)
    assert run.divergence.gave_up
    assert run.reason == (
        "no worker has a finite gradient any more (80 steps in a row), so nothing can be learned; "
        "no snapshot of every server was on disk, so it could not go back"
    )


def test_a_weight_at_its_floor_for_all_is_told_until_members_or_policy_change() -> None:
    run, clocks = started(policy=Options(name="shat", reading="difference", alpha_min=0))
    run.beat("worker-0", 1, WorkerReport(1, "compute", 0.1, {}), 1.0)

    (found,) = run.warnings.listed
    assert str(found) == (
        "warning: with 2 equal workers the weight of the global model is at its floor, policy.alpha_min: 0. Try "
        "policy.alpha=0.5, another policy.reading, or another number of workers."
    )
    assert (found.kind, found.settings, found.passed) == ("idle_policy", ["policy.alpha=0.5"], False)

    run.switch(Options(name="shat", reading="complement", alpha_min=0), lambda: clocks)
    run.switched()
    run.beat("worker-0", 1, WorkerReport(1, "compute", 0.1, {}), 2.0)
    assert kinds(run.warnings) == {"idle_policy": True}


def test_scores_are_watched_and_a_restarted_chief_still_knows_what_was_seen() -> None:
    run, _ = started()
    run.warnings.begins_with(BALANCED)
    run.score(Score(6, 1.0, [1], metrics(4.6)), 1.0)
    state = json.loads(json.dumps(run.state()))

    again = Run(config())
    again.restore(state, 2.0)
    assert again.warnings.listed == run.warnings.listed != []
    again.score(Score(7, 1.0, [1], metrics(1.0)), 3.0)
    assert kinds(again.warnings) == {Kind.LOSS: True}

    del state["watch"]  # of an older version
    Run(config()).restore(state, 2.0)


@pytest.mark.parametrize(
    ("on_lost_worker", "settings"), [("shrink", ["on_lost_worker=wait"]), ("wait", [])], ids=("shrink", "wait")
)
def test_a_worker_that_trains_on_weights_of_other_rounds_costs_the_bits_and_the_run_says_so_once(
    on_lost_worker: str, settings: list[str]
) -> None:
    watch = Warnings(config(on_lost_worker=on_lost_worker))
    watch.heard("worker-0", {OTHER_BITS: 0.0}, MEMBERS, 1.0)
    assert watch.listed == []

    watch.heard("worker-1", {OTHER_BITS: 1.0}, MEMBERS, 2.5)
    watch.heard("worker-0", {OTHER_BITS: 1.0}, MEMBERS, 3.0)

    (found,) = watch.listed
    assert (found.kind, found.settings, found.passed) == ("other_bits", settings, False)
    assert found.said.startswith("worker-1: ")
    assert "(epoch 2.5); the model is sound, but not bit for bit" in found.said


def test_a_worker_above_the_cap_most_of_the_time_is_named_and_the_cap_is_not_blamed() -> None:
    watch = Warnings(config(workers=4, push_norm_cap=2.5))
    members = [f"worker-{rank}" for rank in range(4)]

    watch.capped({"worker-0": 0.4, "worker-3": 0.1}, members, 0.5)
    assert watch.listed == []
    watch.capped({"worker-0": 0.4, "worker-3": 0.9}, members, 1.25)
    watch.capped({"worker-0": 0.4, "worker-3": 0.95}, members, 2.0)

    (found,) = watch.listed
    assert str(found) == (
        "warning: worker-3: most of the last pushes had a norm above push_norm_cap (2.5) and were scaled down to it (epoch "
        "1.2). Try a look at worker-3: other workers' pushes are below the cap, so its own data and machine are odd."
    )
    assert (found.kind, found.settings, found.epoch, found.passed) == ("capped", [], 1.25, False)


@pytest.mark.parametrize(
    ("shares", "who"),
    [((1, 1, 1), "all workers"), ((1, 1, 0), "worker-0 and worker-1"), ((1,), "worker-0")],
)
def test_a_cap_below_what_most_workers_push_is_to_be_raised(shares: tuple[float, ...], who: str) -> None:
    watch = Warnings(config(push_norm_cap=0.5))
    found = {f"worker-{rank}": share for rank, share in enumerate(shares)}

    watch.capped(found, list(found), 1.0)

    (warning,) = watch.listed
    assert warning.said.startswith(f"{who}: ")
    assert warning.settings == ["push_norm_cap=5"]
    assert warning.advice.startswith("push_norm_cap=5 (it is 0.5) if the run learns too slowly")


def test_a_warning_of_the_cap_passes_and_follows_who_is_above_it() -> None:
    watch = Warnings(config(push_norm_cap=0.5))

    watch.capped({"worker-1": 1.0}, MEMBERS, 1.0)
    watch.capped({"worker-1": 0.2}, MEMBERS, 2.0)
    assert [each.passed for each in watch.listed] == [True]

    watch.capped({"worker-0": 1.0, "worker-1": 1.0}, MEMBERS, 3.0)
    (found,) = watch.listed
    assert (found.said.split(":")[0], found.epoch, found.passed) == ("all workers", 1.0, False)
    watch.capped({"worker-1": 1.0}, ("worker-0",), 4.0)  # it has left
    assert [each.passed for each in watch.listed] == [True]


def test_the_slowest_of_uneven_workers_is_the_straggler_with_its_reason() -> None:
    found = straggler({"a": 0.01, "b": 0.08, "c": 0.012, "d": 0.01}, {"a": 3.0, "b": 0.1})

    assert str(found) == "straggler: b is 8.0 times slower (80 ms a step, the others 10 ms); the others wait for it"
    assert str(straggler({"a": 0.01, "b": 0.08}, {"a": 0.0, "b": 0.0})).endswith("the others 10 ms)"), "nobody waits"


def test_even_workers_one_worker_and_no_figures_have_no_straggler() -> None:
    for steps in ({"a": 0.01, "b": 0.014}, {"a": 1.0}, {"a": 0.0, "b": 1.0}, {}):
        assert straggler(steps, {}) is None


def test_slow_is_who_takes_half_as_long_again_as_the_median() -> None:
    steps = {"a": 0.010, "b": 0.014, "c": 0.021, "d": 0.028, "e": 0.012}

    assert slow_workers(steps) == ["c", "d"]
    assert slow_workers(steps, factor=2.0) == ["d"]
    assert str(straggler(steps, {})).startswith("straggler: d ")
