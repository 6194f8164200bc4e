"""svm.average_from: servers keep the mean of their versions, a restart does not lose it, and the evaluator takes it home."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config, SvmConfig
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.plan import PlanConfig, make_plan, server_memory
from paceline.core.slice.sparse_folding import SparseFolding
from paceline.core.slice.state import SliceState
from paceline.core.values import Base, Sparse, Switch
from paceline.data.linear_model import read_linear_model, shapes_of
from paceline.server.state_folder import StateFolder
from paceline.v1 import run_service_pb2 as pb
from paceline.worker.linear.linear_worker import SparseClient
from paceline.worker.membership.calls_to_chief import ChiefClient
from paceline.worker.scoring.linear_scorer import LinearScorer
from paceline.worker.surroundings import Surroundings
from paceline_studies.planning.sizes import plan_report
from tests.support.in_process import Cluster, Context, Said, config_of
from tests.support.one_slice import OneSlice
from tests.worker.scoring.test_linear_scorer import OBJECTIVE, D, written

LENGTH, PER_EPOCH, EXAMPLES = 8, 10, 3
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
PLAN = make_plan([("weights", (LENGTH,))], 1, PlanConfig())


class Averaging(OneSlice):
    """A slice that averages, and every version it has had with the examples that were counted by then."""

    def __init__(self, policy: str, average_from: float | None, workers: str = "ab", **options: object) -> None:
        self.average_from = average_from
        super().__init__(policy, list(workers), [0.5] * LENGTH, per_epoch=PER_EPOCH, **options)
        self.versions: list[tuple[int, np.ndarray]] = []

    def _new_slice(self, length: int, term: int) -> ModelSlice:
        folding = partial(SparseFolding, average_from=self.average_from)
        return ModelSlice(length, build_policy(self.policy), self.optimizer, term, *self.schedule, folding=folding)

    def change(self, worker: str, values: dict[int, float] | None) -> None:
        """The worker pushes a change, or an empty update."""
        before = self.slice.version
        update = None
        if values is not None:
            places = np.array(sorted(values), np.int64)
            update = Sparse(places, np.array([values[place] for place in sorted(values)], np.float32), LENGTH)
        self.push(worker, update=update, examples=EXAMPLES)
        assert self.slice.version - before in (0, 1)
        if self.slice.version > before:
            self.versions.append((self.slice.clocks.examples, np.array(self.weights)))

    def back_from(self, state: SliceState) -> None:
        """The server comes back from a snapshot, as it was read."""
        view = self.slice.clocks.view
        self.slice = self._new_slice(LENGTH, self.slice.term + 1)
        self.slice.restore(state)
        self.slice.view(view)
        for worker in view.seats:
            self.slice.resume(worker, 1)
            self.bases[worker] = Base(self.slice.term, self.slice.version)

    @property
    def expected(self) -> np.ndarray:
        """numpy's mean of the versions that count; of the newest alone while none does."""
        assert self.average_from is not None
        start = self.average_from * PER_EPOCH
        counted = [weights for examples, weights in self.versions if examples >= start]
        return np.mean(counted, axis=0) if counted else np.array(self.weights)

    @property
    def mean(self) -> np.ndarray:
        found = self.slice.pull(mean=True)
        assert found is not None
        self.slice.release(found)
        return found.values


CHANGES = st.none() | st.dictionaries(st.integers(0, LENGTH - 1), st.floats(-1, 1, width=32), max_size=4)


@given(
    st.sampled_from(
        [
            ("asp", {}),
            ("bsp", {}),
            ("everyone", {}),
            ("everyone", {"merge": "overwrite"}),
            ("kbuffered", {"k": 2}),
            ("kbuffered", {"k": 3, "damped": True}),
            ("staleness_aware", {}),
        ]
    ),
    st.sampled_from([0.0, 0.6, 1.3, 50.0]),
    st.lists(st.tuples(st.sampled_from("ab"), CHANGES), min_size=4, max_size=30),
    st.integers(2, 9),
)
def test_the_mean_is_that_of_all_versions_since_the_epoch(
    policy: tuple[str, dict[str, Any]],
    average_from: float,
    pushes: list[tuple[str, dict[int, float] | None]],
    restart_at: int,
):
    one = Averaging(policy[0], average_from, **policy[1])

    for number, (worker, values) in enumerate(pushes):
        if number == restart_at // 2 * 2:  # no round is open then
            one.restart()
        one.change("ab"[number % 2] if policy[0] == "bsp" else worker, values)
        np.testing.assert_allclose(one.mean, one.expected, atol=1e-4)


def test_a_mean_of_many_versions_keeps_its_digits():
    """20,000 folds of two places that go up and down forever, where float32 has to add up what has no room in it."""
    one = Averaging("asp", 0.0, workers="a")
    rng = np.random.default_rng(0)

    for value in rng.normal(scale=0.01, size=20_000):
        one.change("a", {1: float(value), 6: float(-value)})

    np.testing.assert_allclose(one.mean, one.expected, atol=1e-5)


def test_who_does_not_ask_for_the_mean_gets_the_weights():
    one = Averaging("asp", 0.0)
    one.change("a", {3: 1.0})
    one.change("a", {3: 1.0})

    assert one.weights[3] == 2.5
    assert one.mean[3] == 2.0


def test_a_slice_without_a_mean_gives_its_weights():
    one = Averaging("asp", None)
    one.change("a", {3: 1.0})
    one.change("a", {3: 1.0})

    assert one.mean.tolist() == one.weights


def test_a_version_that_has_gone_is_in_the_mean_but_not_given():
    one = Averaging("bsp", 0.0)
    for worker in "abab":
        one.change(worker, {0: 1.0})
    found = one.slice.pull(2, mean=True)

    assert (found.version, found.values[0]) == (2, 0.5 + (2 + 4) / 2)
    assert one.slice.pull(3, mean=True) is None


def test_a_change_of_policy_does_not_end_the_mean():
    one = Averaging("asp", 0.0, workers="a")
    one.change("a", {0: 1.0})
    view, switch = one.slice.clocks.view, Switch(1, {"name": "bsp"}, one.slice.version)
    one.slice.view(replace(view, number=view.number + 1, switch=switch, made=switch))
    one.change("a", {0: 1.0})

    np.testing.assert_array_equal(one.mean, one.expected)
    assert one.mean[0] == 2.0


def test_the_mean_comes_back_from_disk_and_goes_on(tmp_path: Path):
    one = Averaging("asp", 0.3, workers="a")
    for number in range(5):
        one.change("a", {number: 1.0, 7: 2.0})
    state = one.slice.state()
    store = StateFolder(tmp_path, 3, Said())
    store.save_snapshot(PLAN, state)
    newest = store.newest_snapshot()
    store.close()

    one.back_from(newest[1])
    np.testing.assert_allclose(one.mean, one.expected, atol=1e-6)

    one.change("a", {7: -6.0})
    np.testing.assert_allclose(one.mean, one.expected, atol=1e-6)


def test_a_snapshot_from_before_there_were_means_begins_one_anew(tmp_path: Path):
    old = Averaging("asp", None, workers="a")
    old.change("a", {0: 1.0})
    store = StateFolder(tmp_path, 3, Said())
    store.save_snapshot(PLAN, old.slice.state())
    newest = store.newest_snapshot()
    store.close()

    assert newest[1].lag is None
    old.average_from = 0.0
    old.back_from(newest[1])
    old.versions.clear()
    assert old.mean[0] == 1.5
    for value in (1.0, 2.0):
        old.change("a", {0: value})
    np.testing.assert_array_equal(old.mean, old.expected)
    assert old.mean[0] == (2.5 + 4.5) / 2


def test_the_evaluator_takes_the_mean_home_and_workers_go_on_from_the_weights(tmp_path: Path) -> None:
    """Two servers; a worker pushes the same change four times, half of the four training examples each time."""
    shards = written(tmp_path / "shards")
    config = config_of("asp", servers=2, epochs=4, updates="sparse", svm=SvmConfig(objective=OBJECTIVE, average_from=1))
    places = np.array([0, D - 1])
    change = Sparse(places, np.array([1, -2], np.float32), D)
    cluster = Cluster(config, tmp_path)
    try:
        cluster.evaluator_ready()
        manifest = shards.manifest
        around = Surroundings(config=config, name="worker-0", addresses=cluster.addresses, patience=60)
        chief = ChiefClient(around)
        plan = make_plan(shapes_of(manifest), 2, config.plan)
        client = SparseClient(around, plan)
        joined = chief.join(False, manifest.train_examples, 2, manifest.fingerprint, 2)
        client.attach(joined.incarnation)
        weights = np.zeros(D, np.float32)
        client.initialise(weights)
        seat = chief.seat(joined.incarnation, 0)
        client.pull(weights)
        for clock in range(1, 5):
            client.begin_sparse(clock, seat.view, change, 2, client.bases)()
        client.pull(weights)
        cluster.run.Stop(pb.StopRequest(reason="enough"), Context())
        chief.leave(joined.incarnation, True)
        around = Surroundings(config=config, name="evaluator", addresses=cluster.addresses)
        LinearScorer(around, shards, tmp_path / "models").run()
        (score,) = cluster.run.Status(pb.StatusRequest(), Context()).scores
    finally:
        cluster.close()

    assert weights[places].tolist() == [4, -8]
    for name in ("last.safetensors", "best.safetensors", "last.liblinear"):
        kept = read_linear_model(tmp_path / "models" / name).weights
        assert kept[places].tolist() == [3, -6]  # of versions 2, 3 and 4
        assert np.count_nonzero(kept) == 2
    with safe_open(tmp_path / "models" / "last.safetensors", "numpy") as file:
        assert file.metadata()["average_from"] == "1"
    # margins of the training rows: 3, -9, -3 and -18, where 1, 0, 0, 1 is right
    assert score.metrics["train_loss"] == pytest.approx(19 / 4 + 0.1 / 2 * 45)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_start_that_is_no_epoch_is_refused(value: float):
    with pytest.raises(ValueError, match="average_from"):
        Config.model_validate({"optimizer": SGD, "updates": "sparse", "svm": {"average_from": value}})


def test_the_plan_counts_the_mean_and_its_copy_in_a_snapshot():
    facts = {"optimizer": SGD, "updates": "sparse", "servers": 1, "policy": {"name": "asp"}}
    plain, averaging = (
        plan_report(Config.model_validate(facts | {"svm": svm}), [("weights", (1000,))])["servers"][0]["memory"]
        for svm in ({}, {"average_from": 2})
    )

    assert averaging["mean of versions"] == 4000
    assert sum(averaging.values()) == sum(plain.values()) + 8000
    assert sum(server_memory(1000, 0, 0, 4, 4032 << 10, 512 << 20).values()) == sum(plain.values())
