"""--full: each recipe's own runs are started with real processes on made-up data, ended in the middle, and gone on with. By
day those of [Hogwild], whose processes need no torch; each of those with images takes 8 s of CPU time."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.core.chief.scoring import Score
from paceline.core.errors import ConfigError, PacelineError, UsageError
from paceline.core.settings.config import Config
from paceline.data.cifar import PIXELS, TEST, TRAIN
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.forks.forker import Forker
from paceline.launch.forks.run_forkers import forking
from paceline.launch.supervise.launcher import run_local
from paceline.launch.supervise.outcome import Outcome
from paceline.results.result import Result
from paceline.tasks.task import load_task
from paceline.v1.run_service_pb2 import StatusReply
from paceline.worker.training.model_and_gradient import Replica
from paceline_papers.reproduce.artefacts import known, wanted
from paceline_papers.reproduce.making import Making, checksum, write_page
from paceline_papers.reproduce.rcv1_runs import rows_like_rcv1
from paceline_papers.reproduce.real_runs import by_epoch
from paceline_papers.reproduce.recipe import Around, Runs
from paceline_papers.reproduce.recipes.sharding import fig_1
from paceline_papers.reproduce.recipes.shat import fig_4
from tests.support.nights import some

ROWS = {
    "shat/table-2": "SHAT, n = 2",
    "shat/fig-4": "SHAT, n = 2",
    "shat/fig-5": "ResNet-50, HE0",
    "sharding/fig-1": "random",
    "sharding/table-2": "distribution-aware, 20",
    "sharding/table-3": "distribution-aware, 20",
    "sharding/table-4": "stratified",
    "sharding/table-5": "random",
    "hogwild/fig-1": "asynchronous, 2 workers",
    "hogwild/fig-2": "synchronous, 6 workers",
    "hogwild/fig-3": "synchronous, 6 workers",
    "hogwild/table-1": "rate 0.01",
    "hogwild/table-2": "S = 16",
}
"""One row of each recipe that has a full size."""
SHORT = ("epochs=4", "batch_size=5", "schedule.milestones=[2,3]")
SETS = {"shat": (*SHORT, "schedule.warmup_epochs=1"), "sharding": SHORT, "hogwild": ("epochs=3",)}


def images(folder: Path, files: tuple[str, ...], labels: int) -> Path:
    """CIFAR's own form: ten random images in each file."""
    folder.mkdir()
    for seed, name in enumerate(files):
        content = np.random.default_rng(seed).integers(0, 256, (10, labels + PIXELS), dtype=np.uint8)
        content[:, :labels] = np.arange(10)[:, None]
        (folder / name).write_bytes(content.tobytes())
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The stand-in for the data that an artefact needs."""
    folder = tmp_path_factory.mktemp("data")
    found = {
        "CIFAR-10": images(folder / "ten", (*TRAIN, TEST), 1),
        "CIFAR-100": images(folder / "hundred", ("train.bin", "test.bin"), 2),
        "RCV1": rows_like_rcv1(folder / "rcv1", 0, 320),
    }
    return lambda name: str(found[full_of(name).needs.partition(":")[0]])


def full_of(name: str):  # type: ignore[no-untyped-def]
    return wanted(name)[0].recipe.full


TINY = """
from pathlib import Path
from torch import nn
from paceline.data.cifar import read_cifar10, read_cifar100
from paceline.tasks.builtin.cifar10 import prepare

def data(path):
    has_hundred = (Path(path) / "train.bin").exists()
    return has_hundred and read_cifar100(path, "fine") or read_cifar10(path)

def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 100))
"""


@dataclass
class Small:
    """Trains with a tiny model and two workers what was to be trained; the first run gets a Ctrl-C after its first push."""

    task: Path
    forkers: Callable[[Config], Mapping[str, Forker]]
    is_ended: bool
    is_slow: bool = True
    """So that there is time to end it, and that it is the same run when it goes on."""
    asked: list[Config] = field(default_factory=list)

    def __call__(self, config: Config, runs: Path) -> tuple[RunFolder, Outcome]:
        self.asked.append(config)
        small: dict[str, Any] = {"servers": 1}
        if self.is_slow:
            small |= {"slow": {"all": "2x"}, "nominal_step": 0.2}
        is_dense = config.updates == "dense"
        if is_dense:
            few = {"clusters": 4, "components": 5} if config.data.strategy.name == "distribution_aware" else {}
            strategy = config.data.strategy.model_copy(update=few)
            data = config.data.model_copy(update={"strategy": strategy})
            small |= {"task": str(self.task), "model": None, "workers": 2, "data": data}
        folder, config = open_run(config.model_copy(update=small), runs=runs)
        if folder.facts().get("finished"):
            return folder, Outcome(0)
        return folder, run_local(config, folder.path, lambda line: None, self.end, forkers=self.forkers(config))

    def end(self, status: StatusReply, rate: float, causes: object) -> None:
        if self.is_ended and status.version:
            self.is_ended = False
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], Small]]:
    """What trains; the processes of all runs are forked from the same."""
    task = tmp_path_factory.mktemp("task") / "tiny.py"
    task.write_text(TINY)
    with ExitStack() as ends:
        found: dict[str, Mapping[str, Forker]] = {}

        def forkers(config: Config) -> Mapping[str, Forker]:
            if config.updates not in found:
                found[config.updates] = ends.enter_context(forking(config))
            return found[config.updates]

        yield lambda is_ended: Small(task, forkers, is_ended)


class OneRow(Making):
    """One row of a recipe, once."""

    @property
    def keys(self) -> list[tuple[str, int]]:
        return [(ROWS[self.artefact.name], 0)]


def test_each_recipe_with_a_full_size_is_tried() -> None:
    assert {each.name for each in known() if each.recipe.full} == set(ROWS)


OF_HOGWILD: list[tuple[str, list[str]]] = [("hogwild/fig-1", []), ("hogwild/fig-2", ["hogwild/fig-3"])]


@pytest.mark.parametrize(
    ("name", "others"),
    some(
        [
            ("shat/table-2", ["shat/fig-4"]),
            ("shat/fig-5", []),
            ("sharding/fig-1", []),
            ("sharding/table-2", ["sharding/table-3"]),
            ("sharding/table-4", []),
            ("sharding/table-5", []),
            *OF_HOGWILD,
        ],
        OF_HOGWILD[:1],
    ),
)
def test_a_full_run_ends_in_the_middle_and_goes_on(
    name: str, others: list[str], small: Callable[[bool], Small], data: Callable[[str], str], tmp_path: Path
) -> None:
    sets = SETS[name.partition("/")[0]]
    making = OneRow(wanted(name)[0], tmp_path, 1, True, sets)
    first, second = small(True), small(False)
    with pytest.raises(KeyboardInterrupt):
        list(making.train_full(data(name), sets, first))
    assert making.missing
    assert list(making.train_full(data(name), sets, second)) == [f"{ROWS[name]}, seed 0"]

    assert second.asked[0] == first.asked[0]
    figures = making.kept.figures[ROWS[name], 0]
    assert set(making.recipe.columns) <= set(figures)
    if not name.startswith("hogwild"):
        assert all(1 <= len(curve) <= 4 for curve in figures.values() if isinstance(curve, list))  # one for each epoch
    for other in others:
        shared = OneRow(wanted(other)[0], tmp_path, 1, True, sets)
        third = small(False)
        list(shared.train_full(data(other), sets, third))
        assert set(shared.recipe.columns) <= set(shared.kept.figures[ROWS[other], 0])
        assert all(config in second.asked for config in third.asked)


@pytest.mark.nightly
def test_the_training_loss_at_the_end_is_of_all_images(
    small: Callable[[bool], Small], data: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fig_1, "by_epoch", lambda result, figure: [9.0])  # of a sample
    making = OneRow(wanted("sharding/fig-1")[0], tmp_path, 1, True, SHORT)
    list(making.train_full(data("sharding/fig-1"), SHORT, replace(small(False), is_slow=False)))

    result = Result(tmp_path / "full" / "sharding" / "runs" / "cifar10-cnn-random-seed0")
    task = load_task(result.config.task, result.config.model)
    every = task.data(result.config.data.path).train
    figures = making.kept.figures["random", 0]
    assert figures["last_training"] == pytest.approx(
        Replica(task, "cpu", model=result.model).score(every.features, every.labels)["loss"]
    )
    assert figures["training"] == figures["validation"] == [9.0]


@pytest.mark.parametrize("name", ["hogwild/table-1", "hogwild/table-2"])
def test_full_tables_of_hogwild_are_made_in_this_process(
    name: str, data: Callable[[str], str], small: Callable[[bool], Small], tmp_path: Path
) -> None:
    making = OneRow(wanted(name)[0], tmp_path, 1, True, ["epochs=3"])
    nobody = small(False)

    assert list(making.train_full(data(name), ["epochs=3"], nobody)) == [f"{ROWS[name]}, seed 0"]
    assert making.kept.figures[ROWS[name], 0]["epochs"] <= 3
    assert not nobody.asked


@pytest.mark.parametrize(
    ("name", "row", "wanted_of_it"),
    [
        pytest.param(
            "shat/fig-4",
            "SHAT, n = 16",
            {"model": "resnet50", "workers": 16, "servers": 4, "epochs": 250, "batch_size": 128, "budget": "total"},
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "shat/fig-5",
            "VGG-16, HO",
            {"model": "vgg16", "workers": 8, "epochs": 250, "batch_size": 96},
            marks=pytest.mark.nightly,  # 134 million weights; by day ResNet-56 is the large one
        ),
        (
            "sharding/table-2",
            "random",
            {"model": "resnet56", "workers": 12, "servers": 2, "epochs": 164, "batch": "global"},
        ),
        ("sharding/fig-1", "random", {"model": "cnn", "workers": 12, "servers": 2}),
    ],
)
def test_a_full_run_has_the_papers_settings_and_its_model_steps(
    name: str, row: str, wanted_of_it: dict[str, object], data: Callable[[str], str], tmp_path: Path
) -> None:
    asked: list[Config] = []

    def finish(config: Config, runs: Path) -> tuple[RunFolder, Outcome]:
        asked.append(config)
        raise PacelineError("only asked")

    with pytest.raises(PacelineError, match="only asked"):
        full_of(name).run(Around(tmp_path, data(name), (), finish), row, 3)
    (config,) = asked
    assert {key: getattr(config, key) for key in wanted_of_it} == wanted_of_it
    assert config.seed == 3

    task = load_task(config.task, config.model)
    train = task.data(config.data.path).train
    step = Replica(task, "cpu", config.seed).gradient(train.features[:2], train.labels[:2], 0, np.random.default_rng(0))
    assert step.finite


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("workers=3", "the recipe itself says workers"),
        ("policy.bound=3", "itself says policy"),
        ("run=mine", "says run"),
    ],
)
def test_a_setting_that_the_recipe_varies_is_refused(
    pair: str, told: str, data: Callable[[str], str], small: Callable[[bool], Small], tmp_path: Path
) -> None:
    making = OneRow(wanted("shat/fig-4")[0], tmp_path, 1, True, [pair])

    with pytest.raises(UsageError, match=f"--set {pair}: .*{told}"):
        list(making.train_full(data("shat/fig-4"), [pair], small(False)))


def test_a_full_size_has_its_own_number_of_runs(tmp_path: Path) -> None:
    for name in ("sharding/table-2", "shat/fig-4", "hogwild/fig-1"):
        (artefact,) = wanted(name)
        assert Making(artefact, tmp_path).seeds == artefact.recipe.seeds
        assert Making(artefact, tmp_path, full=True).seeds == 5
        assert Making(artefact, tmp_path, 1, True).seeds == 1


def test_data_is_known_by_its_content_wherever_it_is(tmp_path: Path) -> None:
    one, other = (images(tmp_path / name, ("train.bin", "test.bin"), 2) for name in ("one", "other"))
    assert checksum(str(one)) == checksum(str(other)) != checksum(str(one / "test.bin"))

    (other / "test.bin").write_bytes(b"another")
    assert checksum(str(one)) != checksum(str(other))
    assert checksum("s3://mine/images") == "s3://mine/images"


@pytest.mark.nightly  # by day a run goes on where it ended
def test_a_run_goes_on_where_its_data_set_was_moved_to(small: Callable[[bool], Small], tmp_path: Path) -> None:
    before = rows_like_rcv1(tmp_path / "before", 0, 320)
    (artefact,), sets = wanted("hogwild/fig-2"), SETS["hogwild"]
    with pytest.raises(KeyboardInterrupt):
        list(
            OneRow(artefact, tmp_path, 1, True, sets, checksum(str(before))).train_full(str(before), sets, small(True))
        )
    after = before.rename(tmp_path / "after")

    again = OneRow(artefact, tmp_path, 1, True, sets, checksum(str(after)))
    list(again.train_full(str(after), sets, small(False)))

    assert not again.missing


@pytest.mark.nightly  # trains a model of full size
def test_a_folder_of_runs_is_of_one_data_set_even_before_one_is_finished(
    small: Callable[[bool], Small], tmp_path: Path
) -> None:
    data = rows_like_rcv1(tmp_path / "rows", 0, 320)
    sets = SETS["hogwild"]
    with pytest.raises(KeyboardInterrupt):
        list(
            OneRow(wanted("hogwild/fig-2")[0], tmp_path, 1, True, sets, "old").train_full(str(data), sets, small(True))
        )

    other = OneRow(wanted("hogwild/fig-3")[0], tmp_path, 1, True, sets, "new")
    with pytest.raises(ConfigError, match=r"holds runs of settings .*data old; this command makes .*data new\. Move"):
        list(other.train_full(str(data), sets, small(False)))
    assert other.missing


@pytest.mark.nightly
def test_what_is_refused_before_a_run_claims_no_folder_and_other_data_has_its_own(
    small: Callable[[bool], Small], data: Callable[[str], str], tmp_path: Path
) -> None:
    def refuse(config: Config, runs: Path) -> tuple[RunFolder, Outcome]:
        raise UsageError("no room")

    def made(name: str, sets: tuple[str, ...], finish: Any) -> OneRow:
        making = OneRow(wanted(name)[0], tmp_path, 1, True, sets, checksum(data(name)))
        list(making.train_full(data(name), sets, finish))
        return making

    with pytest.raises(UsageError, match="no room"):
        made("sharding/table-2", (*SHORT[1:], "epochs=5"), refuse)

    for name in ("sharding/table-2", "sharding/table-5"):  # of CIFAR-10 and CIFAR-100
        assert not made(name, SETS["sharding"], replace(small(False), is_slow=False)).missing


def test_a_damaged_file_of_a_papers_runs_is_told(small: Callable[[bool], Small], tmp_path: Path) -> None:
    making = OneRow(wanted("shat/fig-4")[0], tmp_path, 1, True, [], "ab12")
    folder = tmp_path / "full" / "shat" / "runs"
    folder.mkdir(parents=True)
    (folder / "of-cifar-10.json").write_text("{")

    with pytest.raises(ConfigError, match=r"of-cifar-10.json can't be read: .*Move .*runs away"):
        list(making.train_full("data", [], small(False)))


def test_epochs_that_the_evaluator_skipped_have_no_score(tmp_path: Path) -> None:
    scores = [{"epoch": epoch, "seconds": 1.0, "versions": [], "metrics": {"a": epoch / 10}} for epoch in (0, 1, 4)]
    found = by_epoch(SimpleNamespace(history=[Score.of(each) for each in scores]), lambda score: score.metrics["a"])

    assert found == pytest.approx([0.1, nan, nan, 0.4], nan_ok=True)
    assert fig_4.curve_figures(found)["mean"] == pytest.approx(0.25)
    recipe = fig_4.RECIPE
    figures = {(row, seed): fig_4.curve_figures(found[: 3 + seed]) for row in recipe.rows for seed in range(2)}
    assert recipe.draw(Runs(recipe, 2, figures, True)).axes, "also where the seeds have not the same epochs"


def test_a_run_without_a_score_fails_and_says_what_to_do(tmp_path: Path, data: Callable[[str], str]) -> None:
    def unscored(config: Config, runs: Path) -> tuple[RunFolder, Outcome]:
        folder, _ = open_run(config, runs=runs)
        folder.models.mkdir()
        return folder, Outcome(0)

    with pytest.raises(PacelineError, match=r"'resnet-50-shat-n2-seed0' ended without a score: .*Move .* away"):
        full_of("shat/fig-4").run(Around(tmp_path, data("shat/fig-4"), (), unscored), "SHAT, n = 2", 0)
    assert list(tmp_path.rglob("models")), "nothing is removed"


def test_a_failed_run_says_why_and_the_others_results_stay(data: Callable[[str], str], tmp_path: Path) -> None:
    def refused(config: Config, runs: Path) -> tuple[RunFolder, Outcome]:
        folder, _ = open_run(config, runs=runs)
        return folder, Outcome(ConfigError.exit_code, reason="batch_size is 128")

    making = OneRow(wanted("shat/fig-4")[0], tmp_path, 1, True, [])

    with pytest.raises(ConfigError, match=r"Run 'resnet-50-shat-n2-seed0' ended: batch_size is 128"):
        list(making.train_full(data("shat/fig-4"), [], refused))
    assert making.missing


def test_full_results_are_apart_from_small_ones_and_from_those_with_other_settings(tmp_path: Path) -> None:
    (artefact,) = wanted("hogwild/fig-3")
    out = tmp_path / "results"
    figures = {"epochs": 5.0, "epoch": 0.1, "last_training": 0.2, "last_validation": 0.3, "rise": 0.1}
    figures |= {"training": [0.5, 0.2], "validation": [0.5, 0.3]}
    making = Making(artefact, out, 3, True, ["epochs=3"])
    for row, seed in making.keys:
        making.kept.add((row, seed), figures, 1.0)
    making.write()

    assert Making(artefact, out, 3).missing
    assert not Making(artefact, out, 3, True, ["epochs=3"]).missing
    with pytest.raises(ConfigError, match=r"data None; this command makes .*data ab12.*Move the file and .*runs away"):
        Making(artefact, out, 3, True, ["epochs=3"], "ab12").kept.check()
    with pytest.raises(ConfigError, match=r"settings \['epochs=3'\]; this command makes .*settings \[\]"):
        Making(artefact, out, 3, True, []).kept.check()
    text = write_page(out).read_text()
    assert "### Fig. 3 at full size: loss by epoch, asynchronous" in text
    assert "`paceline reproduce hogwild/fig-3 --full --data PATH --set epochs=3 --seeds 3`" in " ".join(text.split())
    assert "| none yet | cannot tell: 2 |" in text
    assert (out / "full" / "hogwild" / "fig-3" / "picture.png").is_file()
