"""A console that a training outlives: where nobody reads it any more, it falls silent."""

import os

from rich.console import Console


class LastingConsole(Console):
    """Rich's own ends the process when its pipe is closed, as by `| head`, or by a Ctrl-C that ends `| tee log`, too."""

    def on_broken_pipe(self) -> None:
        """From now on nothing is shown, here or by print()."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)
