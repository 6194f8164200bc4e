"""Arguments and options that several commands take; light, so that help shows at once."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli import completions
from paceline.cli.completions import LOGGERS
from paceline.core.folders import PEERS, POLICIES, listed, names
from paceline.presets import paper_grids, presets

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
        f"{', '.join(names(POLICIES))}, without {', '.join(names(PEERS))}; or a file of your own "
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
Data = Annotated[str | None, typer.Option(metavar="PATH", help="Where the data set is, if the task does not bring it.")]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Start from a paper's settings, all other flags win over them: {', '.join(presets())}.",
        autocompletion=completions.paper_presets,
    ),
]
Epochs = Annotated[int | None, typer.Option(help="How often to go through the training data.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
Run = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]", help="Name of the run; the newest one if not given.", autocompletion=completions.runs
    ),
]
ChiefAddress = Annotated[
    str | None,
    typer.Option("--chief", metavar="HOST:PORT", help="gRPC port of server 0 of a run elsewhere, instead of RUN."),
]
TokenFile = Annotated[Path | None, typer.Option(help="File with that run's token.")]
Yes = Annotated[
    bool, typer.Option("--yes", help="Start even if this machine has too few cores or too little memory for it.")
]
Slow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHO=HOW",
        help="Pretend that workers are slow: 2=10x, or all=10x@5% at random steps; or a cluster: he0, he1, he2, random.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="NAME",
        help="Name of the run; one that exists is resumed (`paceline run` then needs no task).",
        autocompletion=completions.runs,
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start the named run over; what it had is deleted.")]
Loop = Annotated[
    str | None,
    typer.Option(metavar="SCRIPT.py", help="Your own training loop for the workers (see docs/reference/api.md)."),
]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME|FILE.py",
        help=f"Tell {listed(names(LOGGERS))}, or a logger of your own, how the run goes (docs/watch/loggers.md); "
        "may be repeated.",
        autocompletion=completions.loggers,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="What to compute on: auto (the GPUs in turn, several workers on one if need be), cpu, cuda, cuda:1."
    ),
]

# of `paceline search`
Grid = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=V1,V2,...|NAME",
        help=f"A setting and its values; repeated, all combinations are run. Or a paper's: {', '.join(paper_grids())}.",
    ),
]
Folds = Annotated[
    int | None,
    typer.Option(help="Cross-validate: run each point so often, each time tested on another part.", min=2),
]
Cores = Annotated[
    int | None,
    typer.Option(
        help="CPU cores for all runs together, one for each worker and server; default: all this process may use.",
        min=1,
    ),
]
By = Annotated[
    str | None,
    typer.Option(metavar="METRIC", help="Compare points by this metric, like f1 or 'min mae'; default: the run's own."),
]
Engine = Annotated[
    str, typer.Option(help="runs: each point is a run; local: linear models, in this process, without servers.")
]
SearchFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Folder of the search, a new one in searches/; one there is resumed."),
]
