"""`paceline baseline`: [Survey]'s baselines, models of Spark's MLlib next to scikit-learn's."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.base.terminal import say
from paceline.cli.arguments import Json
from paceline.cli.exits import console, exits, print_json
from paceline.core.errors import UsageError
from paceline.core.folders import listed, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from paceline_papers.baseline.results import Results

_TABLES = [f"{name}-like" for name in names("paceline_papers.baseline.tables")]
_MODELS, _ENGINES, _ENCODINGS = (
    names(f"paceline_papers.baseline.{kind}") for kind in ("models", "engines", "encodings")
)


def baseline(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help=f"What to train on: {', '.join(_TABLES)} (made up), or without -like and with --data; shards, with --data.",
        ),
    ],
    data: Annotated[
        str | None, typer.Option(metavar="PATH", help="The CSV of a real table, or a folder of shards.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Another column of texts to tell than the table's own.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1000, help="Rows of a made-up table.")] = 300_000,
    model: Annotated[
        str | None, typer.Option(help=f"Which, with commas: {', '.join(_MODELS)}; default: the paper's.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help=f"Who trains, with commas: {', '.join(_ENGINES)} (papers/docs/baselines.md); default: "
            "local,sklearn,paceline, or submit,sklearn,paceline with --master."
        ),
    ] = None,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Of spark-submit, for the engine submit, like spark://host:7077.")
    ] = "",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark's, for spark-submit; repeatable.")
    ] = None,
    executors: Annotated[
        str, typer.Option(help="Numbers of Spark's executors, and of Paceline's workers, with commas.")
    ] = "1,2",
    storage: Annotated[
        str, typer.Option(help="Where Spark keeps the features, with commas: memory, disk.")
    ] = "memory,disk",
    encode: Annotated[
        str | None,
        typer.Option(help=f"How all models see texts, instead of the default of each: {', '.join(_ENCODINGS)}."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of a made-up table and of the split.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder of the results, which keeps what is finished; one folder in it a table.")
    ] = Path("baselines"),
    as_json: Json = False,
) -> None:
    """Train other methods on the same table, on Spark and here.

    Decision trees, logistic regression and naive Bayes with Spark's MLlib, and others on the same split."""
    with exits():
        from paceline.base.extras import needing

        with needing("paceline baseline"):
            from paceline_papers.baseline.baseline import Baseline, Wanted, encoding_for, papers_models
            from paceline_papers.baseline.engine import Cluster
            from paceline_papers.baseline.results import Results

            if encode is not None and encode not in _ENCODINGS:
                raise UsageError(f"--encode {encode}: expected {listed(_ENCODINGS)}.")
            wanted = Wanted(
                papers_models() if model is None else _words(model),
                _words(engine or f"{'submit' if master else 'local'},sklearn,paceline"),
                _numbers(executors),
                _words(storage),
                encoding_for(table, encode),
                Cluster(master, conf or ()),
            )
            parts = [table, *([] if data else [str(rows)]), str(seed)]
            parts += [label.replace("/", "-")] if label else []
            parts += [re.sub(r"[^\w.]+", "-", master).strip("-")] if master else []
            made = Baseline(table, rows, seed, out / "-".join(parts), data, label, conf or ())
            wanted.check()
            if not as_json and (lacking := wanted.lacking()):
                say("\n".join(lacking))
            missing = len(made.missing(wanted))
            for done, point in enumerate(made.train(wanted), 1):
                if not as_json:
                    say(f"{done} of {missing}: {point.name}")
            results = Results(made, wanted)
            results.write()
            print_json(results.plain()) if as_json else _show(results, console(), made.folder)


def _words(text: str) -> "Sequence[str]":
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> "Sequence[int]":
    try:
        return [int(word) for word in _words(text)]
    except ValueError as error:
        raise UsageError(f"--executors {text}: expected whole numbers with commas, like 1,2.") from error


def _show(results: "Results", screen: "Console", folder: Path) -> None:
    from rich import box
    from rich.table import Table

    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("who", "model"):
        found.add_column(name)
    columns, rows = results.short()
    for name in columns:
        found.add_column(name, justify="right")
    for cells in rows:
        found.add_row(*cells)
    screen.print(found)
    say("\n".join([*results.heading(), *results.notes()]))
    say(f"Table, picture and JSON are in {folder}")
