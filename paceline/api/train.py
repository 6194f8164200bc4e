"""Paceline from Python: `train` a task, or live objects, with real processes on this machine. Torch is imported when a model is
asked for, not before."""

import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from paceline.base.extras import lacking
from paceline.base.terminal import say
from paceline.callback import Callback
from paceline.core.errors import ConfigError, PacelineError, in_brief
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RUNS, RunFolder, open_run
from paceline.launch.settings.loggers import check_callbacks
from paceline.launch.settings.read_config import complete
from paceline.launch.status.chief_status import standing
from paceline.launch.status.live_table import PlainLines
from paceline.launch.supervise.launcher import run_local
from paceline.launch.this_machine.capacity import refuse_too_many
from paceline.launch.this_machine.signals import CTRL_C
from paceline.results.result import Result
from paceline.settings.own_folder import installed_first
from paceline.tasks.task import BUILTIN, FILE_MODULE

if TYPE_CHECKING:
    import torch

P = ParamSpec("P")
T = TypeVar("T")

__all__ = ["Result", "train"]


def brief(function: Callable[P, T]) -> Callable[P, T]:
    """The function; a `PacelineError` from it is one sentence below the caller's line, without the lines in here that
    led to it. A bug keeps its whole traceback."""

    @functools.wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except PacelineError as error:
            short: BaseException = in_brief(error)
        except KeyboardInterrupt as error:
            short = error.with_traceback(None)
        except ModuleNotFoundError as error:
            if (told := lacking(error)) is None:
                raise
            short = ConfigError(told)
        except Exception as error:
            from paceline.worker.live_objects.own_faults import TRIED, behind_ours

            if TRIED not in getattr(error, "__notes__", ()):
                raise
            raise error.with_traceback(behind_ours(error.__traceback__))  # noqa: B904 - it is the same one
        raise short

    return called


@brief
@installed_first()
def train(
    task: "str | Path | ModuleType | torch.nn.Module",
    train: Any = None,
    *,
    test: Any = None,
    validation: Any = None,
    loss: Callable[[Any, Any], Any] | None = None,
    batch_loss: Callable[[Any, Any], Any] | None = None,
    optimizer: Any = None,
    scheduler: Any = None,
    scheduler_interval: str | None = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    batch_size: int | None = None,
    collate_fn: Callable[..., Any] | None = None,
    num_workers: int | None = None,
    workers: int | None = None,
    servers: int | None = None,
    policy: str | Path | Mapping[str, Any] | None = None,
    data: str | Path | Mapping[str, Any] | None = None,
    epochs: int | None = None,
    folder: str | Path | None = None,
    device: str = "auto",
    show: Callable[[str], None] | None = say,
    yes: bool = False,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Result:
    """Trains with real processes on this machine, as `paceline run` does, and returns when the final version is scored.

    `task`: a model with its data set `train`, or a built-in task's name, the path of a task file, or its module.

    With a model, everything else may be an object of your script or notebook, lambdas and classes of a cell included;
    the model has the final weights afterwards. `train`, `test`, `validation`: torch data sets, DataLoaders, or (inputs,
    targets) as tensors or arrays; without test and validation both are cut from `train`. `loss`: of outputs and
    targets; or `batch_loss`: of model and mini-batch in any form; left out: cross entropy or squared error, as fits.
    `optimizer`: one of torch over the model's parameters, a function that makes it of them, or a name; left out: AdamW.
    `scheduler`: of that, stepped after each epoch, or with scheduler_interval="step" after each step. `metrics`: by
    name, functions of outputs and targets (with batch_loss: of model and mini-batch); accuracy comes by itself.
    `batch_size`: of all workers together. `collate_fn`, `num_workers`: as in DataLoader.

    With both: `policy`: like "ssp:3", or {"name": "ssp",
    "bound": 3}, or a file of your own. `data`: where the data set is, or the whole section `data`. `epochs`: passes
    over the training data. `folder`: the run's folder, ./runs/NAME if not given; one with an unfinished run of the same
    settings is resumed, a finished one is returned as it is. `device`: what each worker computes on: auto, cpu, cuda or
    cuda:1. `show` gets a line every few seconds; None: silence. Problems that don't end the run are shown when they are
    seen, are in the result's `warnings`, and are a Python warning at the end. `yes`: start even if this machine has too
    few cores or too little memory for it. `callbacks`: hear how the run goes, each in its own thread;
    loggers=["mlflow"] are ready-made ones. `settings`: any other key of docs/reference/settings.md, sections as dicts:
    optimizer={"name": "adam", "lr": 0.001}, schedule={"name": "cosine"}. Keys left out are the task's own.

    No `if __name__ == "__main__"` is needed, unless the script is the task file itself. Ctrl-C ends all processes and
    raises KeyboardInterrupt. Raises the PacelineError that the run ended with: ConfigError, DataError, ServersGone, ...;
    its text names the folder of the logs, where there are any."""
    _refuse_inside_task(sys._getframe(1))
    check_callbacks(callbacks)
    given = {
        "train": train,
        "test": test,
        "validation": validation,
        "loss": loss,
        "batch_loss": batch_loss,
        "scheduler": scheduler,
        "scheduler_interval": scheduler_interval,
        "metrics": metrics,
        "collate_fn": collate_fn,
        "num_workers": num_workers,
    }
    place = data if isinstance(data, Mapping) else None if data is None else {"path": str(data)}
    overrides = with_named(settings, workers=workers, servers=servers, policy=policy, data=place)
    live = {**given, "optimizer": optimizer, "batch_size": batch_size, "epochs": epochs}
    if not isinstance(task, (str, Path, ModuleType)):
        _check_model(task)
        return _train_live(task, live, overrides, folder, device, yes, show, callbacks)
    _refuse_objects(task, given)
    own = {"optimizer": optimizer, "batch_size": batch_size, "epochs": epochs, "task": _name(task)}
    overrides |= {key: value for key, value in own.items() if value is not None}
    runs = RUNS
    if folder is not None:
        runs = Path(folder).parent
        overrides["run"] = Path(folder).name
    wanted = complete(overrides)
    refuse_too_many(wanted, yes, "yes=True")
    found, config = open_run(wanted, runs=runs)
    if not found.facts().get("finished"):
        run_here(config, found, device, show or (lambda line: None), callbacks)
    return Result(found.path)


def _check_model(found: Any) -> None:
    """ConfigError where it is none; without torch nobody has one."""
    if isinstance(found, type):
        raise ConfigError(
            f"The first argument is the class {found.__name__}; give an object of that class: {found.__name__}()."
        )
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(found, torch.nn.Module):
        raise ConfigError(
            f"The first argument is of type {type(found).__name__}; expected a model (torch.nn.Module) with its data set "
            "train=..., a task's name, or the path of a task file."
        )


def _refuse_objects(task: str | Path | ModuleType, given: Mapping[str, Any]) -> None:
    """ConfigError where arguments that belong to a model come with a task."""
    if wrong := [key for key, value in given.items() if value is not None]:
        raise ConfigError(
            f"{wrong[0]}= is for paceline.train(model, train=...). The task {_name(task)} has its own data, loss "
            f"and metrics: leave out {wrong[0]}=."
        )


def _train_live(
    model: Any,
    live: dict[str, Any],
    overrides: dict[str, Any],
    folder: str | Path | None,
    device: str,
    yes: bool,
    show: Callable[[str], None] | None,
    callbacks: Sequence[Callback],
) -> Result:
    from paceline.api.train_live import train_live
    from paceline.worker.live_objects.given import TrainArguments

    for key in ("accumulate", "precision", "compile"):  # what a task's worker does is the live loop's here
        if key in overrides:
            live[key] = overrides.pop(key)
    tell = show or (lambda line: None)
    return train_live(
        model,
        TrainArguments(**live),
        overrides,
        None if folder is None else Path(folder),
        yes,
        tell,
        lambda config, place, objects: run_here(config, place, device, tell, callbacks, objects),
    )


def with_named(settings: dict[str, Any], **named: Any) -> dict[str, Any]:
    """Returns the settings with those arguments that are not None; a path becomes its text."""
    said = {key: value for key, value in named.items() if value is not None}
    return settings | {key: str(value) if isinstance(value, Path) else value for key, value in said.items()}


def run_here(
    config: Config,
    folder: RunFolder,
    device: str,
    show: Callable[[str], None],
    callbacks: Sequence[Callback],
    objects: int | None = None,
) -> None:
    """Trains; raises how it ended where it did not finish."""
    lines = PlainLines(show)
    outcome = run_local(config, folder.path, lines.say, lines.show, device=device, callbacks=callbacks, objects=objects)
    if outcome.exit_code == CTRL_C:
        raise KeyboardInterrupt(f"The run was stopped. The same call with folder={str(folder.path)!r} goes on with it.")
    if outcome.exit_code:
        if folder.path.exists():
            outcome.reason += f"\nThe logs are in {folder.path / 'logs'}."
        raise outcome.error()
    for line in standing(outcome.warnings):
        warnings.warn(line.removeprefix("warning: "), stacklevel=4)  # the caller of train()


def _name(task: str | Path | ModuleType) -> str:
    """The task as the config names it."""
    if not isinstance(task, ModuleType):
        return str(task)
    if task.__name__.startswith(f"{BUILTIN}."):
        return task.__name__.rpartition(".")[2]
    if not getattr(task, "__file__", None):
        raise ConfigError(
            f"The task is the module {task.__name__}, which has no file, so the run's processes can't load it. "
            "Write data() and model() into a .py file and give its path."
        )
    return str(task.__file__)


def _refuse_inside_task(frame: FrameType | None) -> None:
    """A task file that trains when it is loaded would start processes that load it, and so on."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(FILE_MODULE):
            raise ConfigError(
                f"{frame.f_code.co_filename} is the task's file and calls train() when it is imported, and every process of "
                'the run imports it. Put the call under: if __name__ == "__main__":'
            )
        frame = frame.f_back
