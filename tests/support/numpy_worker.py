"""`python -m paceline.worker` without torch: the same loop, client and exit codes around a replica in numpy, so that process
tests start fast. NUMPY_WORKER chooses the replica: softmax (trains), poison (does harm), ledger (counts pushes), samples
(counts the numbered examples of tests/chaos/own/numbered.py), or a big one's size."""

import math
import os
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from paceline.core.values import AS_SET, Manner

Array = npt.NDArray[Any]
WORKERS = 4
"""Workers that the ledger has elements for."""
COMPUTING = 0.004
"""What a gradient takes (seconds): workers that never wait would leave other tests no core."""


@dataclass(frozen=True)
class Step:
    """As paceline.worker.training.model_and_gradient.Step."""

    gradient: Array
    loss: float
    examples: int
    finite: bool = True
    size: float = 1.0
    manner: Manner = AS_SET
    position: None = None
    searches: bool = False


class Softmax:
    """Softmax regression on the digits: 64 pixels, 10 classes."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...] = (("weight", (64, 10)), ("bias", (10,)))
    loaded = 0.0
    steps_itself = False

    def __init__(self, task: Any, device: str = "cpu", seed: int = 0, **computing: Any) -> None:
        self.length = sum(int(np.prod(shape)) for _, shape in self.shapes)
        self.weights_end = self.length
        self.local = np.zeros(self.length, np.float32)

    def begins_policy(self, policy: Any) -> None:
        """Nothing depends on it."""

    def own_steps(self, asked: Any, decay: float = 1.0) -> Any:
        return asked

    def forget_steps(self) -> None:
        """There is no other optimizer than the run's."""

    def tell_device(self, *told: Any) -> None:
        """It is the CPU."""

    def watch_inputs(self, names: Any) -> Any:
        """Pixels are small."""
        return SimpleNamespace(columns=[])

    def refresh(self) -> None:
        return

    def keep_gradient(self) -> None:
        """Every gradient has its own memory, or never changes."""

    leave_gradients = keep_gradient

    def clipped(self) -> None:
        """Nobody else has the gradient."""

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        inputs = features.astype(np.float32) / 16
        # einsum, not @: its bits don't depend on the BLAS library's threads
        scores = np.einsum("ni,ij->nj", inputs, self.local[:640].reshape(64, 10)) + self.local[640:]
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors = odds / odds.sum(axis=1, keepdims=True)
        loss = -float(np.log(errors[np.arange(len(labels)), labels] + 1e-9).mean())
        errors[np.arange(len(labels)), labels] -= 1
        slopes = np.einsum("ni,nj->ij", inputs, errors) / np.float32(len(labels))
        flat = np.concatenate([slopes.ravel(), errors.mean(axis=0)]).astype(np.float32)
        return Step(flat, loss, len(labels))


class Poison(Softmax):
    """Pushes what makes the loss larger, and much of it."""

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        step = super().gradient(features, labels, seed, rng)
        return Step(np.float32(-1e4) * step.gradient, step.loss, step.examples)


class Ledger(Softmax):
    """Element i belongs to worker i % WORKERS and grows by one with each of its pushes (lr 1, no momentum)."""

    shapes = (("ledger", (64 * WORKERS,)),)
    rank: ClassVar[int] = 0

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        flat = np.zeros(self.length, np.float32)
        flat[self.rank :: WORKERS] = -1
        return Step(flat, 0.0, len(labels))


class Samples(Softmax):
    """Row s belongs to server s, and holds two elements for each example: the first counts how often it was in a push, the
    second has a gradient that depends on the weights."""

    shapes = (("samples", (2, 256, 2)),)

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        rows = np.zeros(self.shapes[0][1], np.float32)
        rows[:, features.ravel(), 0] = -1
        rows[:, :, 1] = np.clip(self.local.reshape(rows.shape)[:, :, 1] - 1, -0.01, 0.01)
        return Step(rows.ravel(), 0.0, len(labels))


class Big(Softmax):
    """As many elements as asked for, with a gradient that costs nothing to compute."""

    def __init__(self, task: Any, device: str = "cpu", seed: int = 0, **computing: Any) -> None:
        super().__init__(task, device, seed)
        self._gradient = np.full(self.length, 1e-3, np.float32)

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        return Step(self._gradient, 0.0, len(labels))


def stand_in(mode: str, rank: int) -> type[Softmax]:
    """The replica of the mode."""
    if mode == "ledger":
        Ledger.rank = rank
        return Ledger
    if mode == "samples":
        return Samples
    if mode == "poison":
        return Poison
    if mode.isdigit():
        Big.shapes = (("big", (int(mode),)),)
        return Big
    return Softmax


def paced(replica: type[Softmax]) -> type[Softmax]:
    """The same, but a gradient takes as long as that of a small model."""

    def gradient(self: Softmax, *batch: Any) -> Step:
        time.sleep(COMPUTING)
        return replica.gradient(self, *batch)

    return type(replica.__name__, (replica,), {"gradient": gradient})


def last_clock() -> float:
    """The one in the file `hold`, at which the test holds the workers; infinite where there is none."""
    try:
        return int(Path("hold").read_text())
    except FileNotFoundError:
        return math.inf


def main() -> None:
    """Puts the replica in torch's place and runs the worker, which waits where the test holds it; notes which clocks each
    server answered with DROPPED, and in the file `answered-RANK` which clock all of them answered last."""
    replica = ModuleType("paceline.worker.training.model_and_gradient")
    rank = int(sys.argv[sys.argv.index("--rank") + 1])
    kind = stand_in(os.environ.get("NUMPY_WORKER", ""), rank)
    kind = kind if kind in (Samples, Big) else paced(kind)
    vars(replica).update(Replica=kind, Step=Step, use_threads=lambda threads: None)
    sys.modules["paceline.worker.training.model_and_gradient"] = replica
    from paceline.worker.training import training_loop as loop

    assert "torch" not in sys.modules, "torch takes each worker of these tests two seconds"
    from paceline.processes.exits import run_command
    from paceline.rpc.process import make_log
    from paceline.v1.parameter_service_pb2 import OUTCOME_DROPPED, PullHead
    from paceline.worker.__main__ import main as work
    from paceline.worker.training.training_state import Training

    dropped: dict[int, list[int]] = {}
    mix, say = loop.mix, make_log(f"worker-{rank}")
    note = os.open(f"answered-{rank}", os.O_RDWR | os.O_CREAT)

    def noting(training: Training, heads: list[PullHead], step: Any, has_pulled: bool) -> None:
        mix(training, heads, step, has_pulled)
        os.pwrite(note, struct.pack("<q", heads[0].clock), 0)
        for server, head in enumerate(heads):
            dropped.setdefault(server, []).extend([head.clock] if head.outcome == OUTCOME_DROPPED else [])
        if any(head.stop for head in heads):
            say("last reply", clock=heads[0].clock, dropped=[dropped[server] for server in sorted(dropped)])
            return
        while heads[0].clock >= last_clock() and not training.client._stop.wait(0.01):
            pass  # held, unless a signal ends it

    loop.mix = noting
    run_command(work)


if __name__ == "__main__":
    main()
