"""Assigns the model's elements to servers: the same on every process, from shapes and settings alone."""

import hashlib
import itertools
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paceline.core.codecs.codec import Run
from paceline.core.errors import PlanMismatch
from paceline.core.optimizers.layout import Layout
from paceline.core.settings.config import PlanConfig
from paceline.core.values import Vector

Shapes = Sequence[tuple[str, tuple[int, ...]]]
"""(name, shape) of every trained tensor in model order."""


@dataclass(frozen=True, slots=True)
class Range:
    """A run of elements of the flat model."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class SlicePlan:
    """The flat model cut into one slice for each server; a slice is one or more ranges of the flat vector, in order."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    slices: tuple[tuple[Range, ...], ...]
    """The ranges of each server; together they cover every element once, if there are servers. Slices may be empty."""
    strategy: str

    @property
    def servers(self) -> int:
        return len(self.slices)

    @cached_property
    def total(self) -> int:
        """Elements of the whole model."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Elements of each server's slice."""
        return tuple(sum(map(len, ranges)) for ranges in self.slices)

    @cached_property
    def imbalance(self) -> float:
        """Largest slice over the mean (ratio): the speed-up from n servers is at most n divided by it."""
        return max(self.lengths) * self.servers / self.total if self.total else 1.0

    @cached_property
    def hash(self) -> str:
        """A hash of shapes and cut; every Join, push and pull carries it."""
        cuts = [[(part.start, part.stop) for part in ranges] for ranges in self.slices]
        return hashlib.sha256(json.dumps([self.shapes, cuts]).encode()).hexdigest()

    def split(self, model: Vector) -> list[list[Vector]]:
        """For each server the views of a flat model that its slice is made of; no copy."""
        return [[model[part.start : part.stop] for part in ranges] for ranges in self.slices]

    def parts(self, model: Vector) -> list[Vector]:
        """For each server its slice of a flat model, copied."""
        return [np.concatenate(views) if views else np.empty(0, np.float32) for views in self.split(model)]

    def joined(self, slices: Sequence[Vector]) -> Vector:
        """The flat model of which these are the slices."""
        model = np.empty(self.total, np.float32)
        for views, values in zip(self.split(model), slices, strict=True):
            start = 0
            for view in views:
                view[:] = values[start : (start := start + len(view))]
        return model

    def runs(self, server: int) -> tuple[Run, ...]:
        """What that server's slice is made of, in order: of each tensor's matrix (its first axis by all others) the whole
        rows, before and behind them what is left of a row that a cut goes through; and all that is no matrix."""
        runs: list[Run] = []
        for part in self.slices[server]:
            for piece in self._layout.within(part.start, part.stop):
                first, shape = self._starts[piece.tensor], self.shapes[piece.tensor][1]
                runs += _rows(piece.start - first, piece.stop - first, math.prod(shape[1:]) if len(shape) > 1 else 0)
        return tuple(runs)

    def elements_before(self, names: Collection[str], server: int) -> int:
        """Elements of that server's slice that lie before the first of these tensors, the model's last ones."""
        first = min(
            (start for (name, _), start in zip(self.shapes, self._starts[:-1], strict=True) if name in names),
            default=self.total,
        )
        return sum(max(0, min(part.stop, first) - part.start) for part in self.slices[server])

    def layout(self, server: int | None = None) -> Layout:
        """Where each tensor lies in that server's slice; None: in the whole model."""
        whole = self._layout
        return whole if server is None else whole.cut((part.start, part.stop) for part in self.slices[server])

    @cached_property
    def _layout(self) -> Layout:
        return Layout.whole(self.shapes)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """The first element of each tensor, then the number of all elements."""
        return tuple(itertools.accumulate((math.prod(shape) for _, shape in self.shapes), initial=0))

    def check(self, other_hash: str, who: str, shapes: Shapes = ()) -> None:
        """Raises PlanMismatch if `who` cuts another model, or cuts it differently. `shapes`: its tensors, where they are
        known."""
        if other_hash != self.hash:
            others = tuple((name, tuple(shape)) for name, shape in shapes)
            if others and others != self.shapes:
                raise PlanMismatch(
                    f"{who}'s model has other tensors than the run's: {_differences(others, self.shapes)}. Every process must "
                    "make the same model."
                )
            raise PlanMismatch(
                f"{who} has another plan ({other_hash[:12]}) than this server ({self.hash[:12]}: {self.total:,} values, "
                f"{self.strategy}, {self.servers} servers). Compare 'task', 'servers' and 'plan' in their configs."
            )


def make_plan(shapes: Shapes, servers: int, config: PlanConfig) -> SlicePlan:
    """The plan for a model of these shapes [SHAT 3.3]. Without servers the chief has a slice of no elements."""
    whole = tuple((name, tuple(shape)) for name, shape in shapes)
    sizes = [math.prod(shape) for _, shape in whole]
    if not servers:
        slices: list[list[Range]] = [[]]
    elif config.slices == "whole":
        slices = _whole(sum(sizes), servers)
    elif config.slices == "layerwise":
        slices = _layerwise(whole, sizes, servers)
    elif config.max_slice_bytes is not None:
        slices = _least_loaded(_layer_sizes(whole, sizes), servers, config.max_slice_bytes // 4)
    else:
        slices = _equal_cuts(sum(sizes), servers, config.alignment)
    return SlicePlan(whole, tuple(_joined(ranges) for ranges in slices), config.slices)


def _differences(found: Shapes, expected: Shapes) -> str:
    """Returns the first tensors of two models that differ, in words."""
    here, there = dict(found), dict(expected)
    said = []
    for name in dict.fromkeys([*here, *there]):
        if name not in there:
            said.append(f"{name} {here[name]} is not in the run's")
        elif name not in here:
            said.append(f"{name} {there[name]} is missing")
        elif here[name] != there[name]:
            said.append(f"{name} is {here[name]}, expected {there[name]}")
    more = f", and {len(said) - 3:,} more" if len(said) > 3 else ""
    return "; ".join(said[:3]) + more if said else "they come in another order"


def _rows(start: int, stop: int, columns: int) -> list[Run]:
    """Ranges of one tensor's elements: its whole rows by themselves; all elements if there is no whole row."""
    first, last = (-(-start // columns) * columns, stop // columns * columns) if columns else (start, start)
    if first >= last:
        return [Run(stop - start, columns)]
    found = (Run(first - start, 0), Run(last - first, columns), Run(stop - last, 0))
    return [run for run in found if run.length]


def _whole(total: int, servers: int) -> list[list[Range]]:
    """Everything on server 0."""
    return [[Range(0, total)], *([] for _ in range(servers - 1))]


def _equal_cuts(total: int, servers: int, alignment: int) -> list[list[Range]]:
    """Memorywise: cut_p = min(T, A * floor(ceil(T / A) * p / P)), whatever the layers. Of a model with fewer pieces of A than
    servers the first servers have one each: the chief counts the run's versions by its own slice."""
    blocks = -(-total // alignment)
    pieces = [server if blocks < servers else blocks * server // servers for server in range(servers + 1)]
    cuts = [min(total, alignment * piece) for piece in pieces]
    return [[Range(start, stop)] for start, stop in itertools.pairwise(cuts)]


def _layerwise(shapes: Shapes, sizes: Sequence[int], servers: int) -> list[list[Range]]:
    """Round robin over layers; the tensors of one layer (conv1.weight, conv1.bias) stay together."""
    slices: list[list[Range]] = [[] for _ in range(servers)]
    start = 0
    layers: dict[str, int] = {}
    for (name, _), size in zip(shapes, sizes, strict=True):
        layer = layers.setdefault(_layer(name), len(layers))
        slices[layer % servers].append(Range(start, start + size))
        start += size
    return slices


def _layer(name: str) -> str:
    """The layer that a tensor belongs to: conv1 for conv1.weight."""
    return name.rpartition(".")[0] or name


def _layer_sizes(shapes: Shapes, sizes: Sequence[int]) -> list[int]:
    """Elements of each layer in model order; adjacent tensors of one layer count together."""
    tensors = zip((_layer(name) for name, _ in shapes), sizes, strict=True)
    return [sum(size for _, size in layer) for _, layer in itertools.groupby(tensors, key=lambda tensor: tensor[0])]


def _least_loaded(sizes: Sequence[int], servers: int, largest: int) -> list[list[Range]]:
    """[SHAT]'s form of memorywise: layers in model order, each to the least loaded server; only larger ones are split."""
    slices: list[list[Range]] = [[] for _ in range(servers)]
    loads, start = [0] * servers, 0
    for size in sizes:
        for begin in range(start, start + size, largest):
            piece = Range(begin, min(begin + largest, start + size))
            server = loads.index(min(loads))
            slices[server].append(piece)
            loads[server] += len(piece)
        start += size
    return slices


def _joined(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """The ranges with neighbours joined and empty ones removed."""
    joined: list[Range] = []
    for part in ranges:
        if joined and joined[-1].stop == part.start:
            joined[-1] = Range(joined[-1].start, part.stop)
        elif len(part):
            joined.append(part)
    return tuple(joined)


def server_memory(
    length: int, slots: int, arrays: int, workers: int, part_bytes: int, push_memory: int, averages: bool = False
) -> dict[str, int]:
    """Bytes a server needs for a slice of `length` float32, by purpose, with these settings; the process itself comes on top
    (docs/understand/recovery.md#memory-of-a-server). `arrays`: what the policy takes (`Policy.server_arrays`); `averages`:
    whether it keeps the mean of its versions."""
    slice_bytes = 4 * length
    return {
        "weights": slice_bytes,
        "optimizer": slots * slice_bytes,
        "snapshot": (1 + slots + averages) * slice_bytes,
        "published": slice_bytes,
        "policy": arrays * slice_bytes,
        "assembly": assembly_buffers(length, workers, push_memory) * slice_bytes,
        "messages": 4 * workers * part_bytes,
    } | ({"mean of versions": slice_bytes} if averages else {})


def assembly_buffers(length: int, workers: int, push_memory: int) -> int:
    """Pushes of `length` float32 that are assembled at the same time: as many as there are workers, or as `push_memory` has
    room for, two at least. With rounds, one place is reserved for the next worker in order, otherwise for one that is not
    slow."""
    return min(workers, max(2, push_memory // max(1, 4 * length)))
