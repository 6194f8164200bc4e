"""`paceline.launch`: a function of a notebook or a script as each worker of a run, with real processes on this machine."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paceline.api.train import brief, run_here, with_named
from paceline.base.terminal import say
from paceline.base.variables import CONNECT
from paceline.callback import Callback
from paceline.core.errors import ConfigError
from paceline.launch.folder.run_folder import RUNS, open_run
from paceline.launch.settings.loggers import check_callbacks
from paceline.results.result import Result
from paceline.settings.own_folder import installed_first


class Call(NamedTuple):
    """What each process of the run calls."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    file: str
    """File of its code, as in tracebacks."""


@brief
@installed_first()
def launch(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    *,
    workers: int | None = None,
    servers: int | None = None,
    policy: str | Path | Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    device: str = "auto",
    show: Callable[[str], None] | None = say,
    yes: bool = False,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Result:
    """Calls `function(*args)` in each of several workers, as `paceline launch` runs a script, and returns when the run is over.

    The function is what a script would be: it makes model and data, and trains by paceline.wrap, loader and epochs. It may be
    of a notebook's cell, and use what the cells before have made; each worker has its own copy of that. What it returns is
    lost; its model is `result.load_into(model)`, for a model like it.

    The other arguments are those of `paceline.train`. Ctrl-C ends all processes and raises KeyboardInterrupt. Raises
    the PacelineError that the run ended with: ConfigError where the function failed, or can't be sent to other processes."""
    from paceline.api.train_live import FINISHED, settled
    from paceline.worker.live_objects.unsent import pack_or_refuse

    call, tell = _checked(function, args), show or (lambda line: None)
    check_callbacks(callbacks)
    overrides = with_named(settings, workers=workers, servers=servers, policy=policy)
    place = None if folder is None else Path(folder)
    wanted, said = settled(_name(function), overrides, place, yes)

    memory = pack_or_refuse(call, {"the function": function, "args": call.args})
    try:
        found, config = open_run(wanted, runs=RUNS if place is None else place.parent, given=said)
        if found.facts().get("finished"):
            tell(FINISHED.format(found))
        else:
            run_here(config, found, device, tell, callbacks, memory)
            tell(
                f"The model is {found.models / 'last.safetensors'}; result.load_into(model) takes it into one like it."
            )
    finally:
        os.close(memory)
    return Result(found.path)


def _checked(function: Callable[..., Any], args: Sequence[Any]) -> Call:
    """ConfigError where it can't be called so, or a worker of a run would start another one."""
    if CONNECT in os.environ:
        raise ConfigError(
            "paceline.launch was called in a worker of a run, which imports the file that calls it. Put the call under: if "
            '__name__ == "__main__":'
        )
    if not callable(function):
        raise ConfigError(
            f"paceline.launch got a {type(function).__name__}; expected a function that trains. A script is launched by the "
            "command: paceline launch train.py"
        )
    if not isinstance(args, list | tuple):
        raise ConfigError(f"args is of type {type(args).__name__}; expected a list of the function's arguments.")
    try:
        inspect.signature(function).bind(*args)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{_name(function)} can't be called with these args: {error}.") from None
    code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
    return Call(function, tuple(args), "" if code is None else code.co_filename)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__).strip("<>")
