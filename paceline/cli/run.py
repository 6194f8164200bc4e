"""`paceline run`: a training on this machine, shown while it goes on, summed up at its end."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from paceline.base.lasting_console import LastingConsole
from paceline.base.terminal import show
from paceline.cli.hints import next_lines
from paceline.core.chief.best_model import by_split, result
from paceline.core.chief.warnings import RunWarning
from paceline.core.explain.cause import finding_of
from paceline.core.optimizers.effective import settings_lines
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config, TableConfig
from paceline.launch.folder.audit import Lost
from paceline.launch.folder.run_folder import RUNS, RunFolder, open_run
from paceline.launch.folder.stored_checkpoints import has_checkpoints
from paceline.launch.forks.begin_early import Begun
from paceline.launch.forks.forker import Forker
from paceline.launch.forks.run_forkers import forking
from paceline.launch.status.chief_status import standing
from paceline.launch.status.live_table import display_on
from paceline.launch.status.recoveries import Recovery
from paceline.launch.supervise.faults import Inflicted
from paceline.launch.supervise.launcher import run_local
from paceline.launch.supervise.others import Others
from paceline.launch.supervise.outcome import NOT_WELL, Outcome

if TYPE_CHECKING:
    from paceline.launch.other_machines.listening import Listening

_UNSCORED = "Nothing was scored: the script has no paceline.evaluate(function)."


def run(
    config: Config,
    fresh: bool,
    as_json: bool,
    device: str = "auto",
    runs: Path = RUNS,
    begun: Begun | None = None,
    given: Mapping[str, Any] | None = None,
    machines: "Listening | None" = None,
) -> int:
    """Starts or resumes the run; returns the exit code. With `as_json` stdout gets one object, people read stderr. Raises what
    ended it before anything was learned. `begun`: as in `forking`; `given`: as in `open_run`; `machines`: as in
    `listening`."""
    console = LastingConsole(stderr=as_json, highlight=False)
    with ExitStack() as stack:
        forkers = None if begun is None else stack.enter_context(forking(config, begun))
        folder, outcome = finish(config, fresh, console, device, forkers, runs, given, machines)
    if config.is_script and folder.config.exists():
        config = folder.settings()  # by now the script has said the rest
    if as_json:
        print(
            json.dumps(
                {"run": folder.name, "folder": str(folder.path), "model": str(_model(folder)), **asdict(outcome)}
            )
        )
    if outcome.refused:
        raise outcome.error()
    if not as_json:
        for line in summary(config, folder, outcome):
            show(console, line)
    return outcome.exit_code


def finish(
    config: Config,
    fresh: bool,
    console: Console,
    device: str = "auto",
    forkers: Mapping[str, Forker] | None = None,
    runs: Path = RUNS,
    given: Mapping[str, Any] | None = None,
    machines: "Listening | None" = None,
) -> tuple[RunFolder, Outcome]:
    """Trains, shown while it goes on, unless the run has been finished before. `forkers`: as in `run_local`;
    `runs`, `given`: as in `open_run`; `machines`: as in `listening`."""
    folder, config = open_run(config, fresh, runs, given)
    facts = folder.facts()
    if facts.get("finished"):
        further = "" if config.is_script else "--epochs N trains it further, "
        show(console, f"run {folder.name} is finished already; {further}--fresh starts it over.")
        return folder, Outcome(
            facts.get("exit_code", 0),
            facts.get("accuracy"),
            facts.get("seconds", 0.0),
            reason=f"it was finished before: {facts.get('reason')}",
            metrics=facts.get("metrics", {}),
            measure=facts.get("measure", ""),
            scored=facts.get("scored", {}),
            warnings=[RunWarning(**each) for each in facts.get("warnings", [])],
            choices=facts.get("choices", []),
            causes=[finding_of(each) for each in facts.get("causes", [])],
            recovery=Recovery(**facts.get("recovery", {})),
            faults=[Inflicted.of(each) for each in facts.get("faults", [])],
            lost=None if facts.get("lost") is None else Lost(**facts["lost"]),
        )
    resumed = "resuming" if folder.has_trained else "starting"
    size = f"workers {config.workers}, servers {config.servers}"
    size += "" if config.is_script else f", epochs {config.epochs}"
    if not folder.has_trained and has_checkpoints(config):
        resumed = f"resuming, from {config.checkpoint.at},"
    show(console, f"{resumed} run {folder.name} in {folder.path}: {config.task}, {config.policy.name}, {size}")
    for line in [] if config.is_script else settings_lines(config, build_policy(config.policy)):
        show(console, line)
    with _others(config, folder, machines) as others, display_on(console) as display:
        return folder, run_local(
            config,
            folder.path,
            display.say,
            display.show,
            device=device,
            forkers=forkers,
            others=others,
            echo=display.echo,
        )


def _others(config: Config, folder: RunFolder, machines: "Listening | None") -> AbstractContextManager[Others | None]:
    """The machines that lend processes; None where nobody listens for them."""
    if machines is None:
        return nullcontext()
    from paceline.launch.other_machines.listening import listening

    return listening(config, folder, machines)


def summary(config: Config, folder: RunFolder, outcome: Outcome) -> list[str]:
    """What to know at the end; the last line of a finished run is its test accuracy, or what decides for the task."""
    if not outcome.is_finished:
        again = f"See {folder.path}/logs. {folder.how_to_go_on(config.servers)}"
        return [f"run {folder.name} ended with exit code {outcome.exit_code}: {outcome.reason}", again]
    trained, unit = (outcome.steps[0], "steps") if outcome.steps else (outcome.examples, "examples")
    rate = trained / outcome.seconds if outcome.seconds else 0.0
    told = f" ({trained:,} {unit}, {rate:,.0f} a second, version {outcome.version:,})" if trained else ""
    return [
        f"run {folder.name}: {outcome.seconds:.1f} s of training{told}; {outcome.reason or 'finished'}",
        *([NOT_WELL[outcome.exit_code].format(outcome.exit_code)] if outcome.exit_code else []),
        *(
            [f"The model is {_model(folder)}{_best(config, outcome)}. {_use(config)}", *_loading(config, folder)]
            if outcome.metrics or _model(folder).exists()
            else ["No model was kept, because the run was not scored. The servers' snapshots have its weights."]
        ),
        f"Curves: tensorboard --logdir {folder.path}",
        *([f"Recovered: {outcome.recovery}"] if str(outcome.recovery) else []),
        *outcome.choices,
        *_faults(outcome),
        *standing(outcome.warnings),
        *map(str, outcome.causes),
        *next_lines(
            config,
            folder,
            [each for each in outcome.warnings if not each.passed],
            outcome.metrics,
            outcome.causes,
        ),
        *([f"Scores: {by_split(outcome.metrics, outcome.scored)}"] if outcome.metrics else []),
        result(outcome.metrics, outcome.measure) if config.evaluate_every else _UNSCORED,
    ]


def _faults(outcome: Outcome) -> list[str]:
    """What was to go wrong, what it cost, and what was lost by it."""
    lost = [] if outcome.lost is None else [f"Lost: {outcome.lost}"]
    return ["Faults:", *(f"    {each}" for each in outcome.faults), *lost] if outcome.faults else []


def _best(config: Config, outcome: Outcome) -> str:
    of = "scores" if outcome.steps else "epochs"
    return f", the best one of all {of} best.safetensors next to it" if config.evaluate_every else ""


def _use(config: Config) -> str:
    return "These lines load it:" if config.updates == "dense" else "LIBLINEAR reads the .liblinear files. Apply it:"


def _loading(config: Config, folder: RunFolder) -> list[str]:
    """What to do with the model, in code."""
    if config.updates == "sparse":
        form = "LIBSVM text" if config.data.table == TableConfig() else "a table with the same columns"
        return [f"    paceline predict {folder.name} FILE  # {form}, with labels or without"]
    made = f"as {config.task} makes it" if config.is_script else f"model() of the task {config.task}"
    lines = [
        "    from safetensors.torch import load_file",
        f'    path = "{_model(folder)}"',
        f"    model.load_state_dict(load_file(path))  # model: {made}",
    ]
    if config.is_script:
        return lines
    return [*lines, f"Apply it to a file of examples, with labels or without: paceline predict {folder.name} FILE"]


def _model(folder: RunFolder) -> Path:
    return folder.models / "last.safetensors"
