"""The processes of a user's script: what they are started with, and what they print."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from paceline.core.settings.config import Config
from paceline.local.children import printable
from paceline.variables import CONNECT
from paceline.worker.command_line import ToldLaunched

_EVENT = b'{"process": "'
"""What our own lines in a log begin with."""
_TRACEBACK = b"Traceback (most recent call last)"
_GPU = re.compile(r"nvidia\d+")
SILENT = (
    "ended without training. Wrap the optimizer (paceline.wrap), take the training data from paceline.loader, and train in "
    "`for epoch in paceline.epochs(10):`."
)


def script_words(script: str, config: Config, objects: int | None = None) -> list[str]:
    """What follows `python -P`; `objects`: the descriptor of live ones, which a script of ours trains."""
    if objects is not None:
        return ["-m", "paceline.live_process"]
    return ["-m", "paceline.worker.script", script, *config.arguments]


def script_environment(before: Mapping[str, str], told: ToldLaunched) -> dict[str, str]:
    """What a process of the script sees: where the run is, and one GPU, of several each worker another one."""
    return {**before, **_gpu(before, told), CONNECT: told.json_text()}


def _gpu(before: Mapping[str, str], told: ToldLaunched) -> dict[str, str]:
    if told.device == "auto":
        there = before.get("CUDA_VISIBLE_DEVICES")
        found = (
            sorted(_GPU.findall(" ".join(each.name for each in Path("/dev").glob("nvidia*")))) if there is None else []
        )
        numbers = [name.removeprefix("nvidia") for name in found] if there is None else there.split(",")
        return {"CUDA_VISIBLE_DEVICES": numbers[told.rank % len(numbers)]} if len(numbers) > 1 else {}
    return {"CUDA_VISIBLE_DEVICES": told.device.removeprefix("cuda").removeprefix(":") if told.device != "cpu" else ""}


class Printed:
    """What a script prints, as it comes: the whole lines of its log that are not ours."""

    def __init__(self, log: Path, say: Callable[[str], None]) -> None:
        self._log = log
        self._say = say
        self._read = log.stat().st_size if log.exists() else 0

    def tell(self) -> None:
        """Says what is new."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._read)
                text = log.read()
        except OSError:  # not begun yet
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.split(b"\n")[:-1]:
            if line.startswith(_TRACEBACK):  # how it ended is told with the error
                break
            if not line.startswith(_EVENT):
                self._say(printable(line.decode(errors="replace").rpartition("\r")[2]))
