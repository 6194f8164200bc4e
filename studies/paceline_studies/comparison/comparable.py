"""Which runs can be compared: those with the same data, whose scores are of the same examples and by the same measure."""

from collections.abc import Sequence

from paceline.core.chief.best_model import SPLITS, Measure, scores_of
from paceline.core.errors import ConfigError
from paceline_studies.comparison.finished import Finished


def refuse_strangers(runs: Sequence[Finished]) -> None:
    """ConfigError says of the first two that can't be compared why not, and what to do."""
    for number, run in enumerate(runs):
        twin = next((each for each in runs[:number] if each.folder.path.resolve() == run.folder.path.resolve()), None)
        if twin is not None:
            raise ConfigError(f"Run '{run.name}' is named twice. Name each run once.")
        for other in runs[:number]:
            why = _data(other, run) or _split(other, run) or _time(other, run)
            if why:
                raise ConfigError(f"Runs '{other.name}' and '{run.name}' can't be compared: {why}")


def measure_of_all(runs: Sequence[Finished], by: Measure | None) -> Measure:
    """What all are compared by. `by`: what the user asks for. ConfigError where a run was judged by another measure, or was not
    scored by it."""
    first = runs[0]
    for run in runs[1:]:
        if by is None and run.measure != first.measure:
            raise ConfigError(
                f"Runs '{first.name}' and '{run.name}' can't be compared: the first is judged by '{first.measure}', the "
                f"second by '{run.measure}'. Name a metric that both have: --by loss"
            )
    found = by or first.measure
    for run in runs:
        found.check({name for split in SPLITS for name in scores_of(run.metrics, split)}, f"--by, for run '{run.name}'")
    return found


def split_of_all(runs: Sequence[Finished], measure: Measure) -> str:
    """The part of the data that runs are chosen by: validation, where all have one; otherwise test, or training data.
    ConfigError where they have none in common."""
    for split in ("validation", "test", "train"):
        if all(f"{split}_{measure.name}" in run.metrics for run in runs):
            return split
    scored = "; ".join(f"{run.name}: {', '.join(sorted(run.metrics))}" for run in runs)
    raise ConfigError(
        f"The runs can't be compared by {measure.name}: they were scored on other parts of the data ({scored})."
    )


def _data(one: Finished, two: Finished) -> str | None:
    first, second = one.manifest, two.manifest
    if first and second and first.recipe.examples == second.recipe.examples:
        return None
    tasks = [run.config.task for run in (one, two)]
    if tasks[0] != tasks[1]:
        return f"they trained other tasks, {tasks[0]} and {tasks[1]}, on other data. Compare runs of one task."
    if first and second:
        return (
            f"they have other data: {one.config.data.path} and {two.config.data.path} do not hold the same examples. Train "
            "both on the same data."
        )
    paths = [run.config.data.path for run in (one, two)]
    if paths[0] != paths[1]:
        return f"they have other data, {paths[0]} and {paths[1]}. Train both on the same data."
    return None


def _split(one: Finished, two: Finished) -> str | None:
    shares = [(run.config.data.validation, run.config.data.test, run.config.data.fold) for run in (one, two)]
    if shares[0] != shares[1]:
        told = " and ".join(_score_text(*each) for each in shares)
        return (
            f"their scores are of other examples, since their data is split in other ways: {told}. Train both with the same "
            "data.validation, data.test and data.fold."
        )
    if one.seed != two.seed or not one.manifest or not two.manifest:
        return None
    ids = [
        {name: part.files["ids"].sha256 for name, part in each.parts.items()} for each in (one.manifest, two.manifest)
    ]
    return (
        None if ids[0] == ids[1] else "their test and validation parts do not hold the same examples. Train both again."
    )


def _time(one: Finished, two: Finished) -> str | None:
    if one.is_simulated == two.is_simulated:
        return None
    kinds = ["simulated" if run.is_simulated else "real" for run in (one, two)]
    return f"the first is {kinds[0]} and the second {kinds[1]}, so their seconds don't mean the same. Compare runs of one kind."


def _score_text(validation: float, test: float, fold: tuple[int, int] | None) -> str:
    of_fold = f", fold {fold[0]} of {fold[1]}" if fold else ""
    return f"(validation {validation:g}, test {test:g}{of_fold})"
