"""[Sharding] Fig. 1: training and validation loss of several runs of one small network, for each of which examples are dealt
at random. "we notice the existence of variance between the loss values from the subsequent runs" (section I)."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from paceline.data.shards import open_shards
from paceline_papers.reproduce.claims import Varies
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.real_runs import by_epoch
from paceline_papers.reproduce.recipe import Around, Column, Figures, Full, Recipe, Runs
from paceline_papers.reproduce.recipes.sharding import table_2
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.sharding_methods import config_of
from paceline_papers.reproduce.sharding_on_cifar import NEEDS, TRAINS, of_all_training, run_of
from paceline_studies.simulator.problem import problem_of
from paceline_studies.simulator.training import training_of
from paceline_studies.simulator.workers import Training

EPOCHS = 10
ROW = "random"
MODEL = "cnn"
"""At full size: four layers."""
TRAINING = "The training loss at the end is of all training images; the curve is of 2,000 of them."
"""At full size."""
LOSSES = {"training": "train_loss", "validation": "test_loss"}
"""What is drawn, and what measures it: the paper validates on the test images."""
DIFFERENT = 0.01
"""What is called a variance: the standard deviation is more than this share of the mean."""

VARIES = {
    Verdict.AGREES: "Shards, first weights and the order of pushes differ from run to run; the paper does not part them.",
    Verdict.CANNOT: "Fewer than five runs leave a wide interval around how far they are apart.",
}


def run(around: Around, name: str, seed: int) -> Figures:
    config = config_of(table_2.TASK, None, "bundled", {"name": name}, seed, EPOCHS)
    problem = problem_of(config, around.folder / f"{name}-{seed}")
    curves: dict[str, list[float]] = {told: [] for told in LOSSES}

    def watch(training: Training) -> None:
        if training.epochs >= len(curves["training"]) + 1:
            found = training.measures()
            for told, measure in LOSSES.items():
                curves[told].append(round(found[measure], 5))

    training_of(config, problem).run(watch)
    return told_of(curves)


def run_full(around: Around, name: str, seed: int) -> Figures:
    result = run_of(around, "cifar10", MODEL, name, {"name": name}, seed)
    curves = {
        told: by_epoch(result, lambda score, measure=measure: score.metrics[measure])  # type: ignore[misc]
        for told, measure in LOSSES.items()
    }
    training = of_all_training(result, open_shards(result.folder / "shards"))
    return {**told_of(curves), "last_training": training["loss"]}


def told_of(curves: Mapping[str, Sequence[float]]) -> Figures:
    """The curves and where they end."""
    return {**curves, **{f"last_{told}": curve[-1] for told, curve in curves.items()}}


def draw(runs: Runs) -> Figure:
    panels = {
        f"{told} loss": {
            f"run {number + 1}": [[loss] for loss in curve] for number, curve in enumerate(runs.of(ROW, told))
        }
        for told in LOSSES
    }
    epochs = min(len(curve) for told in LOSSES for curve in runs.of(ROW, told))
    panels = {title: {name: curve[:epochs] for name, curve in panel.items()} for title, panel in panels.items()}
    return lines(panels, range(1, epochs + 1), "epochs", "loss", marks=False)


RECIPE = Recipe(
    number="Fig. 1",
    shows="loss by epoch of several runs with random shards",
    small=table_2.RECIPE.small,
    rows=[ROW],
    columns={f"last_{told}": Column(f"{told} loss at the end") for told in LOSSES},
    run=run,
    draw=draw,
    claims=[
        Varies(
            f"the {told} loss varies between runs: its deviation is over 1 %", VARIES, f"last_{told}", ROW, DIFFERENT
        )
        for told in LOSSES
    ],
    minutes=1,
    side_by_side=True,
    full=Full(f"{TRAINS.format('A small CNN', 'CIFAR-10')} {TRAINING}", NEEDS["cifar10"], run_full),
    version=2,
)
