"""The figures to reach: ratios of two rows of one interleaved run (lower is better), each with a must and a goal."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Measured

Key = tuple[str, int, int]
"""(contender, workers, servers)."""
UNASKED = "was not in this run"
"""How the verdict ends where a row was not asked for."""


@dataclass(frozen=True)
class Target:
    """One line of the table of targets. Without a `below` it is a cost of the `above` row itself."""

    number: str
    measure: str
    above: Key
    below: Key | None
    must: float
    goal: float
    cost: str = ""


TARGETS = (
    Target("1", "fp32 W1S1 / tutorial gRPC", ("paceline-asp", 1, 1), ("tutorial-grpc", 1, 1), 0.20, 0.12),
    Target(
        "2",
        "fp32 W1S1 / TensorFlow PS",
        ("paceline-asp", 1, 1),
        ("tensorflow-ps", 1, 1),
        0.95,
        0.80,
    ),
    Target("3", "fp32 W1S1 / torch RPC", ("paceline-asp", 1, 1), ("torch-rpc", 1, 1), 1.30, 1.00),
    Target(
        "4a",
        "fp16 wire (lossy) / torch RPC",
        ("paceline-asp-fp16", 1, 1),
        ("torch-rpc", 1, 1),
        1.05,
        0.75,
    ),
    Target(
        "4b",
        "bf16 wire (lossy) / torch RPC",
        ("paceline-asp-bf16", 1, 1),
        ("torch-rpc", 1, 1),
        1.05,
        0.75,
    ),
    Target("5", "BSP W2S1 / ASP W2S1", ("paceline-bsp", 2, 1), ("paceline-asp", 2, 1), 1.15, 1.0),
    Target("6", "minor faults per GB, W1S1", ("paceline-asp", 1, 1), None, 8000, 10, "minor_faults_per_gb"),
    Target("lane 1", "lane W1S1 / torch RPC", ("lane-asp", 1, 1), ("torch-rpc", 1, 1), 0.60, 0.45),
    Target("lane 2", "lane W4S2 / torch RPC", ("lane-asp", 4, 2), ("torch-rpc", 4, 2), 0.50, 0.38),
    Target("lane 3", "lane W1S1 / grpcio data plane", ("lane-asp", 1, 1), ("paceline-asp", 1, 1), 0.60, 0.45),
    Target("lane 4", "lane BSP W4S2 / Gloo W4", ("lane-bsp", 4, 2), ("gloo", 4, 1), 1.3, 1.0),
    Target("lane 5", "lane BSP bf16 (lossy) W4S2 / Gloo W4", ("lane-bsp-bf16", 4, 2), ("gloo", 4, 1), 0.9, 0.6),
    Target("lane 6", "lane minor faults per GB, W1S1", ("lane-asp", 1, 1), None, 100, 10, "minor_faults_per_gb"),
    Target("lane 7", "lane TLS / grpcio TLS", ("lane-asp-tls", 1, 1), ("paceline-asp-tls", 1, 1), 0.70, 0.50),
    Target("9", "W2: 4 servers / 1 server", ("paceline-asp", 2, 4), ("paceline-asp", 2, 1), 1.15, 1.0),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a target."""

    target: Target
    value: float | None
    """From the medians."""
    best: float | None
    """From the fastest exchanges: what a quiet machine would show."""
    verdict: str
    """goal, must, missed, or 'not measured: why'."""


def judge(results: Sequence[Measured], targets: Sequence[Target] = TARGETS) -> list[Outcome]:
    """Every target against the rows that were measured."""
    rows = {result.entry.key: result for result in results}
    return [_judge(target, rows) for target in targets]


def _judge(target: Target, rows: dict[Key, Measured]) -> Outcome:
    keys = [key for key in (target.above, target.below) if key is not None]
    reason = next((_missing(key, rows) for key in keys if _missing(key, rows)), "")
    if reason:
        return Outcome(target, None, None, f"not measured: {reason}")
    above = rows[target.above]
    if target.below is None:
        value = above.cost(target.cost)
        return Outcome(
            target, value, None, "not measured: it does not tell" if value is None else _verdict(target, value)
        )
    below = rows[target.below]
    value = above.median / below.median
    return Outcome(target, value, above.best / below.best, _verdict(target, value))


def _missing(key: Key, rows: dict[Key, Measured]) -> str:
    """Why a row can't be used, empty where it can."""
    name = f"{key[0]} W{key[1]}S{key[2]}"
    if key not in rows:
        return f"{name} {UNASKED}"
    return f"{name} failed" if not rows[key].seconds else ""


def _verdict(target: Target, value: float) -> str:
    return "goal" if value <= target.goal else "must" if value <= target.must else "missed"
