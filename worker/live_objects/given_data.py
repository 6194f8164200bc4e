"""The data that a user has at hand, as data sets of torch: a data set, a DataLoader, or inputs and targets side by side."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    TensorDataset,
    default_convert,
)

from paceline.core.errors import ConfigError
from paceline.worker.script.loaders import rows_of

_WANTED = "a torch data set, a DataLoader, or inputs and targets as tensors or arrays: (x, y)"
_OF_LOADER = ("collate_fn", "num_workers", "pin_memory", "drop_last", "persistent_workers", "prefetch_factor")


@dataclass(frozen=True, slots=True, eq=False)
class GivenData:
    """One data set, and what its DataLoader said where there was one."""

    rows: Any
    batch_size: int | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int | None:
        """Its number of examples; None: it is iterable and does not know."""
        try:
            return len(self.rows)
        except TypeError:
            return None


def read(name: str, found: Any) -> GivenData:
    """The argument of that name. ConfigError: it is no data set, or has no examples."""
    given = _of_loader(name, found) if isinstance(found, DataLoader) else GivenData(_rows(name, found))
    if given.length == 0:
        raise ConfigError(f"{name} has no examples. Give {_WANTED}.")
    return given


def _of_loader(name: str, loader: "DataLoader[Any]") -> GivenData:
    """The run replaces its sampling: each worker has a part, shuffled again in every epoch."""
    rows = loader.dataset if isinstance(loader.dataset, IterableDataset) else _drawn(name, loader)
    options = {key: getattr(loader, key) for key in _OF_LOADER if hasattr(loader, key)}
    size, batches = loader.batch_size, loader.batch_sampler
    if type(batches) is BatchSampler:
        size, options["drop_last"] = batches.batch_size, batches.drop_last
    if batches is None and loader.collate_fn is default_convert:
        del options["collate_fn"]  # it converts what comes one by one
    if not options.get("num_workers"):
        options = {key: options[key] for key in ("collate_fn", "pin_memory", "drop_last") if options.get(key)}
    return GivenData(_rows(name, rows), size, options)


def _drawn(name: str, loader: "DataLoader[Any]") -> Any:
    """The examples that it draws from. ConfigError where it does not draw each of them once."""
    batches = loader.batch_sampler
    own: Any = batches.sampler if type(batches) is BatchSampler else batches
    if batches is None and name != "train":  # it draws one by one
        own = loader.sampler
    if (rows := rows_of(own, loader.dataset)) is not None:
        return rows
    why = "deals the examples to its workers itself" if name == "train" else "scores each example once"
    raise ConfigError(
        f"{name}'s DataLoader has its own sampler ({type(own).__name__}), but the run {why}. Give a data set with just these "
        f"examples: {name}=torch.utils.data.Subset(dataset, indices)."
    )


def _rows(name: str, found: Any) -> Any:
    if isinstance(found, Iterator):
        raise ConfigError(
            f"{name} is a {type(found).__name__}, which is used up after one pass and can't be shared by several "
            "processes. Give a list, or an IterableDataset that can start again."
        )
    if _are_columns(found):
        return _columns(name, found)
    if isinstance(found, Mapping):
        splits = ", ".join(f"{name}=data[{key!r}]" for key in list(found)[:1])
        raise ConfigError(
            f"{name} is a {type(found).__name__} of {', '.join(map(str, found))}. Give one set: {splits}."
        )
    if isinstance(found, IterableDataset):
        return found
    plain = isinstance(found, (str, bytes, Path, Tensor, np.ndarray)) or hasattr(found, "iloc")
    if plain or not (hasattr(found, "__len__") and hasattr(found, "__getitem__")):
        raise ConfigError(f"{name} is {_called(found)}; expected {_WANTED}.")
    return found


def _are_columns(found: Any) -> bool:
    return isinstance(found, tuple) and len(found) > 1 and all(isinstance(each, (Tensor, np.ndarray)) for each in found)


def _columns(name: str, found: tuple[Any, ...]) -> TensorDataset:
    sizes = [len(each) for each in found]
    if len(set(sizes)) > 1:
        raise ConfigError(f"{name} has columns with {', '.join(map(str, sizes))} rows; all must have the same number.")
    return TensorDataset(*(_tensor(each) for each in found))


def _tensor(found: Any) -> Tensor:
    """numpy's numbers are float64 by chance, and models are float32."""
    tensor = torch.as_tensor(found)
    return tensor.float() if isinstance(found, np.ndarray) and tensor.dtype == torch.float64 else tensor


def _called(found: Any) -> str:
    return repr(found) if isinstance(found, (str, bytes, Path, type(None))) else f"a {type(found).__name__}"
