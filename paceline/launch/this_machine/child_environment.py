"""What processes of a run see of the environment. Light, for the first of them is begun before any settings are read."""

import os

from paceline.base.variables import PREFIX, TLS
from paceline.rpc.malloc import MALLOC_ENVIRONMENT

BREAKPOINT = "paceline.processes.exits.refuse_breakpoint"
"""What breakpoint() calls there."""


def child_environment(threads: int) -> dict[str, str]:
    """What a child sees: malloc set for big messages (no page faults for each), its threads, its words unbuffered, and of our
    variables only where the keys are: the settings are in the config file already. Debuggers that the user names stay, and
    so does a hash seed: by the same one a set has the same order on all machines, and when the run is resumed."""
    inherited = {name: value for name, value in os.environ.items() if name == TLS or not name.startswith(PREFIX)}
    inherited.setdefault("PYTHONBREAKPOINT", BREAKPOINT)
    inherited.setdefault("PYTHONHASHSEED", "0")
    return inherited | MALLOC_ENVIRONMENT | {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
