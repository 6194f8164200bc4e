"""The commands that apply a trained model, or write it for use elsewhere."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.base.terminal import say
from paceline.cli import completions
from paceline.cli.arguments import Json, TokenFile
from paceline.cli.exits import exits, print_json
from paceline.core.errors import UsageError
from paceline.processes.tls_option import Tls

if TYPE_CHECKING:
    from paceline.results.model.run_weights import Source

TRAINED = typer.Argument(
    metavar="RUN",
    help="A finished run: its name, or the path of its folder.",
    autocompletion=completions.runs,
)
Best = Annotated[
    bool, typer.Option("--best", help="Use the version with the best validation score instead of the final one.")
]


LiveRun = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="A run that trains or has ended: its name, or the path of its folder.",
        autocompletion=completions.runs,
    ),
]
ServerAddresses = Annotated[
    str | None,
    typer.Option(
        "--servers",
        metavar="HOST:PORT,...",
        help="Instead of RUN: gRPC address of every server in order, for a run on other machines; {} stands for 0, 1, ...",
    ),
]
SettingsFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE.yaml", help="With --servers: that run's settings.")
]
ShardsFolder = Annotated[
    Path | None,
    typer.Option(
        "--shards",
        metavar="DIR",
        help="With --servers: that run's shards, for linear models, BatchNorm and the names of classes.",
    ),
]


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN|MODEL",
            help="A run (its name, or the path of its folder), or a file with a linear model (safetensors or "
            "LIBLINEAR's text).",
            autocompletion=completions.runs,
        ),
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Examples, with or without labels: .csv, .tsv, .parquet, .npy, .npz, images, LIBSVM or RCV1 text, or "
            "what the task's data() reads; - is stdin.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="PREDICTIONS", help="File for the predictions, one on each line; default: stdout."),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Write the probability of each class after the label, as CSV.")
    ] = False,
    with_margins: Annotated[
        bool, typer.Option("--margins", help="Write each margin (x.w) of a linear model after its label.")
    ] = False,
    best: Best = False,
    device: Annotated[str, typer.Option(help="Device for a torch model, as for run.")] = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the score as JSON instead; predictions go to --out only.")
    ] = False,
) -> None:
    """Apply a trained model to the examples of a file.

    Prints the name of a class, or a number, on each line of stdout. Facts about the examples, and the score if they have
    labels, go to stderr."""
    with exits():
        from paceline.results.model.predict import Wanted, write
        from paceline.results.model.predict import predict as apply

        report = apply(model, file, Wanted(with_margins, proba), best, device)
        if out is not None or not as_json:
            write(report.lines, out)
        if as_json:
            print_json(report.plain())
        else:
            say("\n".join(report.summary()), sys.stderr)


def export(
    run: Annotated[str, TRAINED],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File to write; its ending says the format: .safetensors, .pt2 (torch.export), .pt (TorchScript), "
            ".onnx; for linear models .safetensors or .liblinear.",
        ),
    ],
    best: Best = False,
) -> None:
    """Write a run's model for use without Paceline and the task's code."""
    with exits():
        from paceline.launch.folder.run_folder import find_run
        from paceline.results.model.export import export as write
        from paceline.results.model.run_model import Trained

        say(str(write(Trained(find_run(run)), file, "best" if best else "last")))


def pull(
    run: LiveRun = None,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.safetensors", help="File to write.")] = Path(
        "model.safetensors"
    ),
    version: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="An older version, of which the run still has a snapshot.")
    ] = None,
    best: Best = False,
    servers: ServerAddresses = None,
    config: SettingsFile = None,
    token_file: TokenFile = None,
    tls: Tls = None,
    shards: ShardsFolder = None,
    as_json: Json = False,
) -> None:
    """Write a run's newest model to a file, also while it trains.

    Of a run that goes on it is what the servers have now, in lock-step one version of all slices; of one that has ended, the
    final model."""
    with exits():
        from paceline.results.model.pull import WantedVersion
        from paceline.results.model.pull import pull as go

        found = go(_source(run, servers, config, token_file, tls, shards), out, WantedVersion(version, best))
        print_json(found.plain()) if as_json else say("\n".join(found.summary()))


def serve(
    run: LiveRun = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; :: for all of this machine, with the keys of --tls.")
    ] = "127.0.0.1",
    plain_text: Annotated[bool, typer.Option("--plain-text", help="Listen beyond this machine without TLS.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP port; 0 for any free one.")] = 8080,
    metrics_port: Annotated[int, typer.Option(min=0, max=65535, help="Prometheus port; 0 for any free one.")] = 0,
    reader_token: Annotated[
        Path | None,
        typer.Option(
            "--reader-token-file",
            metavar="FILE",
            help="The token that requests must carry; default: reader-token in the run's folder, made if missing.",
        ),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Serve the best version that was scored so far.")] = False,
    window: Annotated[
        float, typer.Option(min=0, max=60_000, help="How long a request waits for others to share a batch (ms).")
    ] = 2.0,
    batch: Annotated[int, typer.Option(min=1, help="Most examples of a batch, and of a request.")] = 256,
    every: Annotated[float, typer.Option(min=0.05, help="Time between two looks for a newer version (s).")] = 1.0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads for torch.")] = 1,
    device: Annotated[str, typer.Option(help="Device for the model, as for run.")] = "auto",
    servers: ServerAddresses = None,
    config: SettingsFile = None,
    token_file: TokenFile = None,
    tls: Tls = None,
    shards: ShardsFolder = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON file to write the ports to once they are open.")
    ] = None,
) -> None:
    """Answer requests for predictions by a run's newest model.

    Over HTTP, also while it trains."""
    with exits():
        from paceline.base.extras import needing

        with needing("paceline serve"):
            from paceline.results.serving.serve import Serving
            from paceline.results.serving.serve import serve as go
            from paceline.rpc.auth import read_credentials

        if best and servers is not None:
            raise UsageError("--best is for a run whose folder is on this machine: the model lies in it.")
        source = _source(run, servers, config, token_file, tls, shards)
        asked = Serving(
            host,
            plain_text,
            read_credentials(None, tls, "serve").tls,
            port,
            metrics_port,
            reader_token,
            best,
            device,
            window / 1000,
            batch,
            every,
            threads,
            report,
        )
        sys.exit(go(source, asked, say))


def _source(
    run: str | None,
    servers: str | None,
    config: Path | None,
    token_file: Path | None,
    tls: Path | None,
    shards: Path | None,
) -> "Source":
    """The run of that name, which knows its own servers, token and keys, or the one at these addresses."""
    from paceline.results.model.run_weights import Source

    if (run is None) == (servers is None):
        raise UsageError("Whose model? Name the run, or give --servers HOST:PORT,... and --config FILE.yaml.")
    if run is not None:
        if config is not None or shards is not None or token_file is not None:
            raise UsageError(
                "--config, --shards and --token-file belong to --servers; the run that you name knows its own."
            )
        from paceline.launch.folder.run_folder import find_run

        return Source.of_folder(find_run(run))
    if config is None:
        raise UsageError("--servers needs --config FILE.yaml, the settings of that run.")
    from paceline.rpc.auth import read_credentials

    assert servers is not None
    return Source.elsewhere(config, servers, read_credentials(token_file, tls), shards)
