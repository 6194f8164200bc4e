"""A chief on a busy node is waited for, with a word of it; one that Kubernetes has given up is not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.errors import ConfigError, ServersGone
from paceline.rpc.enums import phase_of
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s import ask_chief as asking
from paceline_k8s.ask_chief import LONGEST, QUIET, ask_chief
from paceline_k8s.cluster_status import PATIENCE, State
from paceline_k8s.findings import Finding

CLOSED = "UNAVAILABLE: connection refused"
LATE = "DEADLINE_EXCEEDED: Deadline Exceeded"


@dataclass
class Node:
    """One in virtual time, with a chief that answers from some second on."""

    after: float
    why: str = CLOSED
    takes: float = 0.0
    """Each call without an answer (seconds)."""
    error: Callable[[], Exception] | None = None
    """What forwarding its port ends with meanwhile."""
    now: float = 0.0
    tries: int = 0
    said: list[str] = field(default_factory=list)
    namespace: str = "team-a"
    run_name: str = "mine"
    chief_pod: str = "mine-paceline-server-0"

    def status(self) -> StatusReply | None:
        if self.now >= self.after:
            return StatusReply(phase="RUN_PHASE_TRAINING", version=7)
        self.now += self.takes
        return None

    @contextmanager
    def chief(self, kubectl: Any) -> Iterator[Any]:
        self.tries += 1
        if self.error is not None and self.now < self.after:
            raise self.error()
        yield SimpleNamespace(status=self.status, why=self.why)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def ask(self, *troubles: Finding) -> StatusReply:
        state = State({}, [], list(troubles))
        return ask_chief(self, state, self.said.append, lambda: self.now, self.sleep)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Node]:
    def planted(*facts: Any, **more: Any) -> Node:
        node = Node(*facts, **more)
        monkeypatch.setattr(asking, "chief_of", node.chief)
        return node

    return planted


def test_an_answer_that_comes_at_once_needs_no_word(plant: Callable[..., Node]) -> None:
    node = plant(0.0)
    assert node.ask().version == 7
    assert (node.tries, node.said) == (1, [])


@pytest.mark.parametrize(("why", "takes"), [(CLOSED, 0.0), (LATE, PATIENCE)])
def test_a_chief_that_answers_late_is_asked_again_and_that_is_said_once(
    plant: Callable[..., Node], why: str, takes: float
) -> None:
    node = plant(60.0, why, takes)
    assert node.ask().version == 7
    assert 60 <= node.now < 60 + PATIENCE + 2
    (said,) = node.said
    assert f"({why}); asking again, for {LONGEST:.0f} s in all" in said
    assert float(said.split("for ")[1].split(" s")[0]) < QUIET + PATIENCE


def test_a_port_that_can_not_be_forwarded_yet_is_tried_again(plant: Callable[..., Node]) -> None:
    node = plant(20.0, error=lambda: ServersGone("Can't reach mine-paceline-server-0: pod is not running."))
    assert phase_of(node.ask()) == "training"
    assert "pod is not running); asking again" in node.said[0]


def test_a_chief_that_never_answers_ends_it_with_what_was_seen_and_what_to_do(plant: Callable[..., Node]) -> None:
    node = plant(float("inf"))
    with pytest.raises(
        ServersGone, match=r"not answered for 9\d s: UNAVAILABLE.* doctor --run mine -n team-a$"
    ) as raised:
        node.ask()
    assert raised.value.exit_code == 69
    assert node.now < LONGEST + 2
    assert node.tries < LONGEST  # no busy loop


def test_what_no_waiting_mends_is_not_waited_for(plant: Callable[..., Node]) -> None:
    node = plant(60.0)
    with pytest.raises(ServersGone, match="Server 0 does not answer: UNAVAILABLE"):
        node.ask(Finding("pod/mine-paceline-server-0", "its image can't be had", "make images"))
    assert node.tries == 1
    other = Finding("pod/mine-paceline-worker-1", "its image can't be had", "make images")
    passing = Finding("pod/mine-paceline-server-0", "it was started again", "nothing", fatal=False)
    assert node.ask(other, passing).version == 7


def test_a_wrong_token_ends_it_at_once(plant: Callable[..., Node]) -> None:
    node = plant(60.0, error=lambda: ConfigError("wrong token"))
    with pytest.raises(ConfigError, match="wrong token"):
        node.ask()
    assert node.tries == 1
