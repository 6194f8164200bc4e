"""The training loop against a scripted client: what it pushes, and what it makes of the replies."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.core.config import Options, PlanConfig
from paceline.core.plan import make_plan
from paceline.core.policy import Policy, build_policy
from paceline.core.values import Dense, Empty, Update, Vector
from paceline.data.sampler import Sampler
from paceline.v1 import parameter_service_pb2 as pb

loop = pytest.importorskip("worker.loop")
Step = pytest.importorskip("worker.replica").Step
SHAPES = (("a.weight", (2,)), ("b.weight", (3,)), ("c.weight", (2,)))
PLAN = make_plan(SHAPES, 2, PlanConfig(slices="layerwise"))
"""Server 0 has a and c, two ranges; server 1 has b."""
LR = 0.5


class Replica:
    """A model whose gradient is what the test says; None for one that is not finite."""

    def __init__(self, gradients: list[float | None]) -> None:
        self.length = 7
        self.local: Vector = np.arange(7, dtype=np.float32)
        self.gradients = gradients
        self.seeds: list[int] = []
        self.refreshed = 0

    def gradient(self, features: Any, labels: Any, seed: int, rng: np.random.Generator) -> Any:
        value = self.gradients[len(self.seeds) % len(self.gradients)]
        self.seeds.append(seed)
        values = np.full(7, np.nan if value is None else value, np.float32)
        return Step(values, 1.0, len(features), value is not None)

    def refresh(self) -> None:
        self.refreshed += 1


class Client:
    """All servers: answers each push with weights of 100 and the heads that the test gives, stops at the last clock."""

    def __init__(self, last: int, **heads: Any) -> None:
        self.links = [SimpleNamespace(ranges=ranges) for ranges in PLAN.slices]
        self.last, self.heads = last, heads
        self.pushes: list[tuple[int, Update, int]] = []

    def push_pull(
        self, clock: int, view: int, update: Update, examples: int, choose: Callable[[int, pb.PullHead], Vector]
    ) -> list[pb.PullHead]:
        self.pushes.append((clock, update, examples))
        heads = []
        for server, ranges in enumerate(PLAN.slices):
            facts = {key: values[server] for key, values in self.heads.items() if values[server] is not None}
            head = pb.PullHead(outcome=pb.FOLDED, lr=LR, stop=clock == self.last, **facts)
            target = choose(server, head)
            for part in ranges:
                target[part.start : part.stop] = 100.0
            heads.append(head)
        return heads


class Progress:
    def __init__(self) -> None:
        self.steps: list[tuple[int, int, float]] = []

    def enter(self, phase: str) -> None:
        return

    def stepped(self, clock: int, epoch: int, step: Any, heads: Any, alpha: float) -> None:
        self.steps.append((clock, epoch, alpha))


def training(policy: Policy, client: Client, replica: Replica, sizes: list[int] | None = None, steps: int = 2) -> Any:
    sizes = sizes or [4]
    shards = [SimpleNamespace(features=np.zeros((size, 1)), labels=np.zeros(size, np.int64)) for size in sizes]
    slowness = SimpleNamespace(delay=lambda clock: None)
    return loop.Training(
        replica, client, policy, Sampler(sizes, 2, steps, 0, "worker-0"), shards, Progress(), slowness, 0, 0
    )


@pytest.fixture(autouse=True)
def rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "take", lambda shards, which, rows: (np.zeros((len(rows), 1)), np.zeros(len(rows))))


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


def test_alpha_zero_keeps_the_own_step_and_nothing_of_the_servers() -> None:
    replica = Replica([2.0])
    loop.train(training(policy("shat", alpha=0.0), Client(1, others=[1, 1], members=[4, 4]), replica), 0)
    assert replica.local.tolist() == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_gradient_that_is_not_finite_is_pushed_as_an_empty_update_and_not_stepped() -> None:
    replica = Replica([None, 2.0])
    client = Client(2, others=[1, 1], members=[4, 4])
    loop.train(training(policy("shat", alpha=0.0), client, replica), 0)
    assert [(type(update), examples) for _, update, examples in client.pushes] == [(Empty, 0), (Dense, 2)]
    assert replica.local.tolist() == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


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
