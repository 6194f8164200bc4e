"""What the numbers of the report say: a sentence, tables, and a text for each picture."""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from paceline.base.html import Table
from paceline.sharder.report.shard_set import Sets, ShardSet, digits

MOST_CELLS = 2000
"""Largest table of classes x workers; of more the picture says enough."""


def result(sets: Sets) -> str:
    """What the numbers say, in a sentence or two."""
    ranked = sorted(sets, key=lambda shards: float(shards.divergence.max()))
    best, worst = ranked[0], ranked[-1]
    said = f"{best.name}: {_furthest(best)}."
    if len(sets) > 1:
        low, high = float(best.divergence.max()), float(worst.divergence.max())
        times = f", {digits(high / low)} times as far" if low > 0 else ""
        said = (
            f"{best.name} spreads the classes{best.of_task} most evenly: its worst worker is {digits(low)} bits from all "
            "shards together. "
            f"{worst.name}'s is {digits(high)} bits from them{times}; {_furthest(worst)}."
        )
    return said


def _furthest(shards: ShardSet) -> str:
    name, worker, ratio = shards.furthest
    if not ratio:
        return f"every worker has exactly its share of every class{shards.of_task}"
    compared = f"{abs(ratio):.1%} {'more' if ratio > 0 else 'less'}"
    return f"at most, worker {worker} has {compared} of class {name}{shards.of_task} than its share"


def summary(sets: Sets) -> Table:
    """A row of numbers for each set."""
    heads = (
        "shards",
        "workers",
        "examples of a worker",
        "copied to all",
        "divergence, mean (bits)",
        "divergence, worst (bits)",
        "by chance (bits)",
        "class furthest off (worker)",
        "time (s)",
    )
    return Table(heads, [_summary_row(shards) for shards in sets])


def _summary_row(shards: ShardSet) -> list[str]:
    sizes, (name, worker, ratio) = shards.manifest.sizes, shards.furthest
    return [
        shards.name,
        f"{shards.workers:,}",
        f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}",
        f"{len(shards.manifest.duplicates):,}",
        digits(shards.divergence.mean()),
        digits(shards.divergence.max()),
        digits(shards.chance),
        f"{name}: {ratio:+.1%} ({worker})",
        _seconds(shards),
    ]


def _class_tables(sets: Sets) -> list[Table]:
    return [
        Table(
            [f"class{shards.of_task}", *(f"worker {worker}" for worker in range(shards.workers)), "all"],
            [
                [name, *(f"{count:,}" for count in row), f"{row.sum():,}"]
                for name, row in zip(shards.classes, shards.counts, strict=True)
            ],
            f"Counts of {shards.name}",
        )
        for shards in sets
        if shards.counts.size <= MOST_CELLS
    ]


def _worker_table(sets: Sets) -> list[Table]:
    rows = [
        [str(worker), *(digits(shards.divergence[worker]) if worker < shards.workers else "" for shards in sets)]
        for worker in range(max(shards.workers for shards in sets))
    ]
    return [Table(["worker", *(shards.name for shards in sets)], rows, "Divergence of each worker (bits)")]


def _cluster_table(sets: Sets) -> list[Table]:
    heads = (
        "shards",
        "clusters",
        "sparse neighbourhoods",
        "their mean size",
        "examples copied",
        "smallest",
        "median",
        "largest",
    )
    rows = []
    for shards in sets:
        if found := shards.clusters:
            sparse, sizes = found.sparse_sizes, sorted(found.sizes.tolist())
            rows.append(
                [
                    shards.name,
                    f"{len(sizes):,}",
                    f"{len(sparse):,}",
                    f"{sparse.mean():.2f}" if len(sparse) else "-",
                    f"{sparse.sum():,}",
                    f"{sizes[0]:,}",
                    f"{median(sizes):,.10g}",
                    f"{sizes[-1]:,}",
                ]
            )
    return [Table(heads, rows)]


def _no_tables(sets: Sets) -> list[Table]:
    return []


def _seconds(shards: ShardSet) -> str:
    return "-" if shards.seconds is None else digits(shards.seconds)


class Part(NamedTuple):
    """One picture with what it says and the numbers behind it."""

    picture: str
    title: str
    text: str
    tables: Callable[[Sets], list[Table]] = _no_tables
    absent: str = ""


PARTS = (
    Part(
        "class-counts.png",
        "Examples of each class",
        "A box for each worker: the middle half of its class counts, the line in it their median, the whiskers up to 1.5 "
        "times the box, rings beyond. Dots mark what a worker would have of each class if all were equal. Flat boxes on "
        "the dots are even shards; where the classes differ in size, boxes are as tall as the classes differ.",
    ),
    Part(
        "heat-map.png",
        "Classes and workers",
        "Orange: a worker has more of the class than its share, purple: less, white: just its share. "
        "Where numbers fit, they count examples.",
        _class_tables,
    ),
    Part(
        "divergence.png",
        "Distance of each worker from all",
        "Jensen-Shannon divergence of a worker's classes from those of all shards together: 0 bits where they are spread "
        "alike, towards 1 bit where a worker has classes that no other has. Dashes: what dealing by chance is expected to "
        "give.",
        _worker_table,
    ),
    Part(
        "clusters.png",
        "Clusters",
        "Neighbourhoods of similar examples, by size. A sparse one has too few examples to go round, so every worker gets "
        "all of them; many sparse ones mean many examples that every worker sees.",
        _cluster_table,
        "None of these sets was made from clusters (distribution_aware looks for them).",
    ),
    Part(
        "seconds.png",
        "Time",
        "From the examples in memory to the rows of each shard, without reading the data set and writing the shards.",
        absent="These shards do not say how long they took.",
    ),
)
