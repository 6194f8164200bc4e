"""`paceline predict`: what a trained model says about the examples of a file, and how often that is right."""

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from paceline.core.errors import ConfigError, UsageError
from paceline.data.whole_file import replacing
from paceline.launch.folder.run_folder import RunFolder, find_run
from paceline.results.model.run_model import Trained

LAST = "last.safetensors"


class Wanted(NamedTuple):
    """What to write of each example besides its label or number."""

    margins: bool = False
    """x.w of a linear model."""
    probabilities: bool = False
    """Of each class."""


LABELS = Wanted()


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    model: str
    features: int
    """Numbers in one example."""
    examples: int
    lines: Sequence[str]
    """The predictions, one example each; with probabilities CSV, whose first line names the classes."""
    counts: dict[str, int]
    """Examples that are taken for each class; empty where numbers are predicted."""
    score: dict[str, float]
    """Empty where the file's labels can't be scored, or are missing."""
    unscored: str = ""
    """Why they can't be."""
    notes: tuple[str, ...] = ()
    """What else people should know."""
    of: str = ""
    """What the score is of."""

    def plain(self) -> dict[str, Any]:
        """For JSON, without the predictions."""
        found = {"model": self.model, "features": self.features, "examples": self.examples, "counts": self.counts}
        return found | self.score | ({"unscored": self.unscored} if self.unscored else {})

    def summary(self) -> list[str]:
        """For people."""
        each = ", ".join(f"{count:,} as {label}" for label, count in self.counts.items())
        found = [f"model {self.model}: {self.features:,} features", f"{self.examples:,} examples{each and ': '}{each}"]
        if self.unscored:
            return [*found, *self.notes, f"not scored: {self.unscored}"]
        if not self.score:
            return [*found, *self.notes, "not scored: the file has no labels"]
        return [*found, *self.notes, ", ".join(f"{name} {value:.4f}" for name, value in self.score.items()) + self.of]


def predict(model: str, file: str, wanted: Wanted = LABELS, best: bool = False, device: str = "auto") -> Report:
    """Applies the model (a file of a linear one, or a run) to the examples of the file, '-': of stdin. UsageError: no such
    model, or it has no such output; ConfigError: nobody but a script knows it; DataError: a
    damaged one, or a file that does not fit it."""
    if wanted.margins and wanted.probabilities:
        raise UsageError("--margins and --proba: give only one of them.")
    which = "best" if best else "last"
    path, run = find_model(model, which)
    if run is not None and Path(model).is_file():
        if best:
            raise UsageError(f"--best: {model} is one model already. Give the run, or leave out --best.")
        which = path.stem
    if run is None or run.is_linear:
        from paceline.results.model.linear_predictions import apply_linear

        return apply_linear(path, file, wanted)
    if run.config.data.source == "script":
        raise ConfigError(
            f"{path} is a script's model, whose code only the script has, so it can't be applied here. Load the file where you "
            "have the code: model.load_state_dict(safetensors.torch.load_file(...))."
        )
    if wanted.margins:
        raise UsageError("--margins is for linear models; for this model use --proba.")
    from paceline.results.model.module_predictions import apply_module

    return apply_module(run, which, path, file, wanted, device)


def find_model(model: str, which: str = "last") -> tuple[Path, Trained | None]:
    """The model's file: the path itself, the last model in the folder of that path (as `paceline local` writes one), or that
    of the run of that name or in that folder, wherever it is now; and the run, where it is one's."""
    path = Path(model)
    if path.is_file():
        run = RunFolder(path.parent.parent)
        return path, Trained(run) if path.parent.name == "models" and run.config.is_file() else None
    if (path / LAST).is_file():
        return path / LAST, None
    try:
        trained = Trained(find_run(model))
    except UsageError as error:
        raise UsageError(
            f"There is no model {model}: it is neither a file nor a folder with {LAST}. {error}"
        ) from error
    return trained.file(which), trained


def write(lines: Iterable[str], out: Path | None) -> None:
    """One line each, to the file or to stdout. DiskError where it can't be written."""
    if out is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    with replacing(out, "the predictions") as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def csv_lines(rows: Iterable[Sequence[object]]) -> list[str]:
    """The rows as lines of a CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().splitlines()


def digits(value: float) -> str:
    """A number so that the same float32 is read back."""
    return f"{value:.9g}"
