"""A worker whose gradients say how to step with them: what it does itself of that, and what it tells the servers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.effective import Pool
from paceline.core.optimizers.optimizer import Group, Optimizer
from paceline.core.values import AS_SET, Dense, GroupOption, Manner, Update, Vector
from paceline.v1 import parameter_service_pb2 as pb
from tests.worker.training.test_training_loop import SHAPES, Client, Replica, loop, policy, training

RATES = Manner(rates=(0.5, 0.1), untouched=(2,))
GROUPS = (Group(parameters=("b.*",), lr=0.2),)
"""b's rate is a tenth of the others'."""
PLAIN = Sgd(lr=2.0, momentum=0.0, weight_decay=0.0, groups=GROUPS)


class Telling(Replica):
    """Its gradients say how to step with them."""

    def __init__(self, gradients: list[float | None], *manners: Manner) -> None:
        super().__init__(gradients)
        self.manners = manners

    def gradient(self, features: Any, labels: Any, seed: int, rng: np.random.Generator) -> Any:
        manner = self.manners[len(self.seeds) % len(self.manners)]
        step = super().gradient(features, labels, seed, rng)
        return replace(step, manner=manner)


class Noting(Client):
    """Keeps what is pushed."""

    def __init__(self, last: int, **heads: Any) -> None:
        super().__init__(last, **heads)
        self.pushed: list[Vector] = []

    def begin_push(
        self, clock: int, view: int, update: Update, *more: Any, **others: Any
    ) -> Callable[[], list[pb.PullHead]]:
        assert isinstance(update, Dense)
        self.pushed.append(update.values.copy())
        return super().begin_push(clock, view, update, *more, **others)


def test_what_a_gradient_says_goes_to_the_servers() -> None:
    client = Noting(2)
    loop.train(training(policy("asp"), client, Telling([1.0], RATES, AS_SET), optimizer=PLAIN), 0)
    assert client.manners == [RATES, AS_SET]


@pytest.mark.parametrize("name", ["local_sgd", "diloco", "easgd"])
def test_what_workers_have_stepped_with_already_is_not_told_again(name: str) -> None:
    client = Noting(1)
    loop.train(training(policy(name), client, Telling([1.0], RATES), optimizer=PLAIN), 0)
    assert client.manners == [AS_SET]


def test_own_steps_take_rates_of_groups_and_leave_tensors_alone() -> None:
    client = Noting(1)
    replica = Telling([2.0], RATES, replace(RATES, rates=(1.0, 0.0)))
    loop.train(training(policy("local_sgd", steps=2), client, replica, optimizer=PLAIN), 0)
    # the last reply's rate is .5, for b .05: a moves by .5 (.5 + 1) 2, b by .05 (.1 + 0) 2
    np.testing.assert_allclose(client.pushed[0], [1.5] * 2 + [0.01] * 3 + [0.0] * 2, atol=1e-6)


def test_own_steps_of_adam_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    values = [1.0, -2.0, 0.5, 3.0]
    manners = [Manner((1.0,), (0,)), Manner((0.5,)), AS_SET, Manner((2.0,), (1, 2))]
    replica = Telling(list(values), *manners)
    tensors = [torch.tensor(part.copy(), requires_grad=True) for part in np.split(replica.local, [2, 5])]
    adam = torch.optim.Adam(tensors, lr=0.5, weight_decay=0.1)
    client = Noting(1)

    loop.train(
        training(policy("local_sgd", steps=4), client, replica, optimizer=Adam(lr=9.0, weight_decay=0.1), steps=4), 0
    )
    first = np.arange(7, dtype=np.float32)
    for value, manner in zip(values, manners, strict=True):
        adam.param_groups[0]["lr"] = 0.5 * (manner.rates[0] if manner.rates else 1)
        for number, tensor in enumerate(tensors):
            tensor.grad = None if number in manner.untouched else torch.full_like(tensor, value)
        adam.step()

    moved = first - np.concatenate([tensor.detach().numpy() for tensor in tensors])
    np.testing.assert_allclose(client.pushed[0], moved, rtol=1e-5, atol=1e-6)


def test_shats_own_step_is_that_of_each_group() -> None:
    replica = Telling([2.0], RATES)
    client = Client(1, others=[1, 1], members=[4, 4])
    loop.train(training(policy("shat", alpha=0.0), client, replica, optimizer=PLAIN), 0)
    # a: .5 * .5 * 2; b: .05 * .1 * 2; c is left alone
    np.testing.assert_allclose(replica.local, [-0.5, 0.5, 1.99, 2.99, 3.99, 5, 6])


@pytest.mark.parametrize("told", [AS_SET, RATES])
def test_downpour_pushes_the_sum_of_its_gradients_whatever_their_rates(told: Manner) -> None:
    client = Noting(1)
    play = training(policy("downpour", push_every=3), client, Telling([2.0], told), optimizer=PLAIN, steps=3)
    loop.train(play, 0)
    np.testing.assert_allclose(client.pushed[0], [6.0] * 5 + [0.0 if told.untouched else 6.0] * 2, rtol=1e-5)
    assert client.manners == [told]


@pytest.mark.parametrize("name", ["asp", "dana"])
def test_momentum_at_the_workers_is_each_groups_and_stays_where_nothing_is_touched(name: str) -> None:
    group = Group(parameters=("b.*",), momentum=0.0, weight_decay=0.1)
    asked: Optimizer = Sgd(lr=1.0, momentum=0.5, weight_decay=0.0, groups=(group,))
    client, pool = Noting(2), Pool(4, 0.25)
    replica = Telling([1.0], AS_SET, Manner(untouched=(2,)))
    loop.train(training(policy(name), client, replica, optimizer=asked, pool=pool), 0)
    np.testing.assert_allclose(client.pushed[0], [1.5, 1.5, 1.2, 1.3, 1.4, 1.5, 1.5])
    np.testing.assert_allclose(client.pushed[1], [1.75, 1.75, 11, 11, 11, 1.0, 1.0])  # all weights are 100 by now


@pytest.mark.parametrize("name", ["asp", "dana"])
@pytest.mark.parametrize("first", [0.0, 0.5])
def test_momentum_at_the_workers_follows_the_scripts(name: str, first: float) -> None:
    asked = Sgd(lr=1.0, momentum=first, weight_decay=0.0)
    client, pool = Noting(3), Pool(4, 0.25)
    manners = [Manner(options=(GroupOption(0, "momentum", (value,)),)) for value in (0.8, 0.5, 0.2)]
    loop.train(training(policy(name), client, Telling([1.0], *manners), optimizer=asked, pool=pool), 0)
    # velocities 1, 1.5, 1.3
    assert [pushed[0] for pushed in client.pushed] == pytest.approx([1 + 0.8 * 1, 1 + 0.5 * 1.5, 1 + 0.2 * 1.3])


def test_a_gradient_to_climb_by_is_turned_round_before_anything_else() -> None:
    climbing = Sgd(
        lr=1.0, momentum=0.5, weight_decay=0.0, maximize=True, groups=(Group(parameters="b.*", maximize=False),)
    )
    client = Noting(1)
    play = training(policy("asp"), client, Replica([2.0]), optimizer=climbing, pool=Pool(4, 0.25))
    loop.train(play, 0)
    assert client.pushed[0].tolist() == [-3.0] * 2 + [3.0] * 3 + [-3.0] * 2


def test_downpour_pushes_what_earlier_mini_batches_have_moved_and_the_last_one_leaves_alone() -> None:
    client = Noting(1)
    replica = Telling([2.0], AS_SET, Manner((1.0, 1.0), (2,)))
    loop.train(training(policy("downpour", push_every=2), client, replica, optimizer=PLAIN), 0)
    np.testing.assert_allclose(client.pushed[0], [4.0] * 5 + [2.0] * 2, rtol=1e-5)


def test_several_mini_batches_leave_alone_what_all_of_them_do() -> None:
    client = Noting(1)
    replica = Telling([1.0], Manner((1.0, 1.0), (1, 2)), Manner((0.5, 1.0), (2,)))
    loop.train(training(policy("downpour", push_every=2), client, replica, optimizer=PLAIN), 0)
    assert client.manners == [Manner((0.5, 1.0), (2,))]


def test_names_that_the_model_does_not_have_are_told() -> None:
    wrong = Sgd(groups=(Group(parameters="d.*", lr=1.0),))
    with pytest.raises(Exception, match=r"no trained parameter is called 'd\.\*'. The model has a\.weight, b\.weight"):
        training(policy("asp"), Client(1), Replica([1.0]), optimizer=wrong)
    assert [name for name, _ in SHAPES] == ["a.weight", "b.weight", "c.weight"]
