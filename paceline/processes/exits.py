"""How a process of Paceline ends: errors are sentences with their exit codes, and breakpoint() is refused in a process without
a terminal. Light, for a command loads this first of all."""

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn

from paceline.base.extras import lacking
from paceline.base.own_files import blamed
from paceline.base.terminal import say
from paceline.core.errors import ConfigError, OutOfMemory, PacelineError, UsageError, is_out_of_memory, out_of_memory

USAGE_OF_TYPER = 2
"""The exit code of a command line that it can't understand."""
NO_TERMINAL = (
    "breakpoint() can't work here: a process of a run has no terminal. Debug a script alone, as plain torch: python "
    "SCRIPT.py. Call the functions of a task from Python: python -c 'import mytask; mytask.model()'. Or set PYTHONBREAKPOINT "
    "to a debugger that listens on the network (remote_pdb.set_trace), or to 0 to ignore breakpoints."
)


@contextlib.contextmanager
def exits(name: str) -> Iterator[None]:
    """Ends the process with a message and the documented exit code for whatever the block raises."""
    try:
        yield
    except PacelineError as error:
        say(f"{name}: {type(error).__name__}: {error}", sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if lack := lacking(error):
            say(f"{name}: ConfigError: {lack}", sys.stderr)
            sys.exit(ConfigError.exit_code)
        if is_out_of_memory(error):
            say(f"{name}: OutOfMemory: {out_of_memory(error, name)}", sys.stderr)
            sys.exit(OutOfMemory.exit_code)
        if told := blamed(error):
            say(f"{name}: ConfigError: {told}", sys.stderr)
            sys.exit(ConfigError.exit_code)
        traceback.print_exc()
        say(f"{name}: this is a bug in Paceline. Report the lines above.", sys.stderr)
        sys.exit(PacelineError.exit_code)


def run_command(main: Callable[..., None]) -> None:
    """Runs a process's typer command; a command line that can't be understood exits with 64, as everywhere in Paceline."""
    import typer

    try:
        typer.run(main)
    except SystemExit as stop:
        sys.exit(UsageError.exit_code if stop.code == USAGE_OF_TYPER else stop.code)


def refuse_breakpoint(*_: object, **__: object) -> NoReturn:
    """What PYTHONBREAKPOINT names in processes of a run. ConfigError says how to debug."""
    sys.stdout.flush()
    raise ConfigError(NO_TERMINAL)
