"""benchmarks/wide_digits.py, which says in its worker's log how long steps take: from one mini-batch that is prepared to the
next. Also for scripts that prepare their own: benchmarks/timed_digits_script.py."""

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchmarks.wide_digits import SETTINGS, data, model
from benchmarks.wide_digits import prepare as prepare_pixels

if TYPE_CHECKING:
    import torch

__all__ = ["SETTINGS", "data", "model", "prepare"]
WARM = 50
EVERY = 100
_times: list[tuple[float, float]] = []


def prepare(
    features: npt.NDArray[Any], labels: npt.NDArray[Any], rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Pixels and labels. After every this many calls a line with all times since the warm-up: median wall time and mean
    CPU time of a step (seconds)."""
    _times.append((time.perf_counter(), time.process_time()))
    if len(_times) > WARM and len(_times) % EVERY == 0:
        wall, cpu = np.diff(np.array(_times[WARM:]), axis=0).T
        print(json.dumps({"step": float(np.median(wall)), "cpu": float(cpu.mean()), "steps": len(_times)}), flush=True)
    return prepare_pixels(features, labels, rng)
