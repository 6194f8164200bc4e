"""What several test modules share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import pytest
from hypothesis import settings

from paceline.core.steps.optimizer import Optimizer
from paceline.core.values import Vector

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


class Ledger(Optimizer):
    """Adds the raw sum to the weights, so that they count, exactly, whose pushes are in them."""

    name: ClassVar[str] = "ledger"

    @property
    def slots(self) -> int:
        return 0

    def step(
        self, weights: Vector, out: Vector, gradient: Vector, scale: float, lr: float,
        slots: Sequence[Vector], steps: int,
    ) -> None:  # fmt: skip
        out[:] = weights + gradient


@pytest.fixture(scope="session")
def ledger() -> Optimizer:
    return Ledger()


@pytest.fixture(params=["grpc", "lane"])
def kind(request: pytest.FixtureRequest) -> str:
    """A transport."""
    return str(request.param)


@pytest.fixture
def serve(kind: str) -> Iterator[Callable[..., Any]]:
    """Begins to serve on it, as `fake_service.Served` does; ended with the test."""
    from tests.support.fake_service import Served

    with ExitStack() as started:

        def start(*arguments: Any, **settings: Any) -> Served:
            served = Served(kind, *arguments, **settings)
            started.callback(served.stop)
            return served

        yield start
