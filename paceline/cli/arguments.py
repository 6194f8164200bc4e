"""Arguments and options that several commands take; light, so that help shows at once."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import completions
from paceline.cli.completions import LOGGERS
from paceline.core.folders import PEERS, POLICIES, listed, names
from paceline.settings.presets import presets

if TYPE_CHECKING:
    from paceline.settings.flags import Flags

WHAT = typer.Argument(
    metavar="TASK|CONFIG.yaml",
    help="A task (digits, cifar10, ./mine.py) or a YAML file with all settings.",
    autocompletion=completions.tasks,
)
What = Annotated[str, WHAT]
Workers = Annotated[int | None, typer.Option("-w", "--workers", help="How many workers compute gradients.")]
Servers = Annotated[int | None, typer.Option("-s", "--servers", help="How many servers share the model.")]
Policy = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:VALUE]|FILE.py",
        help="When workers wait for each other: ssp, ssp:3, ... (docs/choose/policies.md); with servers "
        f"{', '.join(names(POLICIES))}; without servers {', '.join(names(PEERS))}; or your own file "
        "(docs/extend/first-policy.md).",
        autocompletion=completions.policies,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting, like optimizer.lr=0.05; may be repeated.",
        autocompletion=completions.settings,
    ),
]
Data = Annotated[
    str | None, typer.Option(metavar="PATH", help="Path of the data set, if the task does not include it.")
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Start from a paper's settings; all other flags override them: {', '.join(presets())}.",
        autocompletion=completions.paper_presets,
    ),
]
Epochs = Annotated[int | None, typer.Option(help="How many times to go through the training data.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
Run = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="Name of the run; default: the newest one.", autocompletion=completions.runs),
]
ChiefAddress = Annotated[
    str | None,
    typer.Option(
        "--chief", metavar="HOST:PORT", help="Instead of RUN: gRPC address of server 0, for a run on another machine."
    ),
]
TokenFile = Annotated[Path | None, typer.Option(help="File with that run's token.")]
Yes = Annotated[
    bool, typer.Option("--yes", help="Start even if this machine has too few cores or too little memory for it.")
]
Slow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHO=HOW",
        help="Slow workers down: 2=10x for worker 2, all=10x@5% for random steps, or a cluster: he0, he1, he2, random.",
    ),
]
Fault = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="FAULT",
        help="Let something go wrong: 'kill server-0@30s', 'freeze worker-2@10s:20s', 'link worker-1=10Mbit,50ms,1%'.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="NAME",
        help="Name of the run; an existing run is resumed (`paceline run` then needs no task).",
        autocompletion=completions.runs,
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start the named run over, and delete its old results.")]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME|FILE.py",
        help=f"Send the run's values to {listed(names(LOGGERS))}, or to your own logger (docs/watch/loggers.md); may "
        "be repeated.",
        autocompletion=completions.loggers,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="Device for the workers: auto (the GPUs in turn, shared if there are fewer than workers), cpu, cuda, "
        "cuda:1."
    ),
]


class FlagOptions:
    """Options whose names are those of `Flags`."""

    __slots__ = ()

    def flags(self, **more: Any) -> "Flags":
        """Returns what was said, with further values by their names in `Flags`."""
        from paceline.settings.flags import Flags

        return Flags(**{field.name: getattr(self, field.name) for field in fields(self)}, **more)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class RunFlags(FlagOptions):
    """How a run trains, whatever it trains."""

    workers: Workers = None
    servers: Servers = None
    policy: Policy = None
    sets: Sets = None
    slow: Slow = None
    faults: Fault = None
    run: Name = None
    log: Log = None
