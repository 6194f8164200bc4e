"""The commands that apply a trained model, or write it for use elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.arguments import Json
from paceline.cli.exits import exits, print_json

TRAINED = typer.Argument(
    metavar="RUN", help="A finished run: its name, or the path of its folder, wherever that is now."
)
Best = Annotated[
    bool, typer.Option("--best", help="Take the best version by validation scores instead of the final one.")
]


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|RUN",
            help="A linear model (safetensors or LIBLINEAR's text), or a run, whose last one is taken.",
        ),
    ],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="LIBSVM text; its indices count from 0 if one is 0, else from 1.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="PREDICTIONS", help="File for the predicted labels, one in each line.")
    ] = None,
    with_margins: Annotated[bool, typer.Option("--margins", help="Write each margin (x.w) behind its label.")] = False,
    as_json: Json = False,
) -> None:
    """Apply a linear model to the examples of a file, and say how often it is right where they have labels."""
    with exits():
        from paceline.cli.predict import predict as apply

        report = apply(model, file, out, with_margins)
        print_json(report.plain()) if as_json else print("\n".join(report.lines()))


def export(
    run: Annotated[str, TRAINED],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Its ending says the form: .safetensors (weights), .pt2 (torch.export), .pt (TorchScript), .onnx; for a "
            "linear model .safetensors or .liblinear.",
        ),
    ],
    best: Best = False,
) -> None:
    """Write the model of a run for use without Paceline and without the task's code."""
    with exits():
        from paceline.cli.export import export as write
        from paceline.cli.run_folder import find_run
        from paceline.cli.trained import Trained

        print(write(Trained(find_run(run)), file, "best" if best else "last"))
