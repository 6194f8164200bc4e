"""The processes of a user's script: what they are started with, and the settings that the first of them brings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paceline.base.variables import CONNECT
from paceline.core.optimizers.effective import settings_lines as rates_told
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config
from paceline.launch.settings.launch_settings import LaunchSettings
from paceline.launch.supervise.children import Child
from paceline.launch.supervise.others import Others
from paceline.launch.supervise.processes import Processes
from paceline.launch.this_machine.processors import VISIBLE, cores, visible_gpus
from paceline.server.description import described
from paceline.settings.load_settings import load
from paceline.worker.command_line import ToldLaunched


def script_words(script: str, config: Config, objects: int | None = None) -> list[str]:
    """What follows `python -P`; `objects`: the descriptor of live ones, which Paceline's own script trains."""
    if objects is not None:
        return ["-m", "paceline.api.live_process"]
    return ["-m", "paceline.worker.script", script, *config.arguments]


def script_environment(before: Mapping[str, str], told: ToldLaunched) -> dict[str, str]:
    """What a process of the script sees: where the run is, and one GPU, of several each worker another one."""
    return {**before, **_gpu(before, told), CONNECT: told.json_text()}


def _gpu(before: Mapping[str, str], told: ToldLaunched) -> dict[str, str]:
    """What it sees of the visible ones: a number counts among these, as torch counts; no GPU where it is too high."""
    if told.device == "cpu":
        return {VISIBLE: ""}
    there = visible_gpus(before, Path("/dev"))
    if told.device == "auto":
        return {VISIBLE: there[told.rank % len(there)]} if len(there) > 1 else {}
    number = told.device.removeprefix("cuda:")
    if not number.isdecimal():
        return {}
    if VISIBLE in before:
        number = there[int(number)] if int(number) < len(there) else ""
    return {VISIBLE: number}


class ScriptProcesses:
    """Workers and evaluator of a run whose script brings model, data and loop."""

    def __init__(
        self, settings: LaunchSettings, processes: Processes, others: Others, say: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._folder = settings.folder
        self._processes = processes
        self._others = others
        self._say = say

    def start_worker(self, rank: int, own: Mapping[str, Any], servers: list[str]) -> Child:
        """The script as that worker; `own`: what only this one must know. What the first one prints is shown."""
        name = f"worker-{rank}"
        return self._start(name, "worker", ToldLaunched(**{**self._arguments(name, servers), **own}))

    def settle(self, servers: list[str]) -> Config:
        """Waits until the script has told the servers what it wants: the whole settings. Starts the evaluator where the script
        has anything for it."""
        found = self._processes.wait_for(self._described)
        assert found is not None
        config = load(self._folder.first_settings, task=found)
        self._folder.rewrite(config.model_dump(mode="json"))
        for line in rates_told(config, build_policy(config.policy)):
            self._say(line)
        if config.evaluate_every and config.scored_by == "evaluator":
            told = ToldLaunched(evaluates=True, final_threads=cores(), **self._arguments("evaluator", servers))
            self._start("evaluator", "evaluator", told)
            self._processes.note_pids()
        return config

    def _described(self) -> dict[str, Any] | None:
        """What the script has told. Ended where one of its processes has ended and none has told anything."""
        ended = self._processes.ended_with_0
        if (found := described(self._folder.server(0))) is None:
            self._processes.refuse_untrained(ended)
        return found

    def _start(self, name: str, role: str, told: ToldLaunched) -> Child:
        if role == "evaluator" or told.rank == 0:
            self._processes.show_log(name)
        config = self._settings.config
        words = script_words(self._folder.task(config.task), config, self._settings.objects)
        environment = script_environment(self._settings.environment, told)
        return self._processes.begin(name, role, words, environment, config.restarts)

    def _arguments(self, name: str, servers: list[str]) -> dict[str, Any]:
        """The arguments that all of the script's processes share."""
        told = {
            "servers": ",".join(servers),
            "models": self._folder.models,
            "threads": self._settings.threads,
            "device": self._settings.device,
            "objects": self._settings.objects,
        }
        return {**told, **self._settings.arguments(name)}
