"""The training loop against a scripted client: what it pushes, and what it makes of the replies."""

import threading
from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import Behind, ConfigError, Fenced
from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.clip import Clip
from paceline.core.optimizers.effective import Pool
from paceline.core.policies.builtin.asp import Asp
from paceline.core.policies.policy import Policy, build_policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.settings.config import ClipConfig, Options, PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.core.values import AS_SET, Base, Dense, Empty, Manner, Position, Switch, Update, Vector
from paceline.data.sampler import Sampler
from paceline.rpc.conversions import switch_message
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.parting import Parting

loop = pytest.importorskip("paceline.worker.training.training_loop")
steps_module = pytest.importorskip("paceline.worker.training.between_pushes")
state = pytest.importorskip("paceline.worker.training.training_state")
way = pytest.importorskip("paceline.worker.training.way")
Step = pytest.importorskip("paceline.worker.training.model_and_gradient").Step
SHAPES = (("a.weight", (2,)), ("b.weight", (3,)), ("c.weight", (2,)))
PLAN = make_plan(SHAPES, 2, PlanConfig(slices="layerwise"))
"""Server 0 has a and c, two ranges; server 1 has b."""
LR = 0.5


class Replica:
    """A model whose gradient is what the test says; None for one that is not finite."""

    def __init__(self, gradients: list[float | None]) -> None:
        self.length = self.weights_end = 7
        self.shapes = SHAPES
        self.local: Vector = np.arange(7, dtype=np.float32)
        self.gradients = gradients
        self.seeds: list[int] = []
        self.seen: list[float] = []
        """The first weight at each gradient."""
        self.examples: list[int] = []
        self.refreshed = 0
        self.own: list[Any] = []
        """What is to step it, for each policy that begins."""
        self.forgotten = 0
        self.fails_at = -1
        self.loaded = 0.0
        self.steps_itself = False
        self._memory = [np.zeros(7, np.float32), np.zeros(7, np.float32)]

    def gradient(self, features: Any, labels: Any, seed: int, rng: np.random.Generator) -> Any:
        if len(self.seeds) == self.fails_at:
            raise ConfigError("loss() of the task failed.")
        value = self.gradients[len(self.seeds) % len(self.gradients)]
        self.seeds.append(seed)
        self.seen.append(float(self.local[0]))
        self.examples.append(len(features))
        self._memory[0][:] = np.nan if value is None else value
        return Step(self._memory[0], 1.0, len(features), value is not None)

    def begins_policy(self, policy: Any) -> None:
        """Nothing depends on it."""

    def own_steps(self, asked: Any, decay: float = 1.0) -> Any:
        self.own.append(asked)
        return asked

    def forget_steps(self) -> None:
        self.forgotten += 1

    def refresh(self) -> None:
        self.refreshed += 1

    def keep_gradient(self) -> None:
        self._memory.reverse()

    def clipped(self) -> None:
        return


class Client:
    """All servers: answers push c with weights of 100 c and the heads that the test gives, stops at the last clock."""

    def __init__(self, last: int, switch_at: int = 0, switch: Switch | None = None, **heads: Any) -> None:
        self.links = [SimpleNamespace(ranges=ranges) for ranges in PLAN.slices]
        self.last = last
        self.heads = heads
        self.lr = LR
        self.is_stale = False
        self.pulled = 0.0
        self.switch_at = switch_at
        self.switch = switch
        self.bases = [Base(1, 0)] * 2
        self.pushes: list[tuple[int, Update, int]] = []
        self.values: list[float] = []
        """The first element of each push, read when its reply is waited for."""
        self.pushed_bases: list[int] = []
        self.manners: list[Manner] = []
        self.error: Exception | None = None
        self.parting = Parting(threading.Event(), can_push=True)
        self.owes = False

    def begin_push(
        self,
        clock: int,
        view: int,
        update: Update,
        examples: int,
        choose: Callable[[int, pb.PullHead], Vector] | None,
        bases: Sequence[Base],
        manner: Manner = AS_SET,
        position: Position | None = None,
        spared: Collection[int] = (),
    ) -> Callable[[], list[pb.PullHead]]:
        """The weights come as early as they can: at once."""
        self.pushes.append((clock, update, examples))
        self.pushed_bases.append(bases[0].version)
        self.manners.append(manner)
        heads = []
        for server, ranges in enumerate(PLAN.slices):
            facts = {key: values[server] for key, values in self.heads.items() if values[server] is not None}
            begun = switch_message(self.switch, 9) if clock >= self.switch_at else None
            facts = {"outcome": pb.OUTCOME_FOLDED} | facts
            head = pb.PullHead(lr=LR, stop=clock == self.last, switch=begun, **facts)
            if choose is not None:
                target = choose(server, head)
                for part in ranges:
                    target[part.start : part.stop] = 100.0 * clock
            heads.append(head)
        return lambda: self.end(clock, update, heads)

    def end(self, clock: int, update: Update, heads: list[pb.PullHead]) -> list[pb.PullHead]:
        if self.error is not None:
            raise self.error
        self.values.append(float(update.values[0]) if isinstance(update, Dense) else 0.0)
        self.bases = [Base(1, clock)] * 2
        return heads

    def forget_owed(self) -> None:
        """Nothing is."""

    def check_level(self, in_force: PolicyInForce, versions: Sequence[int]) -> None:
        in_force.check_level(versions)

    def pull(self, target: Vector, version: int | None = None) -> None:
        target[:] = -1.0
        self.bases = [Base(1, 77)] * 2


class Progress:
    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.steps: list[tuple[int, int, float]] = []
        self.finite: list[bool] = []
        self.phases: list[str] = []
        self.rates: list[int] = []

    def enter(self, phase: str) -> None:
        self.phases.append(phase)

    def loaded(self, seconds: float) -> None:
        return

    def went_back(self) -> None:
        return

    def computed(self, examples: int, seconds: float) -> None:
        self.rates.append(examples)

    def stepped(self, clock: int, epoch: int, step: Any, heads: Any, alpha: float, pulled: float | None) -> None:
        self.steps.append((clock, epoch, alpha))
        self.finite.append(step is not None and step.finite)


class Slowness:
    def __init__(self) -> None:
        self.shares: list[float] = []

    def delay(self, clock: int, share: float = 1.0) -> None:
        self.shares.append(share)


def training(
    policy: Policy,
    client: Client,
    replica: Replica,
    sizes: list[int] | None = None,
    steps: int = 2,
    batch: int = 2,
    speed: float = 1.0,
    **more: Any,
) -> Any:
    sizes = sizes or [4]
    shards = [SimpleNamespace(features=np.zeros((size, 1)), labels=np.zeros(size, np.int64)) for size in sizes]
    stream = way.Stream(Sampler(sizes, batch, steps, 0, "worker-0"), shards)
    streams, end = way.Streams(lambda number: stream, steps), more.pop("passes", 10**9) * steps
    asked = {"optimizer": Sgd(lr=9.0, momentum=0.0, weight_decay=0.0), "clip": Clip(ClipConfig())} | more
    return state.Training(
        replica=replica,
        client=client,
        in_force=PolicyInForce(policy),
        asked=state.StepSettings(**asked),
        batches=state.Batches(streams=streams, way=way.Way(0, None, end), seed=0),
        progress=Progress(speed),
        slowness=Slowness(),
    )


@pytest.fixture(autouse=True)
def rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        steps_module, "take", lambda shards, which, rows: (np.zeros((len(rows), 1)), np.zeros(len(rows)))
    )


def policy(name: str, **options: object) -> Policy:
    return build_policy(Options(name=name, **options))


def test_clocks_go_up_by_one_until_a_server_says_stop() -> None:
    client = Client(5)
    play = training(policy("asp"), client, Replica([1.0]))
    assert loop.train(play, 2) == 5
    assert [clock for clock, _, _ in client.pushes] == [3, 4, 5]
    assert [(clock, epoch) for clock, epoch, _ in play.progress.steps] == [(3, 1), (4, 1), (5, 2)]


def test_alpha_one_copies_the_weights_so_that_even_nan_heals() -> None:
    replica = Replica([1.0])
    replica.local[:] = np.nan
    loop.train(training(policy("asp"), Client(1), replica), 0)
    assert replica.local.tolist() == [100.0] * 7
    assert replica.refreshed == 1


def test_shat_takes_its_own_step_and_mixes_slice_by_slice_over_all_ranges() -> None:
    replica = Replica([2.0])
    client = Client(1, others=[None, 3], members=[4, 4])
    loop.train(training(policy("shat", alpha=0.25), client, replica), 0)
    # server 0 (a, c): the first push since the join, so alpha 1; server 1 (b): u = local - 0.5 * 2, then 3/4 u + 100/4
    assert replica.local.tolist() == [100.0, 100.0, 25.75, 26.5, 27.25, 100.0, 100.0]


def test_shats_own_step_is_the_runs_optimizers_where_it_is_asked_for_while_gradients_are_pushed() -> None:
    """Velocity 2, then 2 + .5 * 2; rate .5; alpha 0."""
    replica, client = Replica([2.0]), Client(2, others=[1, 1], members=[4, 4])
    own = policy("shat", alpha=0.0, local_step="optimizer")
    loop.train(training(own, client, replica, optimizer=Sgd(lr=9.0, momentum=0.5, weight_decay=0.0)), 0)
    assert replica.local.tolist() == [place - 1.0 - 1.5 for place in range(7)]
    assert client.values == [2.0, 2.0]


def test_no_gradient_is_computed_on_weights_of_different_rounds() -> None:
    client = Client(5, version=[4, 5])
    with pytest.raises(Behind, match=r"weights of rounds 4, 5; a gradient needs those of one round"):
        loop.train(training(policy("bsp"), client, Replica([1.0])), 3)
    assert len(client.pushes) == 1


def test_alpha_zero_keeps_the_own_step_and_nothing_of_the_servers() -> None:
    replica = Replica([2.0])
    loop.train(training(policy("shat", alpha=0.0), Client(1, others=[1, 1], members=[4, 4]), replica), 0)
    assert replica.local.tolist() == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


class Beyond(Asp):
    """Pulls beyond the weights of the servers."""

    def alpha(self, others: int | None, members: int) -> float:
        return 1.5


def test_a_dropped_push_pulls_no_harder_than_a_copy() -> None:
    replica = Replica([2.0])
    loop.train(training(Beyond(), Client(1, outcome=[pb.OUTCOME_DROPPED, pb.OUTCOME_FOLDED]), replica), 0)
    # server 0 (a, c) dropped it: a copy; server 1 (b): local + 1.5 * (100 - local)
    assert replica.local.tolist() == [100.0, 100.0, 149.0, 148.5, 148.0, 100.0, 100.0]


def test_a_dropped_push_pulls_as_weakly_as_the_policy_says() -> None:
    replica = Replica([None])
    client = Client(1, outcome=[pb.OUTCOME_DROPPED, pb.OUTCOME_FOLDED], others=[3, 3], members=[4, 4])
    loop.train(training(policy("shat", alpha=0.25), client, replica), 0)
    assert replica.local.tolist() == [25.0, 25.75, 26.5, 27.25, 28.0, 28.75, 29.5]


def test_a_gradient_that_is_not_finite_is_pushed_as_an_empty_update_and_not_stepped() -> None:
    replica = Replica([None, 2.0])
    client = Client(2, others=[1, 1], members=[4, 4])
    loop.train(training(policy("shat", alpha=0.0), client, replica), 0)
    assert [(type(update), examples) for _, update, examples in client.pushes] == [(Empty, 0), (Dense, 2)]
    assert replica.local.tolist() == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("name", "options"), [("local_sgd", {}), ("ensemble", {"local_step": "optimizer"}), ("easgd", {"tau": 8})]
)
def test_own_steps_that_have_exploded_are_pushed_as_an_empty_update_and_count_as_bad(
    name: str, options: dict[str, Any]
) -> None:
    replica, client = Replica([3e38]), Client(3)
    play = training(policy(name, **options), client, replica, optimizer=Sgd(lr=10.0, momentum=0.0, weight_decay=0.0))
    loop.train(play, 0)

    *_, (_, update, examples) = client.pushes
    assert (type(update), examples, play.progress.finite[-1]) == (Empty, 0, False)


def test_after_its_passes_a_worker_computes_nothing_more() -> None:
    """Three steps a clock, two passes of two mini-batches: four steps, in two clocks."""
    replica, client = Replica([1.0]), Client(3)
    loop.train(training(policy("local_sgd", steps=3), client, replica, passes=2), 0)

    assert len(replica.seeds) == 4
    assert [examples for _, _, examples in client.pushes] == [6, 2, 0]


def test_a_step_without_examples_is_pushed_as_an_empty_update() -> None:
    client = Client(3)
    loop.train(training(policy("bsp"), client, Replica([1.0]), sizes=[2], steps=3), 0)
    assert sorted(examples for _, _, examples in client.pushes) == [0, 1, 1]
    assert all(isinstance(update, Empty) == (examples == 0) for _, update, examples in client.pushes)


def test_the_seed_of_a_step_depends_on_its_clock_alone() -> None:
    whole, rest = Replica([1.0]), Replica([1.0])
    loop.train(training(policy("asp"), Client(6), whole), 0)
    loop.train(training(policy("asp"), Client(6), rest), 3)
    assert whole.seeds[3:] == rest.seeds
    assert len(set(whole.seeds)) == 6


def test_the_loop_keeps_clipped_what_is_above_the_limit() -> None:
    client = Client(1)
    clip = Clip(ClipConfig(norm=7**0.5))  # the norm of seven ones
    loop.train(training(policy("asp"), client, Replica([3.0]), clip=clip), 0)
    assert client.values == pytest.approx([1.0])


def test_running_statistics_behind_the_weights_are_neither_measured_nor_clipped() -> None:
    client, replica = Client(1), Replica([3.0])
    replica.weights_end = 4
    loop.train(training(policy("asp"), client, replica, clip=Clip(ClipConfig(norm=2.0))), 0)

    update = client.pushes[0][1]
    assert isinstance(update, Dense)
    assert update.values == pytest.approx([1.0] * 4 + [3.0] * 3)  # 2 is the norm of four ones


def test_a_worker_pushes_its_own_momentum_where_there_are_several_workers() -> None:
    """v = .5 v + g and g + .5 v: 1.5 of a first gradient of 1, then 1.75, 1.875 of the same."""
    client, sgd = Client(3), Sgd(lr=1.0, momentum=0.5, weight_decay=0.0)
    loop.train(training(policy("asp"), client, Replica([1.0]), optimizer=sgd, pool=Pool(4, 0.25)), 0)
    assert client.values == pytest.approx([1.5, 1.75, 1.875])


def test_own_steps_between_two_pushes_use_the_rate_of_the_last_reply() -> None:
    replica, client = Replica([2.0]), Client(1)
    loop.train(training(policy("local_sgd", steps=3), client, replica), 0)
    # three steps of 0.5 * 2 each: the first weight goes 0, -1, -2, -3, and what is pushed is start - local
    assert replica.seen == [0.0, -1.0, -2.0]
    assert client.values == [3.0]
    assert client.pushes[0][2] == 6


# computation while a push is on its way
@pytest.mark.parametrize(
    ("name", "overlap", "seen", "bases"),
    [
        ("asp", False, [0.0, 100.0, 200.0, 300.0], [0, 1, 2, 3]),
        # clocks 1 and 2 on the first weights, clock 3 on what came with clock 1's reply, and so on
        ("asp", True, [0.0, 0.0, 100.0, 200.0, 300.0], [0, 0, 1, 2]),
        ("bsp", True, [0.0, 100.0, 200.0, 300.0], [0, 1, 2, 3]),
    ],
    ids=["without overlap", "with overlap", "a policy that needs each reply first"],
)
def test_with_overlap_a_gradient_is_computed_on_the_weights_before_the_last_reply(name, overlap, seen, bases) -> None:
    replica, client = Replica([1.0]), Client(4)
    loop.train(training(policy(name), client, replica, overlap=overlap), 0)
    assert (replica.seen, client.pushed_bases) == (seen, bases)
    assert replica.local.tolist() == [400.0] * 7


def test_with_overlap_every_clock_is_pushed_once_in_order_and_the_gradient_after_the_last_never() -> None:
    replica, client = Replica([1.0, 2.0, 3.0]), Client(5)
    play = training(policy("ssp"), client, replica, overlap=True)
    assert loop.train(play, 2) == 5
    assert [clock for clock, _, _ in client.pushes] == [3, 4, 5]
    assert [clock for clock, _, _ in play.progress.steps] == [3, 4, 5]
    assert len(replica.seeds) == 4
    plain = Replica([1.0])
    loop.train(training(policy("ssp"), Client(5), plain), 2)
    assert replica.seeds[:3] == plain.seeds


def test_what_is_sent_does_not_change_while_the_next_gradient_is_computed() -> None:
    client = Client(3)
    loop.train(training(policy("asp"), client, Replica([1.0, 2.0, 3.0]), overlap=True), 0)
    assert client.values == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("new", ["bsp", "ssp"])
def test_a_gradient_from_before_a_change_of_policy_is_computed_anew(new: str) -> None:
    replica, client = Replica([1.0]), Client(4, switch_at=2, switch=Switch(1, {"name": new}, 20))
    play = training(policy("asp"), client, replica, overlap=True)
    loop.train(play, 0)
    # clock 3 was computed on 100 while clock 2 was on its way, then again on the weights pulled after the change
    assert replica.seen[:4] == [0.0, 0.0, 100.0, -1.0]
    assert replica.seen[4:] == ([300.0] if new == "bsp" else [-1.0, 300.0])
    assert replica.seeds[2] == replica.seeds[3]
    assert [clock for clock, _, _ in client.pushes] == [1, 2, 3, 4]
    assert client.pushed_bases == [0, 0, 77, 3 if new == "bsp" else 77]
    assert (play.in_force.number, play.view) == (1, 9)


@pytest.mark.parametrize("back", [(), (5, 5)])
def test_own_steps_are_forgotten_where_the_run_goes_back(back: tuple[int, ...]) -> None:
    replica = Replica([1.0])
    switch = Switch(1, {"name": "local_sgd"}, 20, back=back)
    loop.train(training(policy("local_sgd"), Client(3, switch_at=2, switch=switch), replica), 0)
    assert (len(replica.own), replica.forgotten) == (2, int(bool(back)))


class Seeded(Replica):
    """Its gradients follow from the mini-batch, as those of real models do."""

    def gradient(self, features: Any, labels: Any, seed: int, rng: np.random.Generator) -> Any:
        self.gradients = [seed % 97 / 97]
        return super().gradient(features, labels, seed, rng)


MOMENTUM, ADAM = Sgd(lr=0.1, momentum=0.9, weight_decay=0.0), Adam(lr=0.1)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    ("name", "options", "optimizer", "remembers"),
    [
        ("asp", {}, MOMENTUM, True),
        ("asp", {}, ADAM, True),
        ("ssp", {}, Sgd(lr=0.1, momentum=0.0, weight_decay=0.0), False),
        ("bsp", {}, MOMENTUM, False),  # the servers have it
        ("dana", {}, MOMENTUM, True),
        ("shat", {}, ADAM, True),
        ("shat", {"local_step": "optimizer"}, ADAM, True),
        ("local_sgd", {}, MOMENTUM, True),
        ("diloco", {}, ADAM, True),
        ("easgd", {}, MOMENTUM, True),
    ],
)
def test_a_worker_that_goes_back_pushes_what_one_that_is_started_again_would(
    name: str, options: dict[str, Any], optimizer: Any, remembers: bool, overlap: bool
) -> None:
    def pushed(replica: Replica, after: int) -> list[float]:
        client = Client(6)
        replica.local[:] = 7.0  # as pulled
        play = training(
            policy(name, **options), client, replica, optimizer=optimizer, pool=Pool(2, 0.5), overlap=overlap
        )
        assert play.remembers is remembers
        loop.train(play, after)
        return client.values

    one = Seeded([])

    first, again, other = pushed(one, 0), pushed(one, 3), pushed(Seeded([]), 3)

    assert again == other
    assert (len(first), len(again)) == (6, 3)


@pytest.mark.parametrize(
    ("name", "is_asked"), [("local_sgd", True), ("easgd", True), ("downpour", False), ("bsp", False)]
)
def test_a_scripts_optimizer_steps_where_servers_take_the_steps_as_they_are(name: str, is_asked: bool) -> None:
    replica = Replica([1.0])
    training(policy(name), Client(1), replica, optimizer=Sgd(lr=0.5, momentum=0.9, weight_decay=0.0))
    assert [each is not None for each in replica.own] == [is_asked]


def test_an_exchange_that_fails_while_the_worker_computes_is_told_after_it() -> None:
    replica, client = Replica([1.0]), Client(4)
    client.error = Fenced("lease lapsed")
    play = training(policy("asp"), client, replica, overlap=True)
    with pytest.raises(Fenced, match="lease lapsed"):
        loop.train(play, 0)
    assert play.progress.steps == []
    assert replica.local.tolist() == list(range(7))


def test_a_gradient_that_fails_while_a_push_is_on_its_way_ends_the_training() -> None:
    replica, client = Replica([1.0]), Client(4)
    replica.fails_at = 1
    with pytest.raises(ConfigError, match="the task failed"):
        loop.train(training(policy("asp"), client, replica, overlap=True), 0)
    assert [clock for clock, _, _ in client.pushes] == [1]


# mini-batches by speed
@pytest.mark.parametrize(
    ("speed", "by_speed", "examples"),
    [(1.0, True, 8), (0.5, True, 4), (0.27, True, 2), (0.01, True, 2), (0.5, False, 8)],
    ids=["fastest", "half", "quarter", "hardly", "not by speed"],
)
def test_a_slower_worker_takes_a_smaller_part_of_each_mini_batch_where_that_is_asked_for(
    speed: float, by_speed: bool, examples: int
) -> None:
    replica, client = Replica([1.0]), Client(2)
    play = training(policy("asp"), client, replica, [16], batch=8, speed=speed, by_speed=by_speed)
    loop.train(play, 0)
    assert replica.examples == play.progress.rates == [examples] * 2
    assert [examples for _, _, examples in client.pushes] == [examples] * 2
    assert play.slowness.shares == [examples / 8] * 2


def test_a_mini_batch_by_speed_is_never_larger_than_the_whole() -> None:
    client = Client(2)
    play = training(policy("bsp"), client, Replica([1.0]), [1], steps=2, speed=0.1, by_speed=True)
    loop.train(play, 0)
    assert sorted(count for _, _, count in client.pushes) == [0, 1]
