"""Trains policies on one task, a run for each policy and seed, and compares what is finished."""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paceline.base.intervals import FEWEST
from paceline.base.lasting_console import LastingConsole
from paceline.base.terminal import show
from paceline.core.errors import UsageError
from paceline.core.settings.config import Config, Options
from paceline.core.stored_format import check_format
from paceline.launch.folder.run_folder import RunFolder, new_name
from paceline.launch.folder.series import series
from paceline.launch.this_machine.processors import own_cores
from paceline.tasks.data_path import refuse_missing_data
from paceline_studies.comparison.compare import PLACE, compared, show_comparison
from paceline_studies.comparison.simulated import REAL, Simulator
from paceline_studies.search.folder import SearchFolder, content_of, measured, opened
from paceline_studies.search.results import measure_by
from paceline_studies.search.scheduler import Point, Scheduler, refuse_too_many_runs
from paceline_studies.simulator.limits import refuse_unlike
from paceline_studies.simulator.scene import Scene

FORMAT = 1
"""Of settings.json and what it stands for."""
POLICY = "policy"
OF_A_RUN = ("policy", "topology", "servers", "seed", "run")
"""Settings in which the runs of a comparison differ."""


class ComparisonFolder(SearchFolder):
    """Names the files of a comparison of policies."""

    kind: ClassVar[str] = "comparison"
    manifest_name: ClassVar[str] = "settings.json"
    runs_name: ClassVar[str] = "runs"

    def keep(self, what: Mapping[str, Any]) -> None:
        """Notes what is compared (JSON values); ConfigError where it is something else, or can't be read."""
        now = json.loads(json.dumps({"format": FORMAT, **what}))
        if not self.manifest.exists():
            self.write(self.manifest_name, (json.dumps(now, indent=1) + "\n").encode())
        try:
            before = json.loads(self.manifest.read_text())
            check_format(str(self.manifest), before["format"], FORMAT, "start the comparison over with --fresh")
        except (ValueError, KeyError, TypeError) as error:
            raise self.damaged(error) from error
        self.refuse_other(before, now)


@dataclass(frozen=True, slots=True)
class Manner:
    """How the runs are trained."""

    scene: Scene | None = None
    """What surrounds simulated runs; None: real processes."""
    cores: int | None = None
    """Of all real runs together; None: those of this process."""
    device: str = "auto"
    yes: bool = False
    """Start even what this machine is too small for."""


def compare_policies(
    policies: Sequence[str],
    seeds: int,
    read: Callable[[str], Config],
    manner: Manner,
    *,
    by: str | None,
    out: Path | None,
    fresh: bool,
    as_json: bool,
) -> int:
    """`read`: the settings under a policy. Returns 0, the exit code of the first run that failed, or that of a Ctrl-C.
    UsageError and ConfigError before anything starts where the settings are wrong."""
    measure, points = None if by is None else measure_by(by), points_of(policies, seeds, read)
    first = points[0].configs[0]
    path = out or PLACE / new_name(first.model_copy(update={"policy": Options(name="policies")}), PLACE)
    cores = manner.cores or len(own_cores())
    folder, configs = ComparisonFolder(path), [point.configs[0] for point in points]
    left = configs if fresh else folder.unfinished(configs)
    _refuse(configs, manner, left, cores)
    console = LastingConsole(stderr=as_json, highlight=False)
    with opened(folder, fresh):
        folder.keep(_what(first, manner))
        show(console, f"comparison in {path}: {_plan_line(policies, seeds, first, manner)}")
        if len(left) < len(points):
            done = f"{len(points) - len(left)} of {len(points)} runs are finished already"
            show(console, f"{done}; --fresh starts them over.")
        train = None if manner.scene is None else Simulator(folder, manner.scene).train
        going = Scheduler(
            folder, len(points), console, cores=cores, device=manner.device, by=measure, here=train, kind="run"
        )
        code = going.run(iter(points))
        finished = _finished(folder, policies, points)
        if code:
            count = f"{len(finished)} of {len(points)} runs are finished and kept"
            show(console, f"{count}. The same command goes on with --out {shlex.quote(str(path))}")
        if going.is_stopped:
            return code
        if len(set(finished.values())) < 2:
            show(console, "Less than two policies have a finished run, so there is nothing to compare.")
            return code
        show_comparison(compared(list(finished), measure, finished), path, as_json)
    return code


def _refuse(configs: Sequence[Config], manner: Manner, left: list[Config], cores: int) -> None:
    """Raises for what can't be trained so; `left`: runs to be trained."""
    refuse_missing_data(configs[0])
    if manner.scene is None:
        refuse_too_many_runs(left, cores, manner.yes)
        return
    for config in configs:
        refuse_unlike(config, True, REAL)
        manner.scene.check(config)


def _what(first: Config, manner: Manner) -> dict[str, Any]:
    """What is compared, but for the policies and the number of seeds, which may grow."""
    scene = None if manner.scene is None else manner.scene.model_dump(mode="json")
    settings = first.model_dump(mode="json", exclude=set(OF_A_RUN))
    kind = "simulated" if scene else "real"
    content = content_of([first], OF_A_RUN)
    return {"kind": kind, "scene": scene, "seed": first.seed, "settings": settings, **content}


def _plan_line(policies: Sequence[str], seeds: int, first: Config, manner: Manner) -> str:
    runs = (
        f"{len(policies) * seeds} runs of {first.task} ({len(policies)} policies, {seeds} seed{'s' * (seeds > 1)} each)"
    )
    if manner.scene is None:
        kind = "by real processes"
    else:
        kind = (
            f"simulated: real gradients, virtual time, in which an equal worker takes {1000 * manner.scene.step:g} ms for a "
            "mini-batch (--real starts processes instead)"
        )
    few = "" if seeds >= FEWEST else f"\nWith less than {FEWEST} seeds the runs can't tell a difference from noise."
    return f"{runs}, {kind}{few}"


def _finished(folder: SearchFolder, policies: Sequence[str], points: Sequence[Point]) -> dict[RunFolder, str]:
    """The policy of each finished run, in the order of the policies."""
    runs = [(str(point.values[POLICY]), folder.run(str(point.configs[0].run))) for point in points]
    known = [(policy, run) for policy, run in runs if measured(run) is not None]
    return {run: policy for policy, run in sorted(known, key=lambda each: policies.index(each[0]))}


def read_policies(text: str) -> list[str]:
    """'bsp,ssp:3' as a list. UsageError where it names less than two, or one twice."""
    found = [each.strip() for each in text.split(",") if each.strip()]
    twice = next((each for each in found if found.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"--policies {text}: {twice} is in the list twice; --seeds says how often each is trained.")
    if len(found) < 2:
        raise UsageError(f"--policies {text}: expected two or more, separated by commas, like bsp,ssp:3,asp.")
    return found


def points_of(policies: Sequence[str], seeds: int, read: Callable[[str], Config]) -> list[Point]:
    """The runs; those of a seed come one after the other, so that there are soon some to compare. `read`: the settings under
    a policy. UsageError: no seeds; ConfigError: wrong settings."""
    if seeds < 1:
        raise UsageError(
            f"--seeds {seeds}: expected 1 or more; from {FEWEST} on runs can tell a difference from noise."
        )
    runs = [series(read(policy).model_copy(update={"run": _slug(policy)}), seeds) for policy in policies]
    pairs = [pair for each in zip(*runs, strict=True) for pair in zip(policies, each, strict=True)]
    return [
        Point(number, {POLICY: policy, "seed": config.seed}, [config])
        for number, (policy, config) in enumerate(pairs, 1)
    ]


def _slug(policy: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", policy.lower()).strip("-")
