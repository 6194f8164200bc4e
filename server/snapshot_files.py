"""The snapshots in a server's folder: for each a data file (safetensors), and a manifest with its checksum, written last."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from paceline.core.errors import ConfigError, DataError, DiskError, TooNew
from paceline.core.slice.plan import Range, SlicePlan
from paceline.core.slice.state import SliceState
from paceline.core.values import Places, Sparse, Vector
from paceline.server.disk import Disk
from paceline.server.json_files import CheckedFiles, Owner, understood

_MANIFEST, _DATA = "snapshot-{:012d}.json", "snapshot-{:012d}.safetensors"
_MOST_NUMBER = (1 << 63) - 1
_BLOCK = 4 << 20
"""Bytes that are hashed and written at a time."""
_PLACES, _VALUES = "share_places", "share_values"
"""Names of the arrays of a sum's shares."""
_NO_SHARES = np.empty(0)
_KINDS = {np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}
"""What safetensors calls them."""
DAMAGES = (DataError, OSError)
"""What reading a damaged snapshot raises."""


class SnapshotFiles:
    """Writes snapshots, keeps the newest `keep`, and reads the newest intact one. Use from one thread at a time."""

    def __init__(
        self, files: CheckedFiles, disk: Disk, keep: int, owner: Owner | None, say: Callable[..., None]
    ) -> None:
        self._files = files
        self._folder = files.folder
        self._disk = disk
        self._keep = keep
        self._owner = owner
        self._say = say
        self.passed_over = 0
        """Damaged snapshots that `newest` has found."""
        self.versions: Mapping[int, int] = {}
        """Of all readable snapshots, by their numbers. Replaced, never changed: another thread may read it meanwhile."""
        self.current = 0
        """The number of the one that was written or read last."""
        self._in_rounds: frozenset[int] = frozenset()
        """The numbers of those that were written in rounds."""
        self.being_sent: int | None = None
        """The number of one that is not removed because of its age."""
        self.spared = 0
        """The version of one that is not removed, however old it is; 0: of none."""
        self.good: frozenset[int] = frozenset()
        """Versions of others that are not removed: those that a start finds, until somebody says which."""

    def save(self, plan: SlicePlan, state: SliceState, above: int = 0) -> None:
        """Saves a state and removes what is older than the newest `keep`. A DiskError leaves the older ones unchanged. Its
        number is above `above`."""
        try:
            number = 1 + max((above, *self.numbers(), *self.without_manifest()))
            self._save(number, plan, state)
        except OSError as error:
            raise DiskError(f"Can't write a snapshot to {self._folder}: {error}. The older ones are intact.") from error
        self.versions = {**self.versions, number: int(state.table["version"])}
        self.current = number
        if state.table.get("rounds"):
            self._in_rounds |= {number}
        for old in sorted(self.numbers())[: -self._keep]:
            version = self.versions.get(old)
            is_common = self.spared and old in self._in_rounds and version == self.spared
            if not is_common and version not in self.good and old != self.being_sent:
                self._remove_both(old)
        self._forget({*self.versions} - {*self.numbers()})

    def newest(self) -> tuple[SlicePlan, SliceState] | None:
        """The newest intact state; None before there is one. Logs each damaged one that it skips. Raises DataError if all are
        damaged: starting from nothing would lose the run silently."""
        numbers = sorted(self.numbers(), reverse=True)
        for number in numbers:
            try:
                found = self.load(number)
                self.current = number
                return found
            except TooNew:
                raise
            except DAMAGES as error:
                self.passed_over += 1
                self._say("snapshot is damaged, trying the one before", snapshot=number, why=str(error))
        if numbers:
            raise DataError(
                f"None of the {len(numbers)} snapshots in {self._folder} is intact. Restore one from a backup, or "
                "start the run over with an empty folder."
            )
        if lost := self.without_manifest():
            raise DataError(
                f"{self._folder} has the data of {len(lost)} snapshots, but not the manifests: {_listed(lost)}. "
                "Restore one from a backup, or start the run over with an empty folder."
            )
        return None

    def in_rounds(self, version: int) -> tuple[int, SlicePlan, SliceState] | None:
        """The newest intact state of this version that was written in rounds, and its number. None if there is none; logs it
        if it is damaged."""
        for number in sorted((each for each in self._in_rounds if self.versions[each] == version), reverse=True):
            try:
                return number, *self.load(number)
            except TooNew:
                raise
            except DAMAGES as error:
                self._say("snapshot is damaged", snapshot=number, why=str(error))
                self._in_rounds -= {number}
        return None

    def go_back(self, version: int) -> tuple[SlicePlan, SliceState] | None:
        """The same state; removes newer ones."""
        found = self.in_rounds(version)
        if found is None:
            return None
        number, plan, state = found
        self.current = number
        for newer in [each for each in self.numbers() if each > number]:
            self._remove_both(newer)
        self._forget({each for each in self.versions if each > number})
        return plan, state

    def rounds(self, numbers: Collection[int] | None = None) -> set[int]:
        """The versions of snapshots that were written in rounds; `numbers`: of these only. Any thread may ask."""
        versions = self.versions
        return {
            versions[number]
            for number in self._in_rounds
            if number in versions and (numbers is None or number in numbers)
        }

    def _forget(self, numbers: set[int]) -> None:
        self.versions = {number: of for number, of in self.versions.items() if number not in numbers}
        self._in_rounds -= numbers

    def good_weights(self, version: int) -> SliceState | None:
        """The newest intact state of this version, or of the next older one, whose weights are all finite. Changes nothing;
        logs those that it passes over."""
        older = [(of, number) for number, of in self.versions.items() if of <= version]
        for _, number in sorted(older, reverse=True):
            try:
                state = self.load(number)[1]
                if bool(np.isfinite(state.weights).all()):
                    return state
                self._say("snapshot has weights that are not finite, trying the one before", snapshot=number)
            except TooNew:
                raise
            except DAMAGES as error:
                self._say("snapshot is damaged, trying the one before", snapshot=number, why=str(error))
        return None

    def numbers(self) -> list[int]:
        """Snapshots that have a manifest."""
        return self._numbered("json")

    def without_manifest(self) -> list[int]:
        """Versions of snapshots that have data and no manifest."""
        return sorted({*self._numbered("safetensors")} - {*self.numbers()})

    def checked(self, number: int) -> tuple[dict[str, Any], int]:
        """A snapshot's manifest, once its data has that size and checksum, and the term in which it was written (0: it does
        not say). Raises one of `DAMAGES` where it is damaged."""
        manifest, term = self._files.read_with_term(name := _MANIFEST.format(number), None)
        data = self.data(number)
        with understood(self._folder / name):
            if data.stat().st_size != manifest["bytes"] or digest(data) != manifest["sha256"]:
                raise DataError(f"{data.name} does not have the size and checksum of its manifest")
            _check_table(manifest["table"])
        return manifest, term

    def highest_term(self) -> int:
        """The newest term of which a readable manifest says that it is its; 0: none does."""
        return max(self.terms().values(), default=0)

    def terms(self) -> dict[int, int]:
        """The terms in which readable manifests say that they were written, by number; 0: it does not say."""
        terms = {}
        for number in self.numbers():
            try:
                terms[number] = self._files.read_with_term(_MANIFEST.format(number), None)[1]
            except TooNew:
                raise
            except DAMAGES:
                continue  # said when it is its turn to be read
        return terms

    def sweep(self) -> None:
        """Removes the remains of an interrupted write or removal. Data whose manifest somebody has taken away stays."""
        lowest = min(self.numbers(), default=0)
        begun = {path.name.partition(".")[0] for path in self._folder.glob("snapshot-*.json.tmp")}
        for number in self.without_manifest():
            data = self.data(number)
            if data.stem in begun or number < lowest:
                self._left(data)
            else:
                manifest = _MANIFEST.format(number)
                self._say("a snapshot without its manifest is not used, and left alone", file=data.name, lacks=manifest)
        for path in self._folder.glob("*.tmp"):
            self._left(path)
        tables = {number: table for number in self.numbers() if (table := self._table(number)) is not None}
        self.versions = {number: int(table["version"]) for number, table in tables.items()}
        self._in_rounds = frozenset(number for number, table in tables.items() if table.get("rounds"))
        self.good = frozenset(self.versions.values())

    def _save(self, number: int, plan: SlicePlan, state: SliceState) -> None:
        """Data and manifest are on the medium under temporary names first; so a data file without any manifest, which only
        people leave, is known from what a crash leaves."""
        data, name = self.data(number), _MANIFEST.format(number)
        arrays = {"weights": state.weights} | {f"slot{index}": slot for index, slot in enumerate(state.slots)}
        arrays |= {name: more for name, more in (("gathered", state.gathered), ("lag", state.lag)) if more is not None}
        every = {**arrays, **_arrays_of(state.shares)}
        temporary, digest, written = data.with_suffix(".tmp"), hashlib.sha256(), 0

        def parts() -> Iterator[bytes | memoryview]:
            nonlocal written
            for part in packed(every):
                digest.update(part)
                written += len(part)
                yield part

        self._disk.write(temporary, parts())
        facts = {"shapes": plan.shapes, "strategy": plan.strategy, "slices": _plain(plan.slices), "hash": plan.hash}
        incarnations = (entry.get("incarnation", 0) for entry in state.table["clocks"].values())
        manifest = {
            "sha256": digest.hexdigest(),
            "bytes": written,
            "length": len(state.weights),
            "incarnation": max(incarnations, default=0),
            "plan": facts,
            "shares": {worker: len(share.places) for worker, share in state.shares.items()},
            "table": state.table,
        }
        try:
            waiting = self._files.prepare(name, manifest)
            self._disk.sync_folder(self._folder)
            self._disk.rename(temporary, data)
            self._disk.rename(waiting, self._folder / name)
        except Exception:
            for path in (temporary, data, self._folder / f"{name}.tmp"):
                self._remove(path)
            raise
        self._disk.sync_folder(self._folder)

    def load(self, number: int) -> tuple[SlicePlan, SliceState]:
        """A snapshot's plan and state. Raises one of `DAMAGES` where it is damaged, ConfigError where it is another's."""
        manifest, _ = self.checked(number)
        data = self.data(number)
        with understood(data):
            arrays = load_file(data)
            places, values = (arrays.pop(name, _NO_SHARES) for name in (_PLACES, _VALUES))
            if any(
                array.dtype != np.float32 or array.shape != arrays["weights"].shape[:1] for array in arrays.values()
            ):
                raise DataError(f"{data.name} holds arrays that are not as long as its weights, or not of float32")
            gathered, lag = arrays.pop("gathered", None), arrays.pop("lag", None)
            slots: Sequence[Any] = [arrays[f"slot{index}"] for index in range(len(arrays) - 1)]
            plan, weights = _plan_in(manifest), np.ascontiguousarray(arrays["weights"])
            self._check_length(data, plan, weights)
            shares = _shares_in(places, values, manifest.get("shares", {}), len(weights))
            return plan, SliceState(weights, slots, manifest["table"], gathered, lag, shares)

    def plan(self, number: int) -> SlicePlan:
        """The plan by which a snapshot was cut. Raises one of `DAMAGES` where it is damaged."""
        manifest, _ = self.checked(number)
        with understood(self.data(number)):
            return _plan_in(manifest)

    def servers(self, number: int) -> int:
        """For how many servers a snapshot was cut, by its manifest alone; 0 where that is damaged."""
        try:
            manifest, _ = self._files.read_with_term(name := _MANIFEST.format(number), None)
            with understood(self._folder / name):
                return len(manifest["plan"]["slices"])
        except DAMAGES:
            return 0

    def _check_length(self, data: Path, plan: SlicePlan, weights: Vector) -> None:
        """Snapshots of older releases don't say whose they are, but their length may."""
        owner = self._owner
        if owner is None or owner.server >= len(plan.lengths):
            return
        if len(weights) != (expected := plan.lengths[owner.server]):
            raise ConfigError(
                f"{data} holds {len(weights):,} values, but the slice of server {owner.server} has {expected:,}. Give each "
                "server the folder that it had."
            )

    def _remove_both(self, number: int) -> None:
        self._remove(self._folder / _MANIFEST.format(number))
        self._remove(self.data(number))

    def _table(self, number: int) -> dict[str, Any] | None:
        try:
            manifest, _ = self._files.read_with_term(name := _MANIFEST.format(number), None)
            with understood(self._folder / name):
                table: dict[str, Any] = manifest["table"]
                _check_table(table)
                return table
        except DAMAGES:
            return None  # said when it is its turn to be read

    def _left(self, path: Path) -> None:
        self._say("removed what an interrupted write left", file=path.name)
        self._remove(path)

    def _remove(self, path: Path) -> None:
        """A file that stays does no harm: the next start, or snapshot, tries again."""
        try:
            self._disk.unlink(path)
        except OSError as error:
            self._say("can't remove a file", file=path.name, why=error.strerror)

    def data(self, number: int) -> Path:
        """The file of a snapshot's arrays."""
        return self._folder / _DATA.format(number)

    def _numbered(self, kind: str) -> list[int]:
        found = [path.stem.removeprefix("snapshot-") for path in self._folder.glob(f"snapshot-*.{kind}")]
        return [int(number) for number in found if number.isdecimal()]


def names_of(number: int) -> tuple[str, str]:
    """The names of a snapshot's data and of its manifest."""
    return _DATA.format(number), _MANIFEST.format(number)


def packed(arrays: Mapping[str, Vector | Places]) -> Iterator[bytes | memoryview]:
    """The parts of a safetensors file of these arrays: the library would copy all of them first."""
    header: dict[str, Any] = {}
    start = 0
    for name, array in arrays.items():
        stop = start + array.nbytes
        header[name] = {"dtype": _KINDS[array.dtype], "shape": list(array.shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for array in arrays.values():
        if array.size:
            values = np.ascontiguousarray(array).view(np.uint8).data
            for begin in range(0, len(values), _BLOCK):
                yield values[begin : begin + _BLOCK]


def _arrays_of(shares: Mapping[str, Sparse]) -> dict[str, Vector | Places]:
    """The workers' shares of a sum, one after the other."""
    if not shares:
        return {}
    places = np.concatenate([share.places for share in shares.values()], dtype=np.int64)
    return {_PLACES: places, _VALUES: np.concatenate([share.values for share in shares.values()], dtype=np.float32)}


def _shares_in(places: Any, values: Any, counts: Mapping[str, int], length: int) -> dict[str, Sparse]:
    """The workers' shares of a sum, of that many places each. ValueError and the like: they are none of a slice of this
    length."""
    is_odd = bool(counts) and (places.dtype != np.int64 or values.dtype != np.float32)
    if is_odd or not len(places) == len(values) == sum(counts.values()):
        raise ValueError("its shares of a sum are not what its manifest says")
    found, start = {}, 0
    for worker, count in counts.items():
        share = found[worker] = Sparse(places[start : start + count], values[start : start + count], length)
        start += count
        inside = (share.places >= 0) & (share.places < length)
        if len(share.places) != count or not inside.all() or (np.diff(share.places) <= 0).any():
            raise ValueError(f"the share of {worker} in its sum is not of rising places below {length:,}")
    return found


def _plan_in(manifest: Mapping[str, Any]) -> SlicePlan:
    """ValueError and the like: the manifest describes no plan."""
    facts = manifest["plan"]
    shapes = tuple((str(name), tuple(shape)) for name, shape in facts["shapes"])
    slices = tuple(tuple(Range(*part) for part in ranges) for ranges in facts["slices"])
    numbers = [size for _, shape in shapes for size in shape]
    numbers += [end for ranges in slices for part in ranges for end in (part.start, part.stop)]
    plan = SlicePlan(shapes, slices, str(facts["strategy"]))
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError("its plan has sizes that are no whole numbers from 0")
    if sum(plan.lengths) not in (0, plan.total):
        raise ValueError(f"its plan cuts {sum(plan.lengths):,} of {plan.total:,} values")
    if facts.get("hash", plan.hash) != plan.hash:
        raise ValueError("its plan does not have the hash of its manifest")
    return plan


def _check_table(table: Mapping[str, Any]) -> None:
    """ValueError and the like: it has no version and clocks that a start, or an audit, can use."""
    numbers = [table["version"], table.get("pushes", 0), *table.get("gathered", ())[:1]]
    for entry in table["clocks"].values():
        numbers += [entry["clock"], entry["incarnation"]]
    wrong = [number for number in numbers if type(number) is not int or not 0 <= number <= _MOST_NUMBER]
    if wrong:
        raise ValueError(f"a version, clock or incarnation is {wrong[0]!r:.40}; expected a whole number from 0")


def _plain(slices: Sequence[Sequence[Range]]) -> list[list[list[int]]]:
    return [[[part.start, part.stop] for part in ranges] for ranges in slices]


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(_MANIFEST.format(number) for number in numbers)
