"""A run's model in files for use elsewhere. One sentence says what torch can't do."""

import io
import json
import logging
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.base.extras import is_installed, lacks
from paceline.base.private import make_private
from paceline.core.errors import ConfigError, DataError, DiskError, PacelineError
from paceline.data.shards import open_shards
from paceline.results.model.run_model import Trained

if TYPE_CHECKING:
    import torch

CLASSES = "classes"
"""Where a file has the names of classes: an extra file of torch's forms, a key of ONNX' metadata."""
ENDINGS = ".safetensors (weights), .pt2 (torch.export), .pt (TorchScript) or .onnx"
LINEAR = (".safetensors", ".liblinear")
"""What a linear model is exported as: the files that its run has written."""
_EXAMPLES = 2
"""In the mini-batch that a model is traced with; 1 would be taken for a fixed size."""
_CHECKED = 5
"""In the one that what was traced is tried on."""
_SHOWN = 300
"""Most that is shown of what torch says (characters)."""


def export(trained: Trained, path: str | Path, which: str = "last") -> Path:
    """Writes the model in the form that the ending names. Mini-batches may have any size there. ConfigError: another
    ending, or a model that can't be written so; DataError: the run was not scored; DiskError: the file can't be written."""
    target = Path(path)
    if trained.is_linear:
        if target.suffix not in LINEAR:
            raise ConfigError(
                f"Can't export to {target}: run '{trained.place.name}' has a linear model. Export it as "
                f"{' or '.join(LINEAR)} (LIBLINEAR's text)."
            )
        return _written(target, lambda file: shutil.copyfile(trained.file(which).with_suffix(target.suffix), file))
    forms = {".safetensors": _copy, ".pt2": _program, ".pt": _trace, ".onnx": _convert}
    if target.suffix not in forms:
        raise ConfigError(f"Can't export to {target}: its ending must be {ENDINGS}.")
    if trained.config.data.source == "script" and target.suffix != ".safetensors":
        raise ConfigError(
            f"Can't export to {target}: run '{trained.place.name}' trained a model from paceline.train(model, "
            "...). Call torch.export on result.model with one of your examples, or export only the weights: "
            ".safetensors."
        )
    return _written(target, lambda file: forms[target.suffix](trained, file, which))


def _written(target: Path, write: Callable[[Path], object]) -> Path:
    """`write` makes a file of the same name; only a whole one replaces an older export."""
    try:
        make_private(target.parent)
        with TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
            write(Path(folder) / target.name)
            (Path(folder) / target.name).replace(target)
    except OSError as error:
        raise DiskError(
            f"Can't write {target}: {error.strerror}. Is the disk full, or may this user not write there?"
        ) from error
    return target


def _copy(trained: Trained, target: Path, which: str) -> None:
    shutil.copyfile(trained.file(which), target)


def _program(trained: Trained, target: Path, which: str) -> None:
    import torch

    with _refusals(trained, target, ".pt or .safetensors"):
        torch.export.save(_exported(trained, which), target, extra_files=_names(trained, which))


def _trace(trained: Trained, target: Path, which: str) -> None:
    import torch

    with _refusals(trained, target, ".pt2 or .safetensors"):
        model, inputs = trained.module(which), _inputs(trained, which)
        traced = torch.jit.trace(model, inputs)  # type: ignore[no-untyped-call]
        _check(traced, model, inputs)
        content = traced.save_to_buffer(_extra_files=_names(trained, which))
    target.write_bytes(content)


def _convert(trained: Trained, target: Path, which: str) -> None:
    for package in ("onnx", "onnxscript"):
        if not is_installed(package):
            raise ConfigError(lacks(package, "Export to ONNX"))
    import torch

    with _refusals(trained, target, ".pt2, .pt or .safetensors"):
        program = torch.onnx.export(_exported(trained, which), dynamo=True, verbose=False)
        assert program is not None
        program.model.metadata_props.update(_names(trained, which))
        program.save(target, external_data=False)


def _names(trained: Trained, which: str) -> dict[str, str]:
    """What classes 0, 1 and so on are called, for the file's metadata, as JSON; nothing where it is not known."""
    classes = trained.inputs(which).classes
    return {CLASSES: json.dumps(classes, ensure_ascii=False)} if classes else {}


def _exported(trained: Trained, which: str) -> Any:
    """The model as a torch.export.ExportedProgram."""
    import torch

    model, inputs = trained.module(which), _inputs(trained, which)
    program = torch.export.export(model, (inputs,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    _check(program.module(), model, inputs)
    return program


@contextmanager
def _refusals(trained: Trained, target: Path, others: str) -> Iterator[None]:
    """Any error that torch's exporters raise on a model as a ConfigError. What they print and log meanwhile is left out: the
    outcome is checked."""
    try:
        with _silence():
            yield
    except (PacelineError, OSError):
        raise
    except Exception as error:  # each exporter has its own kinds
        raise ConfigError(
            f"The model of task '{trained.task.name}' can't be exported to "
            f"{target.suffix}{_fault_line(trained, str(error))}: {_reason(error)}. Its forward() must take one tensor "
            "and return tensors, and must not depend on the tensor's values or on its number of rows. Change "
            f"that, or try {others}."
        ) from None


@contextmanager
def _silence() -> Iterator[None]:
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _fault_line(trained: Trained, said: str) -> str:
    """Where in the task's file the fault is, if torch says so."""
    name = Path(trained.place.task(trained.config.task)).name
    found = re.search(rf"{re.escape(name)}[:\", line]+(\d+)", said)
    return f" ({name}, line {found[1]})" if found else ""


def _reason(error: Exception) -> str:
    """What torch says; of what it says at length, what it means."""
    kind = type(error).__name__
    if kind.startswith("GuardOnDataDependent"):
        return f"which way it goes depends on the values in its inputs ({kind})"
    return _first_line(error) if isinstance(error, _Unlike) else f"{kind}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), "no reason given")[:_SHOWN].rstrip(".")


def _check(exported: Any, model: Any, inputs: "torch.Tensor") -> None:
    """_Unlike where what was exported gives something else on another number of rows, or on other values."""
    import torch

    rows = inputs[torch.arange(_CHECKED) % len(inputs)]
    factors = (-1, 8, 0.125) if rows.is_floating_point() else ()
    for tried in (rows, *(rows * by for by in factors)):
        with torch.no_grad():
            try:
                expected, again = model(tried), model(tried)
            except Exception:
                if tried is rows:
                    raise
                continue  # values that were made up, and that it need not take
            found = exported(tried)
        if not _alike(expected, again):
            raise _Unlike(
                "the model itself gives other outputs each time it is called: something in it is random, like "
                "functional.dropout without training=self.training"
            )
        if not _alike(expected, found):
            others = "another number of examples" if tried is rows else "other values"
            raise _Unlike(f"for {others} it gives something else than the model itself")


class _Unlike(ValueError):
    """What was exported is not what the model does."""


def _alike(one: Any, other: Any) -> bool:
    """Whether both are the same tensors, but for rounding."""
    import torch

    return all(
        a.shape == b.shape and torch.allclose(a, b, atol=1e-4 * max(1.0, _largest(a)), rtol=1e-3, equal_nan=True)
        for a, b in zip(_tensors(one), _tensors(other), strict=True)
    )


def _largest(values: "torch.Tensor") -> float:
    """The largest finite one, without its sign."""
    return float(values.detach().double().nan_to_num(0, 0, 0).abs().max()) if values.numel() else 0.0


def _tensors(outputs: Any) -> "list[torch.Tensor]":
    import torch
    from torch.utils._pytree import tree_leaves

    return [found for found in tree_leaves(outputs) if isinstance(found, torch.Tensor)]


def _inputs(trained: Trained, which: str) -> "torch.Tensor":
    """A few examples as the model takes them: of the run's own data, or zeros where that is not there any more."""
    try:
        shard: Any = open_shards(trained.place.shards).shard(0)
        features, labels = shard.features[:_EXAMPLES], shard.labels[:_EXAMPLES]
    except DataError:
        form = trained.inputs(which)
        features = np.zeros((_EXAMPLES, *form.shape), form.dtype)
        labels = np.zeros((_EXAMPLES, *form.label_shape), form.label_dtype)
    return trained.task.prepare(features, labels, None)[0]
