"""What [Survey]'s table and six figures on MLlib have in common: runs of its three models on two tables, with one executor and
with two, the features in memory and on disk. "satisfactory speedups can be attained by increasing the number of workers"."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from paceline_papers.baseline import split as splits
from paceline_papers.baseline.baseline import LIKE, table
from paceline_papers.baseline.engine import STORAGES, Point, engine, in_turns
from paceline_papers.baseline.mllib import missing_spark
from paceline_papers.baseline.scores import scores
from paceline_papers.baseline.split import Split
from paceline_papers.reproduce.claims import Above
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

EXPERIMENTS: Mapping[int, tuple[str, Mapping[str, str]]] = {
    1: ("h1b", {"tree": "tree, depth 5", "lr": "lr, 3 steps", "bayes": "bayes, smoothing 1"}),
    2: ("fire", {"tree": "tree, depth 5", "lr": "lr, 20 steps", "bayes": "bayes, smoothing 500"}),
}
"""The paper's: the table, and of each model the setting."""
CALLED = {"tree": "decision tree", "lr": "logistic regression", "bayes": "naive Bayes"}
EXECUTORS = (1, 2)
EXAMPLES = 60_000
ENGINE = "local"
SMALL = (
    f"Made-up tables of {EXAMPLES:,} rows like the paper's, whose real ones have millions. Executors are threads of one "
    "process of Java. A seed draws the rows and the split. Memory and disk take turns at coming first in a session. The "
    "classes' shares, the strength of the signal and the indexes for naive Bayes were chosen with the paper's "
    "order of the models in view, so that order is no evidence for it."
)
OWNER = "survey/table"


def row(experiment: int, executors: int) -> str:
    """The name of its runs."""
    return f"experiment {experiment}, {executors} executor{'s' * (executors != 1)}"


ROWS = {row(experiment, count): (experiment, count) for experiment in EXPERIMENTS for count in EXECUTORS}


def trained(around: Around, name: str, seed: int) -> Figures:
    """Of each model: seconds of training and testing by storage, accuracy and PPV (percent)."""
    experiment, executors = ROWS[name]
    called, models = EXPERIMENTS[experiment]
    folder = around.folder / f"{called}-{seed}"
    if not splits.is_written(folder):
        splits.make_up(table(called + LIKE), EXAMPLES, seed, folder)
    points = [
        Point(ENGINE, kind, variant, encoding, executors, storage)
        for storage in STORAGES
        for encoding, kind, variant in sorted((_encoding(kind), kind, variant) for kind, variant in models.items())
    ]
    trains = engine(ENGINE)
    trains.check()
    found: dict[str, float] = {}
    for point, each in trains.train(Split.of(folder), in_turns(points, seed), around.folder / "logs"):
        told = scores(each["confusion"])
        found[f"{point.kind}_{point.storage}"] = each["training"]
        found[f"{point.kind}_testing_{point.storage}"] = each["testing"]
        found[f"{point.kind}_accuracy"] = 100 * told["accuracy"]
        found[f"{point.kind}_ppv"] = 100 * told["ppv_weighted"]
    return found


def _encoding(kind: str) -> str:
    return Point(ENGINE, kind, "", "").model.encoding


FASTER = {
    Verdict.AGREES: "Both executors have a core, and each trains on half of the rows.",
    Verdict.CANNOT: "A training takes so few seconds that starting its tasks counts as much as the rows.",
    Verdict.DOES_NOT: "A training takes so few seconds that a second executor costs more than it saves.",
}
DISK = {
    Verdict.AGREES: "Features on disk are read again at each pass.",
    Verdict.CANNOT: "The operating system keeps files of this size in memory, so reading them again costs little.",
    Verdict.DOES_NOT: "The operating system keeps files of this size in memory, so they are read as fast.",
}


def figure(experiment: int, kind: str, letter: str) -> Recipe:
    """The figure of one model and table: seconds of training by executors."""
    rows = [row(experiment, count) for count in EXECUTORS]
    called = CALLED[kind]

    def draw(runs: Runs) -> Figure:
        panel = {storage: [runs.of(name, f"{kind}_{storage}") for name in rows] for storage in STORAGES}
        return lines({called: panel}, EXECUTORS, "executors", "training (s)")

    return Recipe(
        number=f"MLlib, experiment {experiment} ({letter})",
        shows=f"seconds of {called} by executors, in memory and on disk",
        small=SMALL,
        rows=rows,
        columns={
            f"{kind}_memory": Column("train in memory (s)", ".2f"),
            f"{kind}_disk": Column("train on disk (s)", ".2f"),
            f"{kind}_testing_memory": Column("test in memory (s)", ".2f"),
            f"{kind}_testing_disk": Column("test on disk (s)", ".2f"),
        },
        run=trained,
        draw=draw,
        claims=[
            *(
                Above(f"{storage}: two executors train faster", FASTER, f"{kind}_{storage}", rows[0], rows[1])
                for storage in STORAGES
            ),
            *(
                Above(
                    f"{name}: training on disk takes longer than in memory",
                    DISK,
                    f"{kind}_disk",
                    name,
                    name,
                    f"{kind}_memory",
                )
                for name in rows
            ),
        ],
        minutes=9,
        seeds=4,
        same_runs_as=OWNER,
        lacks=missing_spark,
    )
