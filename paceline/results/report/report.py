"""`paceline report RUN`: writes the page."""

from pathlib import Path
from typing import NamedTuple

from paceline.base.extras import needing
from paceline.base.html import Html, numbers, page, text
from paceline.core.chief.best_model import result
from paceline.core.errors import DiskError
from paceline.data.whole_file import replacing
from paceline.launch.folder.run_folder import RunFolder
from paceline.results.report.course import mean
from paceline.results.report.kept import RunRecord, read_kept

PAGE = "report.html"


class Written(NamedTuple):
    """A page on the disk."""

    path: Path
    lines: list[str]
    """What to tell the user."""


def write_report(folder: RunFolder, out: Path | None = None) -> Written:
    """Writes the page to `out`, or to report.html in the run's folder. It reads the folder alone: of a run that goes on or
    was broken off the page says so and shows what it has. ConfigError where the folder's settings can't be read, or
    matplotlib is not installed; DiskError where `out` can't be written."""
    kept = read_kept(folder)
    with needing("The report"):
        from paceline.results.report.sections import sections

        whole = page(f"Run {folder.name}", _top(kept), sections(kept))
    place = _page(folder, out)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place, "the report") as temporary:
            temporary.write_text(whole, encoding="utf-8")
    except (OSError, DiskError) as error:
        raise DiskError(f"{_why(error, place)} Give another file with -o.") from error
    unfinished = [] if kept.is_finished else [how_it_ended(kept)]
    return Written(place, [*unfinished, *kept.troubles, f"The report is {place}."])


def _page(folder: RunFolder, out: Path | None) -> Path:
    if out is None:
        return folder.path / PAGE
    return out / PAGE if out.is_dir() else out


def _why(error: OSError | DiskError, place: Path) -> str:
    return str(error) if isinstance(error, DiskError) else f"Can't write the report to {place}: {error.strerror}."


def _top(kept: RunRecord) -> list[Html]:
    """How the run ended, what is wrong, and the numbers that everybody looks for."""
    warned = [text(str(each), "warning") for each in kept.warnings if not each.passed]
    passed = [text(f"{each} It has passed.", "faint") for each in kept.warnings if each.passed]
    troubles = [text(each, "warning") for each in kept.troubles]
    causes = [text(str(each), "warning") for each in kept.findings if not each.is_warned]
    ended = text(how_it_ended(kept), "result" if kept.is_finished else "warning")
    choices = [text(each, "faint") for each in kept.choices]
    return [ended, *troubles, numbers(_numbers(kept)), *causes, *warned, *passed, *choices]


def how_it_ended(kept: RunRecord) -> str:
    """In a sentence or two: what the run gave, or that it has not ended, and what to do."""
    code, folder = kept.facts.get("exit_code"), kept.folder
    if kept.is_finished:
        scored = result(kept.metrics, str(kept.measure)) if kept.metrics else "not scored"
        return f"The run finished: {scored} after {kept.seconds:.1f} s of training."
    so_far = f"The page shows its first {kept.seconds:.1f} s of training"
    if code is not None:
        reason = str(kept.facts.get("reason") or "no reason is known").rstrip(".")
        again = folder.how_to_go_on(kept.config.servers)
        return f"The run did not finish (exit code {code}): {reason}. {so_far}. {again}"
    if folder.is_driven:
        return f"The run has not ended yet. {so_far}; write the report again when it has."
    return f"The run was broken off, and nobody wrote down why. {so_far}. {folder.how_to_go_on(kept.config.servers)}"


def _numbers(kept: RunRecord) -> list[tuple[str, str]]:
    """What stands large at the top."""
    config, course = kept.config, kept.course
    examples = int(course.last.get("examples", 0))
    waits = mean(sums["wait_seconds"] for sums in course.sums.values() if "wait_seconds" in sums)
    stale = mean(each["staleness_mean"] for each in course.latest.values() if "staleness_mean" in each)
    found = [
        ("task", Path(config.task).name),
        ("policy", " ".join([config.policy.name, *map(str, config.policy.options.values())])),
        ("workers, servers", f"{config.workers}, {config.servers}"),
        (f"{course.unit}s", course.trained),
        ("training time", f"{kept.seconds:.1f} s"),
    ]
    if kept.seconds and course.steps:
        found.append(("steps per second", f"{float(course.last['epoch']) / kept.seconds:.3g}"))
    elif kept.seconds and examples:
        found.append(("examples per second", f"{examples / kept.seconds:,.0f}"))
    if waits is not None and kept.seconds:
        found.append(("waited, of a worker's time", f"{waits / kept.seconds:.0%}"))
    if stale is not None:
        found.append(("staleness, mean (folds)", f"{stale:.1f}"))
    return found
