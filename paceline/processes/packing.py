"""Live objects into inherited memory and out of it again: functions and classes of a script or a notebook's cell by their code,
tensors and arrays as they lie in memory, so that all processes read the same pages.

The only place that unpickles, and it takes nothing but memory that this process has inherited."""

import io
import json
import linecache
import os
import pickle  # what it reads is this run's own launcher's: see inherited_memory.read
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import cloudpickle
import torch
from torch.storage import TypedStorage, UntypedStorage

from paceline.processes import inherited_memory

_HOST = torch.device("cpu")
_DEVICE: ContextVar[torch.device] = ContextVar("device", default=_HOST)
"""Where tensors come to that did not lie in main memory."""


def pack(objects: Any) -> int:
    """The descriptor of memory that holds them, closed by the caller. Raises what pickling raises."""
    buffers: list[memoryview] = []
    main = io.BytesIO()
    _Pickler(main, protocol=5, buffer_callback=lambda each: buffers.append(_flat(each))).dump(objects)
    surroundings = {"path": [os.path.abspath(entry) for entry in sys.path], "lines": _lines_of_cells()}
    return inherited_memory.write([json.dumps(surroundings).encode(), main.getbuffer(), *buffers])


def unpack(descriptor: int, device: torch.device | None = None) -> Any:
    """The objects; `device`: where tensors come to that were on a GPU. What is changed of them is this process's own.
    ConfigError: the descriptor is not inherited memory."""
    surroundings, main, *buffers = inherited_memory.read(descriptor)
    told = json.loads(bytes(surroundings))
    sys.path += [entry for entry in told["path"] if entry not in sys.path]  # behind what is installed
    for file, lines in told["lines"].items():
        linecache.cache.setdefault(file, (sum(map(len, lines)), None, lines, file))
    with _on(device):
        return pickle.loads(main, buffers=buffers)  # noqa: S301  # inherited from our own launcher, and checked above


def can_be_packed(found: Any) -> Exception | None:
    """Why not; None where it can."""
    try:
        _Pickler(_Nowhere(), protocol=5, buffer_callback=lambda each: None).dump(found)
    except Exception as error:
        return error
    return None


class _Nowhere(io.RawIOBase):
    def write(self, data: Any) -> int:
        return len(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Storages of tensors are buffers next to the pickle, each once, even if several tensors are views of it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._storages: dict[int, UntypedStorage] = {}

    def reducer_override(self, obj: Any) -> Any:
        storage = obj._untyped_storage if type(obj) is TypedStorage else None
        if storage is not None and storage.device.type in ("cpu", "cuda"):
            return _typed, (self._storages.setdefault(storage._cdata, storage), obj.dtype)
        if type(obj) is UntypedStorage and obj.device.type in ("cpu", "cuda"):
            values: Any = torch.empty(0, dtype=torch.uint8, device=obj.device).set_(obj).cpu().numpy()
            return _untyped, (pickle.PickleBuffer(values), obj.device.type)
        return super().reducer_override(obj)


def _typed(storage: UntypedStorage, dtype: torch.dtype) -> TypedStorage:
    make: Any = TypedStorage
    return make(wrap_storage=storage, dtype=dtype, _internal=True)  # type: ignore[no-any-return]


def _untyped(values: Any, kind: str) -> UntypedStorage:
    there = (
        torch.frombuffer(values, dtype=torch.uint8) if memoryview(values).nbytes else torch.empty(0, dtype=torch.uint8)
    )
    return there.to(_HOST if kind == _HOST.type else _DEVICE.get()).untyped_storage()


def _flat(buffer: pickle.PickleBuffer) -> memoryview:
    return buffer.raw()


@contextmanager
def _on(device: torch.device | None) -> Iterator[None]:
    token = _DEVICE.set(device or _HOST)
    try:
        yield
    finally:
        _DEVICE.reset(token)


def _lines_of_cells() -> dict[str, list[str]]:
    """The source of notebooks' cells, which are no files, for tracebacks in other processes."""
    cached = {file: entry for file, entry in linecache.cache.items() if len(entry) > 2 and not os.path.exists(file)}
    return {file: entry[2] for file, entry in cached.items()}
