"""What a run needs: slices, memory of each server, bytes on the wire, and what links let through."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from paceline.base.extras import needing
from paceline.base.terminal import show
from paceline.core.errors import ConfigError, UsageError
from paceline.core.optimizers.effective import effective, pool_of, settings_lines
from paceline.core.optimizers.groups import grouped
from paceline.core.optimizers.optimizer import Optimizer, build_optimizer
from paceline.core.policies.policy import alternatives_of, build_policy
from paceline.core.settings.config import Config
from paceline.core.slice.plan import Shapes, SlicePlan, make_plan, server_memory
from paceline.core.units import size
from paceline.rpc.memory import retained_bytes
from paceline.rpc.transport import room_for

MiB = 1 << 20
PROCESS = 256 * MiB
"""A server without a model: Python, numpy, numba, gRPC and its threads (bytes)."""
WORKER = 448 * MiB
"""A worker with torch on a CPU, without a model (bytes)."""
WORKER_COPIES = 7
"""Sizes of the model that a worker takes at most, measured with one large layer and momentum (docs/choose/plan.md): weights,
those that came last, gradients, the optimizer's arrays, messages."""
HEADROOM = 1.1
STEP = 64 * MiB
"""Limits are whole multiples of this."""


def read_shapes(path: Path) -> Shapes:
    """[["layer.weight", [64, 64]], ...] from a JSON file; UsageError says what it has instead."""
    try:
        found = json.loads(path.read_text())
        shapes = tuple((str(name), tuple(int(size) for size in shape)) for name, shape in found)
    except OSError as error:
        raise UsageError(f"Can't read the shapes {path}: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise UsageError(
            f'{path} does not hold shapes ({error}); expected JSON like [["layer.weight", [64, 64]], ...].'
        ) from error
    if not shapes or any(size < 1 for _, shape in shapes for size in shape):
        raise UsageError(f"{path} holds no tensors, or an empty one; expected sizes of 1 or more.")
    return shapes


def task_shapes(config: Config) -> Shapes:
    """The shapes of the task's model, which takes torch to find out."""
    if config.updates == "sparse":
        raise ConfigError(
            "A linear model has one weight for each feature, and only the data says how many. Give --shapes FILE with "
            '[["weights", [47236]]].'
        )
    with needing("Finding out the model's shapes without --shapes FILE"):
        from paceline.worker.training.model_and_gradient import Replica
    from paceline.tasks.task import load_task

    return Replica(load_task(config.task, config.model)).shapes


def plan_report(config: Config, shapes: Shapes, bandwidth: float = 10e9, measured: int | None = None) -> dict[str, Any]:
    """Sizes of a run in bytes and elements, and steps per second. `bandwidth`: of a link, each way (bit/s); `measured`: what a
    worker's process took (bytes)."""
    plan = make_plan(shapes, config.servers, config.plan)
    policy = build_policy(config.policy)
    asked = grouped(build_optimizer(config.optimizer), plan.layout())
    slots, arrays, kept = _arrays(config, asked)
    servers, averages = [], config.mean_from is not None
    for index, length in enumerate(plan.lengths):
        memory = server_memory(length, slots, arrays, config.workers, config.part_bytes, config.push_memory, averages)
        limit = math.ceil((HEADROOM * sum(memory.values()) + PROCESS) / STEP) * STEP
        servers.append({"server": index, "elements": length, "bytes": 4 * length, "memory": memory, "limit": limit})
    return {
        "training": settings_lines(config, policy),
        "elements": plan.total,
        "bytes": 4 * plan.total,
        "slices": plan.strategy,
        "imbalance": plan.imbalance,
        "plan": plan.hash,
        "servers": servers,
        "traffic": _traffic(config, plan, bandwidth),
        "worker": _worker(config, plan.total, kept, measured),
        "worker_copies": WORKER_COPIES + kept,
        "retained": retained_bytes(config.checkpoint.retain, config.codec.has_feedback) if config.servers else 0,
    }


def _arrays(config: Config, asked: Optimizer) -> tuple[int, int, int]:
    """Arrays of a slice's length that a server takes for the optimizer and for the policy, and those of the model's length that
    a worker keeps of the optimizer; the most of any policy that may train the run."""
    policy, pool = build_policy(config.policy), pool_of(config)
    others = alternatives_of(config.policy) if policy.changes_itself else []
    each = [policy, *map(build_policy, others)]
    slots = max(may.server_optimizer(effective(pool, asked, may)).slots for may in each)
    keeps = pool is not None and any(may.own_half or pool.has_halves(asked, may) for may in each)
    return slots, max(may.server_arrays(config.workers) for may in each), asked.slots if keeps else 0


def _worker(config: Config, total: int, kept: int, measured: int | None) -> int | None:
    """Memory of a worker (bytes): what is known of one of torch, or what was measured, where that is more; None: not known.
    `kept`: arrays that it keeps of the optimizer."""
    known = None if config.updates == "sparse" else WORKER + (WORKER_COPIES + kept) * 4 * total
    seen = None if measured is None else math.ceil(HEADROOM * measured)
    return max((each for each in (known, seen) if each is not None), default=None)


def _retained(report: Mapping[str, Any]) -> str:
    """What each worker keeps of its pushes, in words."""
    push = f"{size(report['traffic']['push_bytes'])} each"
    why = "pushes that no server has on disk yet"
    if not report["retained"]:
        return f"a worker keeps no {why} (checkpoint.retain=0), and computes them again where a server dies"
    most = size(report["retained"])
    return f"each worker also keeps up to {most} (checkpoint.retain) of {why} ({push})"


def _traffic(config: Config, plan: SlicePlan, bandwidth: float) -> dict[str, Any]:
    """Bytes of a worker's step, and how many steps a second of all workers links of this speed let through: a worker's
    carries its whole model each way, a server's the largest slice for every worker."""
    push, pull = (
        sum(
            room_for(codec.fitted(plan.runs(server)), config.part_bytes, length)
            for server, length in enumerate(plan.lengths)
        )
        for codec in (config.codec.push_codec, config.codec.pull_codec)
    )
    total, largest = plan.total, max(plan.lengths)
    capacity = bandwidth / 8  # bytes/s, in each direction
    busiest = max(push, pull, 1)
    from_workers = config.workers * capacity / busiest
    from_servers = capacity / (busiest * largest / total) if largest else math.inf
    return {
        "push_bytes": push,
        "pull_bytes": pull,
        "gbit": bandwidth / 1e9,
        "steps_per_second": min(from_workers, from_servers),
        "limited_by": "workers' links" if from_workers < from_servers else "servers' links",
    }


def print_report(report: Mapping[str, Any], console: Console) -> None:
    """The report as two tables and a sentence."""
    slices = Table(
        "server", *(Column(name, justify="right") for name in ("elements", "bytes", "suggested memory limit"))
    )
    for server in report["servers"]:
        row = f"{server['elements']:,}", size(server["bytes"]), size(server["limit"])
        slices.add_row(f"server-{server['server']}", *row)
    largest = max(report["servers"], key=lambda server: int(server["elements"]))["memory"]
    memory = Table("memory of the largest slice's server", Column("bytes", justify="right"))
    for purpose, count in (*largest.items(), ("the process itself", PROCESS)):
        memory.add_row(purpose, size(count))
    traffic, is_served = report["traffic"], any(server["elements"] for server in report["servers"])
    cut = f"{report['slices']} slices, imbalance {report['imbalance']:.3f}"
    for line in report["training"]:
        show(console, line)
    show(console, f"model: {report['elements']:,} elements, {size(report['bytes'])}; {cut}")
    console.print(slices, memory)
    if not is_served:  # the workers' messages are the policy's own
        return
    step = f"a step sends {size(traffic['push_bytes'])} and receives {size(traffic['pull_bytes'])}"
    ceiling = (
        f"{traffic['steps_per_second']:,.1f} steps/s of all workers together ({traffic['limited_by']} are full first)"
    )
    if report["worker"] is not None:
        show(console, _of_worker(report))
    show(console, _retained(report))
    show(console, f"{step}; {traffic['gbit']:g} Gbit/s allow {ceiling}")


def _of_worker(report: Mapping[str, Any]) -> str:
    """A worker's memory in words, and where the number comes from."""
    worker = f"each worker takes up to {size(report['worker'])} of memory"
    copies = report["worker_copies"]
    if report["worker"] != WORKER + copies * report["bytes"]:
        return f"{worker}, a tenth more than the probe's"
    return f"{worker} on a CPU ({size(WORKER)}, and {copies} times the model); activations and data come on top"
