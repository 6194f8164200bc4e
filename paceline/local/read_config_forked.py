"""The config of a run, read by a process that is forked from one with torch: a user's file says its own settings only when it
is loaded, and the process that shows the run has no other use for what it imports.

This file is both sides: `read_forked`, and the program (`python -m paceline.local.read_config_forked FILE ARGUMENTS`)."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from paceline.core.errors import PacelineError
from paceline.core.settings.config import Config
from paceline.load_settings import exits, load, write_yaml
from paceline.local.forker import Forker
from paceline.local.read_config import read_config


def read_forked(begun: Forker, arguments: Mapping[str, Any]) -> Config:
    """`read_config` with these arguments. What the file prints comes to stderr; a mistake ends this process in the way that it
    has ended the other one. Where that can't be forked, this process reads the config."""
    with TemporaryDirectory(prefix="paceline-") as folder:
        found, log = Path(folder) / "config.yaml", Path(folder) / "log"
        child = begun.start(["-m", __name__, str(found), json.dumps(arguments)], log, Path.cwd(), os.environ)
        if child is None:
            return read_config(**arguments)
        code = child.wait()
        sys.stderr.write(log.read_text(errors="replace"))
        sys.stderr.flush()
        if code < 0:
            raise PacelineError(f"The process that loads {arguments['what']} was ended by signal {-code}.")
        if code:
            sys.exit(code)
        return load(found)


def main(found: str, arguments: str) -> None:
    """Writes the config to the file `found`."""
    with exits("paceline"):
        write_yaml(read_config(**json.loads(arguments)), Path(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
