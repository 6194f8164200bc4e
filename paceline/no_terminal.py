"""breakpoint() in a process of a run, which has no terminal to ask anybody."""

import sys
from typing import NoReturn

from paceline.core.errors import ConfigError

WORDS = (
    "breakpoint() in a process of a run: it has no terminal. A script is debugged alone, as plain torch: python SCRIPT.py; the "
    'functions of a task are, where Python calls them: python -c "import mytask; mytask.model()". PYTHONBREAKPOINT names a '
    "debugger that is reached from elsewhere (remote_pdb.set_trace), or is 0 for none."
)


def refuse(*_: object, **__: object) -> NoReturn:
    """What PYTHONBREAKPOINT names in processes of a run. ConfigError says how to debug."""
    sys.stdout.flush()
    raise ConfigError(WORDS)
