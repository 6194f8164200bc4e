"""The tables of defaults.py. A combination is as good as plain torch if its mean score over the seeds is at
most a point below plain torch's mean on the same splits, or at most the spread, if that is larger. The spread is the standard
deviation of plain torch's scores over orders of the same examples. A worse one is "told" if the first lines of the run say so,
and "silent" if they do not."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, variance
from typing import TypeVar

from paceline_papers.experiments.defaults_cells import TORCH, Cell, CellResult, is_told

T = TypeVar("T")
POINT = 0.01
Results = Mapping[Cell, CellResult]
Combination = tuple[str, str, int, str, str]
"""Task, optimizer, workers, cluster, policy."""
NAMES = {"sgd": "SGD, momentum", "adam": "Adam", "adamw": "AdamW"}


@dataclass(frozen=True, slots=True)
class Reference:
    """Plain torch's scores of one task and optimizer."""

    by_seed: dict[int, float]
    """The mean over the orders of the examples."""
    spread: float
    """Standard deviation over the orders, all seeds together."""

    @property
    def mean(self) -> float:
        return mean(self.by_seed.values())


@dataclass(frozen=True, slots=True)
class Compared:
    """One combination compared with plain torch."""

    score: float | None
    """Mean over the seeds; None where it is refused."""
    less: float
    """By how much plain torch's is better."""
    is_within: bool
    note: str
    is_told: bool = False
    """Whether it is worse, and its run says so."""

    @property
    def is_silent(self) -> bool:
        return not self.is_within and not self.is_told


COUNTS: dict[str, Callable[[Compared], bool]] = {
    "as good": lambda result: result.is_within,
    "told": lambda result: result.is_told,
    "silent": lambda result: result.is_silent,
}


def references(found: Results) -> dict[tuple[str, str], Reference]:
    """By task and optimizer."""
    scores: dict[tuple[str, str], dict[int, list[float]]] = {}
    for cell, result in found.items():
        if cell.policy.startswith(TORCH) and result.score is not None:
            scores.setdefault((cell.task, cell.optimizer), {}).setdefault(cell.seed, []).append(result.score)
    return {
        what: Reference(
            {seed: mean(orders) for seed, orders in seeds.items()},
            mean([variance(orders) if len(orders) > 1 else 0.0 for orders in seeds.values()]) ** 0.5,
        )
        for what, seeds in scores.items()
    }


def compared(found: Results) -> dict[Combination, Compared]:
    """Every combination compared with plain torch of the same task, optimizer and seeds."""
    scores: dict[Combination, dict[int, CellResult]] = {}
    for cell, result in found.items():
        if not cell.policy.startswith(TORCH):
            what = cell.task, cell.optimizer, cell.workers, cell.cluster, cell.policy
            scores.setdefault(what, {})[cell.seed] = result
    known = references(found)
    return {what: _compared(what, seeds, known[what[:2]]) for what, seeds in scores.items()}


def _compared(what: Combination, seeds: Mapping[int, CellResult], torch: Reference) -> Compared:
    scores = {seed: result.score for seed, result in seeds.items() if result.score is not None}
    if not scores:
        return Compared(None, 0.0, True, next(iter(seeds.values())).note)
    less = mean(torch.by_seed[seed] - score for seed, score in scores.items())
    is_within = less <= max(POINT, torch.spread)
    return Compared(mean(scores.values()), less, is_within, "", not is_within and is_told(Cell(0, *what)))


def summary(found: Results) -> str:
    """How many runs, and what became of their combinations, in one line."""
    results = [result for result in compared(found).values() if result.score is not None]
    good, told, silent = (sum(map(count, results)) for count in COUNTS.values())
    return f"{len(found):,} runs, {good:,} of {len(results):,} combinations as good, {told} told, {silent} silent"


def full(found: Results) -> str:
    """A line for each policy, optimizer and task."""
    known, results = references(found), compared(found)
    columns = _unique((what[2], what[3]) for what in results)
    lines = [_line(["policy", "optimizer", "task", "plain torch", *(_column(*column) for column in columns)])]
    lines += ["|" + "---|" * (4 + len(columns))]
    for policy in _unique(what[4] for what in results):
        for (task, optimizer), torch in known.items():
            there = f"{_number(torch.mean)} ± {_number(torch.spread)}"
            cells = [_cell(results.get((task, optimizer, *column, policy))) for column in columns]
            lines.append(_line([f"`{policy}`", NAMES[optimizer], task, there, *cells]))
    return "\n".join(lines) + "\n"


def compact(found: Results) -> str:
    """A line for each policy: its mean score on each task, how many combinations are as good as plain torch, how many worse
    ones the run reports or not, and the worst."""
    known, results = references(found), compared(found)
    tasks = {name: [task for task, other in known if other == name] for _, name in known}
    lines = [_line(["policy", *(f"{NAMES[name]}: {', '.join(tasks[name])}" for name in tasks), *COUNTS, "worst"])]
    lines += ["|" + "---|" * (5 + len(tasks))]
    torch = [" ".join(_number(known[task, name].mean) for task in tasks[name]) for name in tasks]
    lines.append(_line(["plain torch", *torch, "", "", "", ""]))
    for policy in _unique(what[4] for what in results):
        mine = {what: result for what, result in results.items() if what[4] == policy}
        means = [_means(mine, tasks[name], name) for name in tasks]
        ran = {what: result for what, result in mine.items() if result.score is not None}
        good, told, silent = (sum(map(count, ran.values())) for count in COUNTS.values())
        lines.append(_line([f"`{policy}`", *means, f"{good} of {len(ran)}", _some(told), _some(silent), _worst(ran)]))
    return "\n".join(lines) + "\n"


def beside(cells: Sequence[Cell], found: Results) -> str:
    """Runs in processes, and those of the same seeds in virtual time."""
    head = ["policy", "optimizer", "task", "workers", "in processes", "in virtual time", "seeds"]
    lines = [_line(head), "|" + "---|" * len(head)]
    groups: dict[Combination, list[Cell]] = {}
    for cell in cells:
        if not cell.policy.startswith(TORCH):
            groups.setdefault((cell.task, cell.optimizer, cell.workers, cell.cluster, cell.policy), []).append(cell)
    for (task, optimizer, workers, cluster, policy), members in groups.items():
        pairs = [(found.get(cell), found.get(replace(cell, way="virtual"))) for cell in members]
        both = [
            [one.score for one in column if one is not None and one.score is not None]
            for column in zip(*pairs, strict=True)
        ]
        means = [_number(mean(scores)) if scores else "" for scores in both]
        what = [f"`{policy}`", NAMES[optimizer], task, _column(workers, cluster)]
        lines.append(_line([*what, *means, str(len(both[0]))]))
    return "\n".join(lines) + "\n"


def _means(mine: Mapping[Combination, Compared], tasks: Sequence[str], optimizer: str) -> str:
    scores = {
        task: [
            result.score for what, result in mine.items() if what[:2] == (task, optimizer) and result.score is not None
        ]
        for task in tasks
    }
    return " ".join(_number(mean(found)) for found in scores.values()) if all(scores.values()) else "refused"


def _worst(ran: Mapping[Combination, Compared]) -> str:
    outside = {what: result for what, result in ran.items() if not result.is_within}
    if not outside:
        return ""
    (task, optimizer, workers, cluster, _), result = max(outside.items(), key=lambda item: item[1].less)
    return f"{_number(result.score or 0.0)}: {task}, {NAMES[optimizer]}, {_column(workers, cluster)}"


def _cell(result: Compared | None) -> str:
    if result is None:
        return ""
    mark = " **<**" if result.is_silent else " <" if result.is_told else ""
    return "refused" if result.score is None else f"{_number(result.score)}{mark}"


def _column(workers: int, cluster: str) -> str:
    return f"{workers}{'' if cluster == 'equal' else ', one slow'}"


def _some(count: int) -> str:
    return str(count) if count else ""


def _number(score: float) -> str:
    return f"{score:.3f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _unique(values: Iterable[T]) -> list[T]:
    """Each once, in the order in which they come."""
    return list(dict.fromkeys(values))
