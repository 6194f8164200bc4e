"""A task says what is trained: a file with a few plain functions, built in or a user's own. Nothing here imports torch
until a function that needs it is called, because the sharder reads `data` without it."""

import difflib
import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np
import numpy.typing as npt

from paceline.base.own_files import is_own, load_file, where
from paceline.core import registry
from paceline.core.chief.best_model import Measure
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config, TableConfig
from paceline.data.dataset import Dataset, dense
from paceline.settings.load_settings import is_script, load, settings_above, task_of
from paceline.settings.own_folder import find_beside
from paceline.tasks.checks import PROBABILITIES, RULES, error_text, guarded, kind
from paceline.tasks.refuse_scripts import refuse_script
from paceline.tasks.written_settings import written_settings

if TYPE_CHECKING:
    import torch

BUILTIN = "paceline.tasks.builtin"
OwnSettings = dict[tuple[str, str | None], Mapping[str, Any]]
"""By a user's file, as the settings name it, and its model: the settings that the file itself says."""
READ: OwnSettings = {}
"""Those that `load_config` has read in this process, where it ran the files for them."""
TOLD: OwnSettings = {}
"""Those that another process has read for this one, which does not run the files."""
FILE_MODULE = "paceline_task_"
"""What the name of the module begins with that a user's file becomes."""
_ONLY = "model"
"""What the model of a task is called that has model() instead of MODELS, or in addition to it."""
_OWN = "probabilities"
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained, as functions that check themselves: a mistake in the file is a ConfigError with its line."""

    name: str
    data: Callable[[str], Dataset]
    """Reads the examples at `data.path` of the config: raw features (images stay uint8) and whole-number labels."""
    model: "Callable[[], torch.nn.Module]"
    """A new model, its first weights drawn from torch's global generator."""
    prepare: "Callable[[Array, Array, np.random.Generator | None], tuple[torch.Tensor, torch.Tensor]]"
    """Raw features and labels as input tensors; with a generator it is for training and may augment."""
    loss: "Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]"
    """loss(model, inputs, labels): the mean over the mini-batch, a scalar tensor."""
    metrics: Callable[[Any, "torch.Tensor"], dict[str, SupportsFloat]]
    """metrics(outputs, labels): numbers by name, of all examples of a split together, on the CPU."""
    settings: Mapping[str, Any]
    """The task's own defaults of the config, for this model, below YAML, environment and flags."""
    best: Measure | None = None
    """What decides which model is the best one; None: accuracy where it is measured, otherwise the loss."""
    metrics_are_means: bool = False
    """Whether metrics may be taken mini-batch by mini-batch, because they are means over the examples."""
    probabilities: "Callable[[Any], torch.Tensor] | None" = None
    """probabilities(outputs): those of the classes (examples, classes), where the file says it; otherwise they are the
    softmax of the outputs."""


def load_config(
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    preset: str | None = None,
    own_file: bool = True,
) -> Config:
    """`load`, with the task's own defaults below all else: two steps, because its name is among the settings.
    `own_file` False: those of a user's file are read as they are written, for running it may load torch; a file with the whole
    config leaves none to read. The task's own epochs are for up to four workers with fitted steps; more take more."""
    if is_script(path, overrides, preset):
        return load(path, overrides, None, preset)
    name, model = task_of(path, overrides, preset)
    if own_file or not is_own(name):
        settings = _settings_of(name, model)
    else:
        above = settings_above(overrides, path, preset)
        settings = {} if set(Config.model_fields) <= set(above) else written_settings(Path(name), model, above)
    config = load(path, overrides, settings, preset)
    times = config.svm.slowdown(config.workers) if config.updates == "sparse" else 1
    if times == 1 or "epochs" not in settings:
        return config
    return load(path, overrides, {**settings, "epochs": math.ceil(times * settings["epochs"])}, preset)


def _settings_of(name: str, model: str | None) -> Mapping[str, Any]:
    """The task's own."""
    if not is_own(name):
        return load_task(name, model).settings
    if (name, model) in TOLD:
        return TOLD[name, model]
    READ[name, model] = load_task(name, model).settings
    return READ[name, model]


def load_task(
    name_or_path: str,
    model: str | None = None,
    positive: str | None = None,
    table: TableConfig | None = None,
) -> Task:
    """The built-in task of that name, or the user's file where the value has a '/' or ends in '.py', with the model that
    `model` names in its MODELS (None: its default). `positive`: the class or topic that data() tells from all others, where
    it takes one; `table`: how it reads a table, likewise. ConfigError: no such task, file or model, a file that fails on
    import, or one without data() or a model (a task with sparse updates needs none)."""
    module = _load_file(Path(name_or_path)) if is_own(name_or_path) else _load_builtin(name_or_path)
    models = _models(module)
    chosen = _choose(models, model, name_or_path)
    functions = {part: _function(module, part, rule.default) for part, rule in RULES.items() if part != _ONLY}
    functions["prepare"] = _of_dense(functions["prepare"])
    if positive is not None:
        functions["data"] = _with(functions["data"], f"svm.positive is {positive!r}", name_or_path, positive=positive)
    if table not in (None, TableConfig()):
        functions["data"] = _with(functions["data"], "data.table says how to read a table", name_or_path, table=table)
    file, best = str(module.__file__), best_of(module, is_sparse(module))
    if best is not None:
        functions["metrics"] = with_best(functions["metrics"], best, file)
    return Task(
        name=Path(name_or_path).stem,
        settings=_settings(module, models, chosen),
        best=best,
        metrics_are_means=are_means(module),
        probabilities=guarded(file, _OWN, getattr(module, _OWN), PROBABILITIES) if hasattr(module, _OWN) else None,
        model=guarded(file, chosen if chosen == _ONLY else f"MODELS[{chosen!r}]", models[chosen], RULES[_ONLY]),
        **{part: guarded(file, part, function, RULES[part]) for part, function in functions.items()},
    )


def _with(data: Callable[..., Any], seen: str, task: str, **argument: Any) -> Callable[..., Any]:
    """data() with an argument that a setting gives."""
    (name,) = argument
    if name not in inspect.signature(data).parameters:
        raise ConfigError(
            f"{seen}, but data() of the task {task} has no such argument. Leave it out, or write def data(path, {name}=None)."
        )
    return functools.wraps(data)(functools.partial(data, **argument))


def _of_dense(prepare: Callable[..., Any]) -> Callable[..., Any]:
    """prepare() that sees numpy arrays only: sparse rows get their zeros back, some at a time."""

    @functools.wraps(prepare)
    def prepare_dense(features: Any, *others: Any) -> Any:
        return prepare(dense(features), *others)

    return prepare_dense


def _load_builtin(name: str) -> ModuleType:
    known = registry.names(BUILTIN)
    if name not in known:
        raise ConfigError(
            f"There is no task '{name}'.{_nearest(name, known)} Built in: {', '.join(known)}. For your own file "
            f"give its path, like ./{Path(name).stem or 'task'}.py."
        )
    return importlib.import_module(f"{BUILTIN}.{name}")


def _load_file(path: Path) -> ModuleType:
    if not path.is_file() or path.suffix != ".py":
        seen = "is not a Python file" if path.exists() else "does not exist"
        raise ConfigError(f"The task file {path} {seen}. Give the path of a .py file with data() and model().")
    refuse_script(path)
    find_beside(path)
    try:
        return load_file(f"{FILE_MODULE}{path.stem}", str(path))
    except (Exception, SystemExit) as error:
        raise ConfigError(f"The task file can't be loaded: {where(error, str(path))}: {error_text(error)}") from error


def _function(module: ModuleType, part: str, default: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The function of the file, or its default."""
    function = getattr(module, part, default)
    if not callable(function):
        seen = f"has {kind(function)} as {part}" if hasattr(module, part) else f"lacks {part}()"
        raise ConfigError(f"The task file {module.__file__} {seen}. A task needs the functions data(path) and model().")
    return function


def _models(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """What the task can train, by name, the default first: model() where there is one, then MODELS."""
    models = getattr(module, "MODELS", {})
    table: dict[Any, Any] = models if isinstance(models, dict) else {None: models}
    for name, build in table.items():
        if not isinstance(name, str) or not callable(build):
            seen = f"holds {name!r}: {kind(build)}" if models is table else f"is {kind(models)}"
            raise ConfigError(
                f"MODELS in {module.__file__} {seen}; expected a dict that maps names to functions which take no "
                "arguments and build a model, like {'small': small_net}."
            )
    if is_sparse(module) and not table and not hasattr(module, _ONLY):
        return {_ONLY: _linear}
    return table if table and not hasattr(module, _ONLY) else {_ONLY: _function(module, _ONLY), **table}


def is_sparse(module: ModuleType) -> bool:
    """Whether the task's own settings ask for sparse updates, whose model is linear and not torch's."""
    settings = getattr(module, "SETTINGS", None)
    return isinstance(settings, dict) and settings.get("updates") == "sparse"


def _linear() -> "torch.nn.Module":
    raise ConfigError(
        "This task has a linear model, not a torch module: leave updates at sparse. `paceline predict` applies a "
        "trained model; paceline.data.linear_model.read_linear_model reads it."
    )


def _choose(models: Mapping[str, Any], wanted: str | None, task: str) -> str:
    """The key of the model to train."""
    if wanted is None:
        return next(iter(models))
    if wanted in models:
        return wanted
    if list(models) == [_ONLY]:
        raise ConfigError(f"model is '{wanted}', but the task {task} has only one model; leave out `model`.")
    raise ConfigError(
        f"The task {task} has no model '{wanted}'.{_nearest(wanted, models)} It has: {', '.join(models)}."
    )


def _settings(module: ModuleType, models: Mapping[str, Any], chosen: str) -> dict[str, Any]:
    """SETTINGS, with the keys that MODEL_SETTINGS has for the chosen model in their place."""
    settings, by_model = getattr(module, "SETTINGS", {}), getattr(module, "MODEL_SETTINGS", {})
    if not isinstance(settings, dict):
        raise ConfigError(f"SETTINGS in {module.__file__} is {kind(settings)}; expected a dict like {{'epochs': 5}}.")
    if not isinstance(by_model, dict) or not all(isinstance(found, dict) for found in by_model.values()):
        raise ConfigError(
            f"MODEL_SETTINGS in {module.__file__} is {kind(by_model)}; expected a dict that maps the names of "
            "models to their settings, like {'small': {'epochs': 5}}."
        )
    for name in by_model:
        if name not in models:
            raise ConfigError(
                f"MODEL_SETTINGS in {module.__file__} has '{name}', which is not a model.{_nearest(name, models)}"
            )
    return {**settings, **by_model.get(chosen, {})}


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f" Did you mean '{near[0]}'?" if near else ""


def best_of(module: ModuleType, is_sparse: bool) -> Measure | None:
    """BEST of the file; None where it has none. `is_sparse`: it has a linear model. ConfigError where it is no measure, or
    names what is not measured of a linear model, or without metrics()."""
    if not hasattr(module, "BEST"):
        return None
    where = _where(str(module.__file__))
    found = Measure.parse(module.BEST, where)
    if is_sparse:
        from paceline.core.linear.score import Score  # with its loops, which other tasks need not load

        found.check([name for name in Score._fields if name != "penalty"], where)
    elif not hasattr(module, "metrics"):
        found.check(("accuracy",), where)
    return found


def with_best(metrics: Callable[..., Any], best: Measure, file: str) -> Callable[..., Any]:
    """metrics() that refuses a result without the task's own measure."""

    @functools.wraps(metrics)
    def checked(outputs: Any, labels: Any) -> Any:
        found = metrics(outputs, labels)
        if isinstance(found, dict):
            best.check([name for name in found if isinstance(name, str)], _where(file))
        return found

    return checked


def are_means(module: ModuleType) -> bool:
    """Whether metrics() gives means over the examples: METRICS_ARE_MEANS, and so for a file without metrics()."""
    found = getattr(module, "METRICS_ARE_MEANS", not hasattr(module, "metrics"))
    if not isinstance(found, bool):
        raise ConfigError(f"METRICS_ARE_MEANS in {module.__file__} is {found!r}; expected True or False.")
    return found


def _where(file: str) -> str:
    return f"BEST in {file}"
