"""breakpoint() in a process of a run, which has no terminal to ask anybody."""

import sys
from typing import NoReturn

from paceline.core.errors import ConfigError

WORDS = (
    "breakpoint() can't work here: a process of a run has no terminal. Debug a script alone, as plain torch: python "
    "SCRIPT.py. Call the functions of a task from Python: python -c 'import mytask; mytask.model()'. Or set PYTHONBREAKPOINT "
    "to a debugger that listens on the network (remote_pdb.set_trace), or to 0 to ignore breakpoints."
)


def refuse(*_: object, **__: object) -> NoReturn:
    """What PYTHONBREAKPOINT names in processes of a run. ConfigError says how to debug."""
    sys.stdout.flush()
    raise ConfigError(WORDS)
