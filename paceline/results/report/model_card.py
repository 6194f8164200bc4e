"""What somebody needs to know who gets the model: what it learned from, how, how well it does, and where it ends."""

import math
import time
from collections.abc import Sequence

from paceline.base.html import Html, Table, facts, subheading, table, text
from paceline.core.chief.best_model import SPLITS, scores_of
from paceline.core.chief.best_model import number as shown
from paceline.core.settings.config import Config
from paceline.results.report.kept import RunRecord

OLDER = "not recorded; this run was launched by an older Paceline"


def model_card(kept: RunRecord) -> list[Html]:
    """As parts of a page."""
    return [
        subheading("Model"),
        *_model(kept),
        subheading("Data"),
        facts(_data(kept)),
        subheading("Training"),
        facts(_training(kept)),
        subheading("Scores"),
        *_scores(kept),
        subheading("Limits"),
        *[text(each) for each in _limits(kept)],
        subheading("Made by"),
        facts(_made_by(kept)),
    ]


def parameters(kept: RunRecord) -> int:
    """Values in all tensors of the model."""
    return sum(math.prod(shape) for shape in kept.shapes.values())


def _model(kept: RunRecord) -> list[Html]:
    if not kept.shapes:
        return [
            text("The folder has no model: the run was not scored, or models/last.safetensors was deleted.", "faint")
        ]
    rows = [
        [name, " x ".join(map(str, shape)) or "a single value", f"{math.prod(shape):,}"]
        for name, shape in kept.shapes.items()
    ]
    kind = "A linear model" if kept.config.updates == "sparse" else "A torch model"
    said = (
        f"{kind} of {len(rows):,} tensors with {parameters(kept):,} values, in {kept.folder.models}/last.safetensors."
    )
    return [text(said), table(Table(("tensor", "shape", "values"), rows, "Its tensors"))]


def _data(kept: RunRecord) -> list[tuple[str, str]]:
    config, manifest = kept.config, kept.manifest
    found = [("task", config.task)]
    if manifest is None:
        if examples := kept.facts.get("train_examples"):
            found.append(("training examples", f"{examples:,}"))
        scored = kept.scores[-1].examples if kept.scores else {}
        return [
            *found,
            *((f"{split} examples", f"{scored[split]:,}") for split in reversed(SPLITS) if split in scored),
        ]
    classes = manifest.classes or tuple(dict.fromkeys(name for each in manifest.shards for name in each.classes))
    recipe = manifest.recipe
    found += [
        ("source", manifest.source),
        ("training examples", f"{manifest.train_examples:,}"),
        *((f"{name} examples", f"{part.examples:,}") for name, part in manifest.parts.items()),
        ("classes", f"{len(classes):,}: {_some(classes)}" if classes else "none; labels are values"),
        (
            "split",
            f"validation {recipe.validation:.0%}, test {recipe.test:.0%} where the data has no such part, seed {recipe.seed}",
        ),
        ("dealt by", recipe.strategy.name),
        ("checksum of the examples", recipe.examples[:16]),
    ]
    return [*found, *(("as read", line) for line in manifest.as_read)]


def _some(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _training(kept: RunRecord) -> list[tuple[str, str]]:
    config, course = kept.config, kept.course
    rates = [each["lr"] for each in kept.course.latest.values() if "lr" in each]
    options = ", ".join(f"{key} {value}" for key, value in config.policy.options.items() if value is not None)
    chosen = {key: value for key, value in config.optimizer.options.items() if value is not None}
    became = f"; the last step's rate was {shown_rate(rates)}" if rates else ""
    return [
        ("policy", config.policy.name + (f" ({options})" if options else "")),
        ("workers and servers", f"{config.workers} and {config.servers}"),
        ("optimizer", ", ".join([config.optimizer.name, *(f"{key} {value}" for key, value in chosen.items())])),
        ("learning rate", f"{config.schedule.name}, lr_scale {config.schedule.lr_scale}{became}"),
        *([] if course.steps else [("mini-batch", _batch(config))]),
        (f"{course.unit}s", f"{course.trained} of {config.epochs:,}"),
        *([] if course.steps else [("examples trained on", f"{course.last.get('examples', 0):,}")]),
        ("codec of pushes and pulls", f"{config.codec.push.name} and {config.codec.pull.name}"),
        ("precision", config.precision),
        ("seed", str(config.seed)),
    ]


def shown_rate(rates: Sequence[float]) -> str:
    """The rates of all workers' last steps, in words."""
    low, high = min(rates), max(rates)
    return f"{low:.4g}" if math.isclose(low, high) else f"{low:.4g} to {high:.4g}"


def _batch(config: Config) -> str:
    whose = {"global": "shared by all workers", "speed": "shared by their speed", "worker": "for each worker"}
    each = f", so {config.worker_batch} for each" if config.batch == "global" else ""
    several = f"; {config.accumulate} of them are one push" if config.accumulate != 1 else ""
    return f"{config.batch_size} examples {whose[config.batch]}{each}{several}"


def _scores(kept: RunRecord) -> list[Html]:
    if not kept.scores:
        return [text("Nothing was scored.", "faint")]
    best, final, whose = kept.best, kept.scores[-1], kept.whose
    chosen = [("final version", final)]
    if best is not None and best.metrics != final.metrics:
        chosen.append(("best version", best))
    names = list(dict.fromkeys(name for split in SPLITS for name in scores_of(final.metrics, whose + split)))
    rows = [
        [
            f"{label}, {kept.course.unit} {score.epoch}",
            split,
            f"{score.examples[split]:,}" if split in score.examples else "-",
        ]
        + [_shown(score.metrics.get(f"{whose}{split}_{name}")) for name in names]
        for label, score in chosen
        for split in reversed(SPLITS)
        if scores_of(score.metrics, whose + split)
    ]
    how = f"The best version is the one with the best {kept.chooses} {kept.measure.name.replace('_', ' ')}"
    test = "nothing else was scored" if kept.chooses == "test" else "test scores are reported and choose nothing"
    said = [f"{how}; {test}." if best else "No version has a score that chooses the best one."]
    if whose:
        said.append("These are the scores of the mean of the workers' models, which is what is kept.")
    heads = ["version", "part", "examples", *(name.replace("_", " ") for name in names)]
    return [table(Table(heads, rows)), *(text(each, "faint") for each in said)]


def _shown(value: float | None) -> str:
    return "-" if value is None else shown(value)


def _limits(kept: RunRecord) -> list[str]:
    """What the scores do not say."""
    test = kept.scores[-1].examples.get("test", 0) if kept.scores else 0
    accuracy = kept.metrics.get(f"{kept.whose}test_accuracy")
    found = [
        "The scores are those of data split off from the same source. Data of another source, or of a later time, may score "
        "worse; try the model on some of it first."
    ]
    if test and accuracy is not None and math.isfinite(accuracy):
        low, high = _wilson(accuracy, test)
        found.append(
            f"The test accuracy is of {test:,} examples: other samples of that size would mostly give {low:.4f} to {high:.4f} "
            "(Wilson's interval, 95 %)."
        )
    elif kept.config.data.source == "script":
        found.append(
            "The script measured the scores itself (paceline.evaluate), on data that only it knows. What it calls by no other "
            "name counts as validation here."
        )
    elif not test:
        found.append("There was no test part, so nothing says how the model does on data that chose nothing.")
    if len(kept.config.slow) or kept.config.faults:
        found.append(
            "Workers were slowed down, or faults inflicted, on purpose: the times are no measure of the machine."
        )
    found.append(f"Only one run with seed {kept.config.seed}; other seeds give other scores.")
    return found


def _wilson(share: float, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share that was seen in that many examples [Wilson 1927]."""
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return middle - half, middle + half


def _made_by(kept: RunRecord) -> list[tuple[str, str]]:
    launches = kept.facts.get("launches") or []
    if not launches:
        return [("versions and command", OLDER)]
    last = launches[-1]
    more = [("launched", f"{len(launches)} times; this is the last one")] if len(launches) > 1 else []
    return [
        ("command", str(last["command"])),
        ("date", time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(last["began"]))),
        *more,
        ("versions", f"Paceline {last['paceline']}, Python {last['python']}, torch {last['torch'] or 'not installed'}"),
        ("machine", f"{last['cores']} cores, {last['memory'] / 2**30:.0f} GiB, {last['system']}"),
    ]
