"""What the page says, heading by heading."""

import math
from collections.abc import Sequence

from paceline.base.html import Html, Section, Table, beside, code, details, facts, picture, table, text
from paceline.base.plot_style import styled, svg
from paceline.callback import LOG_PREFIX, flat
from paceline.core.chief.best_model import number, scores_of
from paceline.core.settings.config import Config
from paceline.core.units import size
from paceline.core.values import worker_order
from paceline.results.report import pictures
from paceline.results.report.course import RECEIVED, SENT, Course
from paceline.results.report.kept import RunRecord
from paceline.results.report.model_card import model_card
from paceline.sharder.report.findings import result
from paceline.sharder.report.pictures import heat_map
from paceline.sharder.report.shard_set import ShardSet

NO_COURSE = "metrics.jsonl has nothing yet, so there are no curves."
MOST_METRICS = 3
"""Metrics that are drawn; the table has all."""
MOST_LOGGED = 4
"""Values that a script logs which are drawn."""
MOST_CELLS = 2000
"""Largest heat map of classes x workers."""


def sections(kept: RunRecord) -> list[Section]:
    """All that have something to say, in order."""
    found = [
        Section("Scores", scores(kept)),
        Section("Where the time went", time_spent(kept)),
        Section("Staleness and alpha", staleness(kept)),
        Section("Speed and learning rate", speed(kept)),
        Section("Bytes", sent_bytes(kept)),
        Section("Recoveries and faults", recoveries(kept)),
        Section("Sharding", sharding(kept)),
        Section("Model card", model_card(kept)),
        Section("Settings", settings(kept)),
    ]
    return [each for each in found if each.parts]


def scores(kept: RunRecord) -> list[Html]:
    """Loss and metrics, by epoch and by time."""
    names = list(
        dict.fromkeys(name for score in kept.scores for part in _SPLITS for name in scores_of(score.metrics, part))
    )
    first = ["loss", kept.measure.name]
    drawn = sorted(names, key=lambda name: first.index(name) if name in first else len(first))[:MOST_METRICS]
    if not drawn and kept.course.has("loss"):
        drawn = ["loss"]
    parts = [
        beside(
            *(
                picture(pictures.scores(kept, name, by_time), f"{name} by {'time' if by_time else kept.course.unit}")
                for by_time in (False, True)
            )
        )
        for name in drawn
    ]
    if not names:
        return [*parts, text("No version of the model was scored.", "faint")]
    return [*_best(kept), *parts, _score_table(kept, names)]


_SPLITS = ("train", "validation", "test")
_PARTS = tuple(f"{whose}{split}" for whose in ("", "mean_", "vote_") for split in _SPLITS)
"""Of the servers' model, of the mean of the workers' models, and of their vote."""


def _best(kept: RunRecord) -> list[Html]:
    best, measure = kept.best, kept.measure.name.replace("_", " ")
    if best is None:
        return [text(f"No version has a score that chooses the best one, its {measure}.", "faint")]
    value = number(best.metrics[f"{kept.whose}{kept.chooses}_{kept.measure.name}"])
    whose = " of the mean of the workers' models" if kept.whose else ""
    when = f"{kept.course.unit} {best.epoch} ({best.seconds:.1f} s)"
    return [text(f"The best {kept.chooses} {measure}{whose} is {value}, after {when}.")]


def _score_table(kept: RunRecord, names: Sequence[str]) -> Html:
    columns = [
        f"{part}_{name}"
        for name in names
        for part in _PARTS
        if any(f"{part}_{name}" in each.metrics for each in kept.scores)
    ]
    heads = [kept.course.unit, "time (s)", *(column.replace("_", " ") for column in columns)]
    rows = [
        [f"{score.epoch}", f"{score.seconds:.1f}"]
        + [number(score.metrics[column]) if column in score.metrics else "-" for column in columns]
        for score in kept.scores
    ]
    chosen = kept.best
    best = next((place for place, score in enumerate(kept.scores) if score == chosen), None)
    return table(Table(heads, rows, "All scores", best))


def time_spent(kept: RunRecord) -> list[Html]:
    """Compute, data, push, pull and wait of each worker."""
    course = kept.course
    told = pictures.part_names(course)
    if not told:
        return [
            text(
                NO_COURSE if not course.clocks else "The workers of this run do not tell where their time went.",
                "faint",
            )
        ]
    parts: list[Html] = []
    if not any(name == "compute_seconds" for name, _ in told):
        said = "Workers of this run tell how long they waited, and not what computation, data, pushes and pulls took."
        parts.append(text(said, "faint"))
    shown = sorted(course.workers, key=lambda name: -sum(course.sums[name].get(part, 0.0) for part, _ in told))
    shown = sorted(shown[: pictures.MOST_BARS], key=worker_order)
    if len(shown) < len(course.workers):
        parts.append(text(f"The {len(shown)} of {len(course.workers)} workers that took most time; the table has all."))
    caption = (
        "Each worker's time, all its processes together. Wait: the policy let it wait for others. What is left to the dotted "
        "line is its start, scoring, and time in which it was away."
    )
    drawn = picture(pictures.spent(course.sums, shown, kept.seconds), "time of each worker by what it did", caption)
    heads = ["worker", "steps", *(f"{called} (s)" for _, called in told), "step (ms)"]
    rows = [
        [worker, f"{course.clocks[worker]:,}"]
        + [f"{course.sums[worker].get(part, 0.0):.1f}" for part, _ in told]
        + [_milliseconds(course, worker)]
        for worker in course.workers
    ]
    more = text(f"paceline doctor {kept.folder.name} says what another policy would give.", "faint")
    return [*parts, drawn, more, table(Table(heads, rows, "In numbers"))]


def _milliseconds(course: Course, worker: str) -> str:
    found = course.latest[worker].get("step_seconds")
    return "-" if found is None else f"{found * 1000:.1f}"


def staleness(kept: RunRecord) -> list[Html]:
    """How old the weights were, and how much of them each mix took."""
    course = kept.course
    if not course.has("staleness"):
        return [text("The workers of this run tell no staleness.", "faint")] if course.clocks else []
    rows = [
        [worker, *(_figure(course.latest[worker], name) for name in ("staleness_mean", "staleness_max", "alpha"))]
        for worker in course.workers
    ]
    if not any(figures.get("staleness_max") for figures in course.latest.values()):
        drawn, notes = [], [text("Staleness is 0 all the time: each gradient was computed on the newest weights.")]
    else:
        caption = "Folds by others since the worker read its weights, at its newest push."
        drawing = pictures.per_worker(course, "staleness", "staleness (folds)")
        drawn, notes = [picture(drawing, "staleness of each worker over time", caption)], []
    alphas = [value for worker in course.workers for value in course.over_time(worker, "alpha")[1]]
    if any(not math.isclose(value, 1.0) for value in alphas):
        drawn.append(
            picture(
                pictures.per_worker(course, "alpha", "alpha (ratio)"),
                "alpha of each worker over time",
                "The weight of the servers' model in the worker's last mix.",
            )
        )
    elif alphas and kept.config.servers:
        notes.append(text("alpha is 1 all the time: workers take the servers' weights as they are.", "faint"))
    heads = ("worker", "staleness, mean", "staleness, largest", "alpha, last")
    return [beside(*drawn), *notes, table(Table(heads, rows, "In numbers"))]


def _figure(figures: dict[str, float], name: str) -> str:
    return f"{figures[name]:.4g}" if name in figures else "-"


def speed(kept: RunRecord) -> list[Html]:
    """Examples per second, the rate of the steps, and what a script logs."""
    course = kept.course
    if not course.clocks:
        return []
    logged = sorted({name for figures in course.latest.values() for name in figures if name.startswith(LOG_PREFIX)})
    drawn = [
        picture(pictures.rate(kept), f"{'steps of all workers' if course.steps else 'examples'} per second over time")
    ]
    if course.has("lr"):
        caption = "The effective one: what the servers' steps took, after lr_scale, schedule and warm-up."
        drawn.append(picture(pictures.learning_rate(course), f"learning rate by {course.unit}", caption))
    for name in logged[:MOST_LOGGED]:
        label = name.removeprefix(LOG_PREFIX)
        drawn.append(picture(pictures.per_worker(course, name, label), f"{label} over time", "Logged by the script."))
    events = [[f"{event.seconds:.1f}", event.said] for event in course.events if "again" not in event.said]
    return [beside(*drawn), *([table(Table(("time (s)", "change"), events))] if events else [])]


def sent_bytes(kept: RunRecord) -> list[Html]:
    """What workers sent and received, and what servers hold."""
    course = kept.course
    if not course.clocks:
        return []
    servers = [(f"server-{each['server']}", each.get("figures") or {}) for each in course.last.get("servers", [])]
    servers = [(name, figures) for name, figures in servers if figures and kept.config.servers]
    known = [worker for worker in course.workers if SENT in course.sums[worker]]
    if not known:
        return [text("The workers of this run do not count the bytes that they send and receive.", "faint")]
    rows = [[worker, *_traffic(course.sums[worker], course.clocks[worker])] for worker in known]
    total = {name: sum(course.sums[worker].get(name, 0.0) for worker in known) for name in (SENT, RECEIVED)}
    steps = sum(course.clocks[worker] for worker in known)
    rows.append(["all", *_traffic(total, steps)])
    found = [table(Table(("worker", "sent", "received", "sent a step", "received a step"), rows))]
    if servers:
        heads = ("server", "its slice", "pushes", "CPU time (s)", "of its time", "in snapshots (s)")
        found.append(table(Table(heads, [[name, *_server(figures)] for name, figures in servers])))
        found.append(text("Servers count from the start of their present process.", "faint"))
    return found


def _traffic(sums: dict[str, float], steps: int) -> list[str]:
    pairs = [sums.get(SENT, 0.0), sums.get(RECEIVED, 0.0)]
    return [*map(size, pairs), *(size(value / steps) if steps else "-" for value in pairs)]


def _server(figures: dict[str, float]) -> list[str]:
    share = figures["busy_seconds"] / figures["seconds"] if figures.get("seconds") else 0.0
    return [
        size(figures["slice_bytes"]),
        f"{figures['pushes']:,.0f}",
        f"{figures['busy_seconds']:.1f}",
        f"{share:.0%}",
        f"{figures['checkpoint_seconds']:.1f}",
    ]


def recoveries(kept: RunRecord) -> list[Html]:
    """What went wrong, what it cost, what was lost."""
    again = [event for event in kept.course.events if "again" in event.said]
    parts = [text(_lost(kept, bool(again)), "result" if kept.faults else "")]
    if told := str(kept.recovery):
        parts.append(text(f"Recovered: {told}."))
    if kept.faults:
        rows = [
            [each.fault, *(_seconds(value) for value in (each.at, each.lasted, each.waited))] for each in kept.faults
        ]
        parts.append(table(Table(("fault", "at (s)", "process ran again after (s)", "its worker waited (s)"), rows)))
    if again:
        parts.append(table(Table(("time (s)", "what"), [[f"{each.seconds:.1f}", each.said] for each in again])))
    return parts


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _lost(kept: RunRecord, is_interrupted: bool) -> str:
    if kept.lost is not None:
        return f"Lost: {kept.lost}."
    if kept.faults:
        return "What was lost is counted when the run has finished, of the servers' last snapshots."
    if is_interrupted or str(kept.recovery):
        return (
            "Processes died, and others took their place. A push that a server has acknowledged is in its snapshots or is "
            f"sent again; paceline audit {kept.folder.path} checks what is kept."
        )
    return "No process of this run died, as far as its folder tells."


def sharding(kept: RunRecord) -> list[Html]:
    """How the examples were dealt to workers."""
    manifest = kept.manifest
    if manifest is None:
        return [text("The shards are not in the run's folder, so how examples were dealt is not known.", "faint")]
    strategy = manifest.recipe.strategy.name
    rows = [
        [
            str(place),
            f"{shard.examples:,}",
            f"{shard.duplicates:,}",
            f"{len(shard.classes):,}" if shard.classes else "-",
        ]
        for place, shard in enumerate(manifest.shards)
    ]
    found = [text(f"Strategy {strategy} dealt {manifest.train_examples:,} training examples to {len(rows)} shards.")]
    spread = _spread(kept)
    heads = ("shard", "examples", "of them in others, too", "classes")
    return [*found, *spread, table(Table(heads, rows, "In numbers"))]


def _spread(kept: RunRecord) -> list[Html]:
    """How evenly classes are spread; nothing where labels are none."""
    assert kept.manifest is not None
    if not any(shard.classes for shard in kept.manifest.shards):
        return []
    shards = ShardSet(kept.manifest.recipe.strategy.name, kept.folder.shards, kept.manifest)
    said = text(f"{result([shards])[:-1]}; paceline report {kept.folder.shards} says more.")
    if shards.counts.size > MOST_CELLS:
        return [said]
    caption = "Orange: a shard has more of the class than its share, purple: less. Numbers count examples."
    with styled():
        drawing = svg(heat_map([shards]))
    return [said, picture(drawing, "classes and shards", caption)]


def settings(kept: RunRecord) -> list[Html]:
    """Those that differ from the defaults, and all."""
    default = flat(Config(task=kept.config.task).model_dump(mode="json"))
    own = {key: value for key, value in flat(kept.config.model_dump(mode="json")).items() if default.get(key) != value}
    own.pop("run", None)
    return [
        text("Settings other than the defaults; the task may have set some of them."),
        facts((key, str(value)) for key, value in own.items()),
        details("All settings (config.yaml)", code(kept.folder.config.read_text())),
    ]
