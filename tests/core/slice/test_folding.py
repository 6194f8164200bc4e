"""How pushes get into the weights: of a dense slice, and of a sparse one."""

import numpy as np
import pytest

from paceline.core.optimizers.layout import Layout
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import ClipConfig, Options, ScheduleConfig
from paceline.core.slice.dense_folding import DenseFolding
from paceline.core.slice.folding import settled
from paceline.core.slice.norm_cap import NormCap
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.sparse_folding import SparseFolding
from paceline.core.slice.state import SliceState
from paceline.core.values import Dense, Outcome, Places, Seat, Sparse
from tests.support.one_slice import OneSlice
from tests.support.slice_parts import a_push, clocks_with, counted, dense_folding, half_of

NONE = np.empty(0, np.int64)


def places(*found: int) -> Places:
    return np.array(found, np.int64)


def sparse_folding(clocks: Clocks, policy: str = "asp") -> SparseFolding:
    """Of four values that are 0."""
    folding = SparseFolding(4, clocks, half_of(policy, 4))
    folding.start(np.zeros(4, np.float32), 0)
    return folding


def change(**values: float) -> Sparse:
    """change(_3=0.5) changes place 3."""
    found = places(*(int(name[1:]) for name in values))
    return Sparse(found, np.array(list(values.values()), np.float32), 4)


def test_a_dense_round_folds_the_mean_and_a_sparse_one_the_sum():
    clocks = clocks_with(a=Seat(1, 0), b=Seat(1, 0))
    dense, sparse = dense_folding(clocks, half_of("bsp")), sparse_folding(clocks, "bsp")
    for worker, value in (("a", 1.0), ("b", 3.0)):
        dense.sum.add(a_push(worker, update=Dense(np.full(2, value, np.float32))), 1.0)
        sparse.sum.add(a_push(worker, update=change(_2=value)), 1.0)
    dense.close()
    sparse.close()

    assert dense.current().values.tolist() == pytest.approx([-0.2, -0.2])
    assert sparse.current().values.tolist() == [0.0, 0.0, 4.0, 0.0]


def test_examples_are_settled_once_they_are_folded():
    clocks = clocks_with(a=Seat(1, 0))
    folding = dense_folding(clocks, half_of("bsp"))
    folding.sum.add(counted(clocks, a_push()), 1.0)
    assert (clocks.examples, settled(clocks, folding.sum)) == (1, 0)

    folding.close()

    assert settled(clocks, folding.sum) == 1


def test_a_reader_of_a_dense_slice_keeps_its_version_and_one_of_a_sparse_slice_has_a_copy():
    clocks = Clocks()
    dense, sparse = dense_folding(clocks, half_of("asp")), sparse_folding(Clocks())
    read = [folding.pull(None, mean=False) for folding in (dense, sparse)]
    dense.fold_one(a_push(), 1, rate=1.0)
    sparse.fold_one(a_push(update=change(_1=1.0)), 1, rate=1.0)

    assert [(found.version, found.values.any()) for found in read] == [(0, False), (0, False)]


def test_a_sparse_slice_answers_with_what_has_changed_since_a_version_and_a_dense_one_with_all():
    folding = sparse_folding(Clocks())
    for place in (1, 3):
        folding.fold_one(a_push(update=change(**{f"_{place}": 1.0})), 1, rate=1.0)

    assert folding.answer(1, None, NONE, most=4).places.tolist() == [3]
    assert folding.answer(1, None, places(0), most=4).places.tolist() == [0, 3]
    assert folding.answer(None, places(2), NONE, most=4).places.tolist() == [2]
    assert folding.answer(None, None, NONE, most=4) is None
    assert folding.answer(0, None, NONE, most=1) is None
    assert DenseFolding(4, Clocks(), half_of("asp")).answer(0, places(2), NONE, most=4) is None


def test_both_come_back_from_what_they_gave():
    for folding, update in (
        (dense_folding(Clocks(), half_of("asp")), Dense(np.ones(2, np.float32))),
        (sparse_folding(Clocks()), change(_1=1.0)),
    ):
        folding.fold_one(counted(Clocks(), a_push(update=update), Outcome.FOLDED), 1, rate=1.0)
        copied = {name: values.copy() for name, values in folding.changing.items()}
        state = SliceState(copied.get("weights", folding.keep().values), [], folding.facts)
        before = folding.current().values.tolist()
        folding.fold_one(a_push(update=update), 1, rate=1.0)

        folding.restore(state)

        assert folding.current().values.tolist() == before


@pytest.mark.parametrize("restart", [0, 1, 2])
def test_adascale_gains_as_much_where_the_slice_restarts_in_the_midst_of_a_sum(restart: int):
    ended = []
    for restarts in (False, True):
        schedule = ScheduleConfig(lr_scale="adascale")
        one = OneSlice("kbuffered", "abc", [0.0, 0.0], schedule=schedule, epochs=9.0, per_epoch=8, k=3)
        for number, (worker, gradient) in enumerate(zip("abcabc", ([1, 3], [1, -1], [2, 0]) * 2, strict=True)):
            one.push(worker, *gradient)
            if restarts and number == restart:
                one.restart()
        ended.append(one.weights)

    assert ended[0] == ended[1]


LAYOUT = Layout.whole([("weight", (1,)), ("running_mean", (1,))])


def averaging_half(policy: str) -> ServerHalf:
    """Of a weight, and of a value that is averaged."""
    asked = build_optimizer(Options(name="sgd", lr=0.5, momentum=0.0, weight_decay=0.0, averaged=["running_mean"]))
    return ServerHalf(2, build_policy(Options(name=policy)), asked, ScheduleConfig(lr_scale="none"), 1.0, None, LAYOUT)


def test_one_workers_push_moves_what_is_averaged_by_its_share_and_a_weight_by_all_of_it():
    folding = dense_folding(Clocks(), averaging_half("asp"), [1.0, 1.0])

    folding.fold_one(a_push(), 4, rate=0.5)

    assert folding.current().values.tolist() == [0.5, 0.75]


@pytest.mark.parametrize("policy", ["asp", "ensemble"])
def test_many_workers_that_fold_each_by_itself_come_to_the_mean_of_their_statistics(policy: str):
    workers, momentum, clocks = 40, 0.3, Clocks()
    folding = dense_folding(clocks, averaging_half(policy))
    pulled, own = [0.0] * workers, np.linspace(0, 2, workers)

    for step in range(100 * workers):
        worker = step % workers
        gone = Dense(np.array([0.0, momentum * (pulled[worker] - own[worker])], np.float32))
        folding.fold_one(a_push(f"worker-{worker}", update=gone), workers, rate=0.5)
        pulled[worker] = float(folding.current().values[1])

    assert pulled == pytest.approx([own.mean()] * workers, abs=0.1)


def test_a_mean_gradient_above_its_limit_is_clipped_but_for_what_is_averaged():
    asked = build_optimizer(Options(name="sgd", lr=0.5, momentum=0.0, weight_decay=0.0, averaged=["running_mean"]))
    layout = Layout.whole([("a", (1,)), ("b", (1,)), ("running_mean", (1,))])
    one = OneSlice("bsp", ["a", "b"], [1, 1, 1], asked, layout=layout, clip=ClipConfig(norm=1, of="mean"))

    one.push("a", 60, 0, 3, examples=1)
    one.push("b", 0, 120, 2, examples=3)

    # the mean is 15, 90, 2.25
    assert one.weights == pytest.approx([1 - 0.5 * 15 / 8325**0.5, 1 - 0.5 * 90 / 8325**0.5, 1 - 2.25])


@pytest.mark.parametrize(
    ("schedule", "clip", "cap"),
    [("adascale", None, None), ("none", ClipConfig(norm=1, of="mean"), None), ("none", None, 1.0)],
    ids=["AdaScale", "clipped mean", "cap of a push"],
)
def test_running_statistics_have_no_part_in_what_is_done_with_gradients(
    schedule: str, clip: ClipConfig | None, cap: float | None
):
    asked = build_optimizer(Options(name="sgd", lr=0.1, momentum=0.0, weight_decay=0.0, averaged=["running_var"]))
    layout = Layout.whole([("a", (2,)), ("running_var", (1,))])

    def trained(*drifts: float) -> tuple[list[float], float]:
        """The weights after some rounds in which the statistics of both workers drift by so much, and these."""
        begins = [0.0, 0.0, 0.0]
        one = OneSlice("bsp", "ab", begins, asked, ScheduleConfig(lr_scale=schedule), 9.0, 8, layout=layout, clip=clip)
        for _ in range(4):
            for worker, gradient, drift in zip("ab", ([1.0, 3.0], [1.0, -1.0]), drifts, strict=True):
                push = a_push(worker, update=Dense(np.array([*gradient, drift], np.float32)))
                if cap is not None:
                    NormCap(cap).hold(push, one.slice.weights)
                one.push(worker, *push.update.values)
        *weights, statistic = one.weights
        return weights, statistic

    still, _ = trained(0.0, 0.0)
    weights, statistic = trained(50.0, 60.0)

    assert weights == still
    assert statistic == -4 * 55.0
