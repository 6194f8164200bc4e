"""Workers of a linear model against real servers: lock-step is sequential training bit for bit, nobody loses a change."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from paceline.core.errors import ConfigError
from paceline.core.linear.model import Examples, LinearModel, score
from paceline.core.linear.objective import Objective
from paceline.core.policies.policy import push_batches
from paceline.core.settings.config import Config, Options, SvmConfig
from paceline.core.values import Sparse
from paceline.data.dataset import Labelled, Selection
from paceline.data.manifest import Recipe
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.data.shard_writer import Dealt, write_shards
from paceline.data.shards import Shards, open_shards
from paceline.rpc.enums import phase_of
from paceline.settings.load_settings import task_of
from paceline.v1 import run_service_pb2 as pb
from paceline.v1.settings_pb2 import Policy
from paceline.worker.linear.linear_rows import LinearData
from paceline.worker.linear.linear_worker import LinearWorker, bounds, touched
from paceline.worker.surroundings import Surroundings
from tests.support.in_process import Cluster, Context, Said, config_of
from tests.support.nights import some
from tests.support.processes import eventually

D, N = 60, 200
RECIPE = Recipe(task="made", strategy="random", shards=2, validation=0, test=0, seed=0, examples="a" * 64)
SGD = Options(name="sgd", lr=0.1, momentum=0.0, weight_decay=0.0)


def made(rows: int = N) -> Labelled:
    """Sparse rows that a plane separates."""
    rng = np.random.default_rng(0)
    features = (rng.random((rows, D)) < 0.15) * rng.random((rows, D))
    features[np.arange(rows), rng.integers(D, size=rows)] += 0.5
    labels = (features @ rng.normal(size=D) > 0).astype(np.int64)
    return Labelled(csr_array(features.astype(np.float32)), labels)


def accuracy(weights: np.ndarray) -> float:
    source = made()
    return score(Examples.of(source.features, source.labels), weights, Objective()).accuracy


def shards_of(folder: Path, count: int) -> Shards:
    source = made()
    parts = [Selection(source, np.arange(number, N, count)) for number in range(count)]
    write_shards(folder, "made", RECIPE.model_copy(update={"shards": count}), Dealt(parts), {})
    return open_shards(folder)


def config(policy: str = "asp", workers: int = 2, servers: int = 2, **settings: Any) -> Config:
    svm = {"validation": 0.1, **settings.pop("svm", {})}
    sgd = SGD.model_copy(update={"lr": settings.pop("lr", 0.1)})
    facts = {"batch_size": 4, "epochs": 3, "updates": "sparse", "svm": svm, "heartbeat": 0.2, **settings}
    return config_of(policy, workers, servers, **facts).model_copy(update={"optimizer": sgd})


class Trial:
    """Servers, shards and workers of one run, all in this process."""

    def __init__(self, config: Config, folder: Path) -> None:
        self.config = config
        self.stop = threading.Event()
        self.said = [Said() for _ in range(config.workers)]
        self.shards = shards_of(folder / "shards", config.workers)
        self.cluster = Cluster(config, folder)
        self.cluster.evaluator_ready()
        self.pool = ThreadPoolExecutor(config.workers)
        self.ends: list[Future[None]] = []

    def worker(self, number: int) -> LinearWorker:
        whereabouts = {"addresses": self.cluster.addresses, "stop": self.stop, "say": self.said[number]}
        return LinearWorker(Surroundings(config=self.config, name=f"worker-{number}", **whereabouts), self.shards)

    def start(self) -> "Trial":
        self.ends = [self.pool.submit(self.worker(number).run) for number in range(self.config.workers)]
        return self

    def finish(self) -> np.ndarray:
        """The weights when all workers have left."""
        for end in self.ends:
            end.result(60)
        return self.weights()

    def weights(self) -> np.ndarray:
        found = [server.driver.pull(None, lambda: True) for server in self.cluster.servers]
        return np.concatenate([one.values for one in found if one is not None])

    @property
    def status(self) -> pb.StatusReply:
        return self.cluster.run.Status(pb.StatusRequest(), Context())

    def close(self) -> None:
        self.stop.set()
        self.pool.shutdown()
        self.cluster.close()


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Callable[[Config], Trial]]:
    made: list[Trial] = []

    def begin(config: Config) -> Trial:
        made.append(Trial(config, tmp_path / str(len(made))))
        return made[-1]

    yield begin
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("policy", "optimizer", "batches"),
    [("bsp", "sgd", 1), ("backup", "sgd", 1), ("asp", "sgd", 8), ("kbuffered", "sgd", 8), ("asp", "ftrl", 1)],
)
def test_workers_push_after_each_mini_batch_where_they_wait_or_servers_step(policy, optimizer, batches):
    named = {"policy": Options(name=policy), "optimizer": Options(name=optimizer), "svm": SvmConfig(steps="plain")}

    assert push_batches(Config(task="svm", updates="sparse", workers=4, **named)) == batches


def sequential(config: Config, shards: Shards, rounds: int) -> np.ndarray:
    """What lock-step training must give: each round every worker's batches from the same weights and at the
    rate that came with these, then the sum as it is."""
    own, batch = LinearData(config, shards), config.worker_batch * push_batches(config)
    lens = own.epoch_lens()
    steps = steps_per_epoch(lens, [[place] for place in range(len(lens))], batch)
    data = [own.rows([place]) for place in range(config.workers)]
    sampler_of = lambda at: Sampler(own.sizes([at]), batch, steps, config.seed, f"worker-{at}", lens[at])  # noqa: E731
    samplers = [sampler_of(place) for place in range(config.workers)]
    weights = np.zeros(D, np.float32)
    decays = config.svm.objective.decays(shards.feature_counts)
    falls = config.schedule.gamma if config.schedule.name == "step" else 1.0
    counted, told = 0, 0.1
    for clock in range(1, rounds + 1):
        total: dict[int, np.float32] = {}
        folded = counted
        for (examples, _, train, _), sampler in zip(data, samplers, strict=True):
            model = LinearModel(weights.copy(), config.svm.objective, decays, tracks=True)
            rows = train[sampler.indices(clock)]
            model.step(examples, rows, config.worker_batch, told)
            counted += len(rows)
            moved = model.moves()
            for place, value in zip(moved.places.tolist(), moved.values, strict=True):
                total[place] = total.get(place, np.float32(0)) + value
        for place, value in total.items():
            weights[place] += value
        told = 0.1 * falls ** (folded // own.train_examples)
    return weights


FALLING = {"name": "step", "every": 1, "gamma": 0.5, "lr_scale": "none"}
LOGISTIC = Objective(loss="logistic", lam=0.01, reg="hogwild", reduce="mean")


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        *(
            ({"svm": {"batches": batches, "objective": each}}, None)
            for batches in (1, 3)
            for each in (Objective(), LOGISTIC)
        ),
        ({"schedule": FALLING}, None),  # workers step with the rate that they got, and servers add as it is
        ({"servers": 3}, 3),  # slices whose replies would be too large are pulled
    ],
)
def test_lock_step_is_the_sum_of_all_workers_changes_bit_for_bit(
    trial: Callable[[Config], Trial], monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], most: int | None
) -> None:
    if most:
        monkeypatch.setattr("paceline.server.parameter_servicer._MOST", most)
    run = trial(config("bsp", **settings))

    weights = run.start().finish()

    np.testing.assert_array_equal(weights, sequential(run.config, run.shards, run.status.version))


@pytest.mark.parametrize("overlap", [False, True])
def test_a_push_says_which_weights_it_was_computed_on(trial: Callable[[Config], Trial], overlap: bool) -> None:
    run = trial(config("asp", workers=1, servers=1, overlap=overlap))

    run.start().finish()

    assert (run.cluster.metric("staleness_sum") > 0) == overlap


def test_a_push_that_reached_one_server_of_two_leaves_no_change_that_the_servers_do_not_have(
    trial: Callable[[Config], Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process dies; the next one goes over the same clock again, with other rows, on the server that has it too."""
    models: list[LinearModel] = []

    class Kept(LinearModel):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            models.append(self)

    kept = lambda weights, _, *rest, **more: Kept(weights, *rest, **more)  # noqa: E731
    monkeypatch.setattr("paceline.worker.linear.linear_worker.linear_model", kept)
    run = trial(config("asp", workers=1, batch_size=100, epochs=1, budget="per_worker", svm={"batches": 2}))
    dead = run.worker(0)
    joined = dead.chief.join(False, dead.train_examples, 1, run.shards.manifest.fingerprint, 1)
    dead._ready(joined.incarnation, joined.seat)
    seat = dead.chief.seat(joined.incarnation, 0)
    dead.client.pull(np.zeros(D, np.float32))
    link = dead.client.links[0]
    start, stop = bounds(link)
    change = Sparse(np.array([1]), np.array([5], np.float32), stop - start)
    link.push_sparse(1, seat.view, change, 4, link.base, None)

    weights = run.start().finish()

    assert run.cluster.servers[0].driver.clocks.pushes == run.cluster.servers[1].driver.clocks.pushes == 1
    np.testing.assert_array_equal(weights[start:stop], np.where(np.arange(stop - start) == 1, 5, 0))
    assert weights[stop:].any()
    np.testing.assert_array_equal(models[-1].weights, weights)


SHARED = range(80, 120)


def shared_shards(folder: Path) -> Shards:
    """Two shards, the examples in the middle in both."""
    source = made()
    rows = [np.arange(SHARED.stop), np.arange(SHARED.start, N)]
    write_shards(folder, "made", RECIPE, Dealt([Selection(source, mine) for mine in rows]), {})
    return open_shards(folder)


def worker_of(config: Config, shards: Shards) -> LinearWorker:
    """A worker that calls nobody."""
    addresses = ["localhost:1"] * config.servers
    return LinearWorker(Surroundings(config=config, name="worker-0", addresses=addresses), shards)


def test_an_example_of_several_shards_trains_in_all_or_validates_in_all(tmp_path: Path) -> None:
    shards = shared_shards(tmp_path / "shards")
    worker = worker_of(config(svm={"validation": 0.3}), shards)
    trained, kept = set[int](), set[int]()

    for number in (0, 1):
        _, _, train, validation = worker.data.rows([number])
        ids = shards.shard(number).ids
        assert sorted([*train, *validation]) == list(range(len(ids)))
        trained |= set(ids[train].tolist())
        kept |= set(ids[validation].tolist())

    assert not trained & kept
    assert 0 < len(kept & set(SHARED)) < len(SHARED), "examples of both shards are of both kinds"
    assert 0.2 * N < len(kept) < 0.4 * N
    assert worker.train_examples == len(trained) == N - len(kept)


def test_examples_of_several_shards_lengthen_no_epoch(tmp_path: Path) -> None:
    shards = shared_shards(tmp_path / "shards")
    own, everything = config(), config(data={"access": "all"})

    lens = worker_of(own, shards).epoch_lens()
    worker = worker_of(everything, shards)

    assert worker.sizes([0, 1]) > lens
    assert sum(lens) == pytest.approx(worker.train_examples, abs=3)
    assert worker.epoch_lens() == [-(-worker.train_examples // 2)] * 2


def test_examples_of_several_shards_count_once_for_their_features(tmp_path: Path) -> None:
    shards = shared_shards(tmp_path / "shards")

    expected = np.bincount(made().features.indices, minlength=D)

    np.testing.assert_array_equal(shards.feature_counts(), expected)


def test_it_does_not_matter_how_many_servers_there_are_or_what_replies_bring(trial: Callable[[Config], Trial]) -> None:
    one = trial(config("bsp", servers=1, transport="grpc")).start().finish()
    many = trial(config("bsp", servers=3)).start().finish()
    wanted = trial(config("bsp", servers=2, svm={"pull": "wanted"})).start().finish()

    np.testing.assert_array_equal(one, many)
    np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("settings", [{}, {"overlap": True}, {"overlap": True, "svm": {"pull": "wanted"}}])
def test_one_free_running_worker_trains_as_in_lock_step(trial: Callable[[Config], Trial], settings: Any) -> None:
    run = trial(config("asp", workers=1, **settings))

    weights = run.start().finish()

    np.testing.assert_allclose(weights, sequential(run.config, run.shards, run.status.version), atol=1e-5)


@pytest.mark.parametrize(
    ("policy", "pull"),
    some(
        product(
            ["asp", "ssp", "everyone", "backup", "delay_threshold", "staleness_aware", "kbuffered"],
            ["changed", "wanted"],
        ),
        [("asp", "wanted"), ("backup", "changed")],
    ),
)
def test_every_policy_learns_the_plane(trial: Callable[[Config], Trial], policy: str, pull: str) -> None:
    run = trial(config(policy, epochs=12, overlap=policy != "backup", svm={"pull": pull, "batches": 2}))

    weights = run.start().finish()

    assert accuracy(weights) > 0.85
    assert phase_of(run.status) in ("scoring", "finished")


@pytest.mark.parametrize(
    ("before", "after"), some([("asp", "bsp"), ("bsp", "everyone"), ("ssp", "asp")], [("asp", "bsp")])
)
def test_the_policy_changes_in_mid_run(trial: Callable[[Config], Trial], before: str, after: str) -> None:
    run = trial(config(before, epochs=30))
    run.start()
    eventually(lambda: run.status.examples > 400)

    run.cluster.run.SetPolicy(pb.SetPolicyRequest(policy=Policy(name=after)), Context())
    weights = run.finish()

    assert run.status.policy.name == after
    assert not run.status.switching
    assert accuracy(weights) > 0.85


@pytest.mark.parametrize(("policy", "stop"), [("bsp", "all"), ("asp", "own")])
def test_workers_stop_when_the_mean_of_their_losses_or_their_own_has_settled(
    trial: Callable[[Config], Trial], policy: str, stop: str
) -> None:
    stopping = {"rule": "cs449", "preset": "authors"}
    run = trial(config(policy, epochs=500, svm={"stopping": stopping, "stop": stop}))

    run.start().finish()

    if stop == "all":
        assert "the validation loss has settled at" in run.status.reason
    else:
        assert all(said.has("the validation loss has settled; leaving") for said in run.said)
        assert phase_of(run.status) == "scoring"
    assert run.status.examples < 500 * 180


@pytest.mark.parametrize("stop", ["own", "all"])
def test_workers_with_fitted_steps_stop_early_once_they_are_short(trial: Callable[[Config], Trial], stop: str) -> None:
    stopping = {"rule": "cs449", "preset": "authors"}
    run = trial(config("bsp", servers=1, epochs=40, svm={"stopping": stopping, "stop": stop, "steps": "fitted"}))

    run.start().finish()

    assert 0.7 * 40 * 180 < run.status.examples < 0.9 * 40 * 180


@pytest.mark.parametrize("transport", ["grpc", "lane"])
def test_workers_say_where_their_time_went_and_what_they_sent(trial: Callable[[Config], Trial], transport: str) -> None:
    one = trial(config("asp", transport=transport)).start()
    one.finish()
    for worker in one.status.workers:
        parts = [worker.figures[f"{part}_seconds"] for part in ("data", "compute", "exchange")]
        assert min(parts) > 0
        # each push names a place and a value at least, of 1 and 4 bytes, to each of two servers
        assert min(worker.figures["sent_bytes"], worker.figures["received_bytes"]) > worker.clock * 2 * 5


@pytest.mark.parametrize("transport", some(["lane", "grpc"], ["lane"]))
def test_workers_go_on_after_a_server_has_come_back(trial: Callable[[Config], Trial], transport: str) -> None:
    run = trial(config("asp", epochs=60, checkpoint={"every": 0.05}, transport=transport))
    run.start()
    eventually(lambda: run.status.examples > 400)

    run.cluster.restart(1)
    weights = run.finish()

    assert accuracy(weights) > 0.85
    assert any(said.has("server is back under a new term") for said in run.said)


def test_a_worker_leaves_and_another_takes_its_place(trial: Callable[[Config], Trial]) -> None:
    run = trial(config("bsp", epochs=20))
    stops = [threading.Event(), threading.Event()]
    workers = [run.worker(0), run.worker(1)]
    for one, stop in zip(workers, stops, strict=True):
        one._stop = one.chief._stop = one.client._stop = stop
        for link in one.client.links:
            link._stop = stop
    run.ends = [run.pool.submit(one.run) for one in workers]
    eventually(lambda: run.status.examples > 400)

    stops[1].set()
    assert run.ends[1].exception(20) is not None
    eventually(lambda: len([worker for worker in run.status.workers if worker.member]) == 1)
    run.ends[1] = run.pool.submit(run.worker(1).run)
    weights = run.finish()

    assert accuracy(weights) > 0.85


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"epochs": 500, "lr": 1e38}, r"diverged.*Lower optimizer\.lr"),
        ({"batch_size": N}, r"batch_size is 200, .* but no worker has more than 1\d\d in its shards"),
    ],
    ids=["a rate that diverges", "a mini-batch larger than a shard"],
)
def test_what_can_not_be_trained_ends_the_run_with_what_to_do(trial: Callable[[Config], Trial], settings, told) -> None:
    run = trial(config("asp", workers=1, **settings))
    run.start()

    with pytest.raises(ConfigError, match=told):
        run.ends[0].result(60)


def test_dense_shards_are_refused(tmp_path: Path) -> None:
    source = Labelled(np.zeros((4, 3), np.float32), np.arange(4) % 2)
    write_shards(tmp_path / "shards", "made", RECIPE, Dealt([Selection(source, np.arange(4))] * 2), {})
    shards = open_shards(tmp_path / "shards")

    around = Surroundings(config=config(), name="worker-0", addresses=["localhost:1"] * 2)
    with pytest.raises(ConfigError, match="hold dense rows, but updates: sparse"):
        LinearWorker(around, shards)


def test_the_places_that_rows_touch_are_found() -> None:
    source = made(20)
    examples = Examples.of(source.features, source.labels)
    rows = np.array([3, 17, 3])

    expected = np.flatnonzero(source.features[[3, 17]].toarray().any(axis=0))

    np.testing.assert_array_equal(touched(examples, rows), expected)
    assert len(touched(examples, rows[:0])) == 0


def test_the_task_is_known_before_the_rest_is_checked() -> None:
    assert task_of(None, {"task": "svm", "policy": {"name": "everyone", "merge": "overwrite"}}) == ("svm", None)


FITTED = {"steps": "fitted", "intercept": True, "class_weights": "balanced", "batches": 3}


def three() -> Labelled:
    """Rows of three classes that a linear model tells apart, one of them rare; none without the intercept."""
    rng = np.random.default_rng(0)
    labels = rng.choice(3, 300, p=[0.6, 0.3, 0.1])
    corners = np.array([[1, 1, 0, 3], [3, 1, 1, 1], [1, 3, 2, 1]])
    return Labelled(csr_array((corners[labels] + rng.normal(0, 0.3, (300, 4))).astype(np.float32)), labels)


def shards_of_three(source: Labelled, folder: Path) -> Shards:
    parts = [Selection(source, np.arange(number, len(source), 2)) for number in range(2)]
    write_shards(folder, "made", RECIPE, Dealt(parts), {}, classes=("one", "two", "seven"))
    return open_shards(folder)


@pytest.mark.parametrize(
    ("policy", "loss"), some(product(["bsp", "asp"], ["squared_hinge", "softmax"]), [("bsp", "squared_hinge")])
)
def test_several_classes_are_trained_in_one_run_whatever_replies_bring(policy: str, loss: str, tmp_path: Path) -> None:
    source, found = three(), []
    for pull in ("changed", "wanted"):
        svm = {**FITTED, "objective": {"loss": loss, "c": 1.0}, "pull": pull, "validation": 0}
        trial = Trial(config(policy, epochs=20, svm=svm), tmp_path / pull)
        trial.shards = shards_of_three(source, tmp_path / f"{pull}-shards")
        try:
            found.append(trial.start().finish())
        finally:
            trial.close()

    examples: Any = Examples.of(source.features, source.labels, classes=3)
    for weights in found:
        assert len(weights) == 3 * 5
        assert score(examples, weights, trial.config.svm.objective, classes=3).f1 > 0.95
    if policy == "bsp":
        np.testing.assert_array_equal(*found)
