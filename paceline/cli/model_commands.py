"""The commands that apply a trained model, or write it for use elsewhere."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli import completions
from paceline.cli.exits import exits, print_json
from paceline.terminal import say

TRAINED = typer.Argument(
    metavar="RUN",
    help="A finished run: its name, or the path of its folder.",
    autocompletion=completions.runs,
)
Best = Annotated[
    bool, typer.Option("--best", help="Use the version with the best validation score instead of the final one.")
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
        from paceline.trained.predict import Wanted, write
        from paceline.trained.predict import predict as apply

        report = apply(model, file, Wanted(with_margins, proba), best, device)
        if out is not None or not as_json:
            write(report.lines, out)
        if as_json:
            print_json(report.plain())
        else:
            say("\n".join(report.told()), sys.stderr)


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
    """Write the model of a run for use without Paceline and without the task's code."""
    with exits():
        from paceline.local.run_folder import find_run
        from paceline.trained.export import export as write
        from paceline.trained.run_model import Trained

        say(str(write(Trained(find_run(run)), file, "best" if best else "last")))
