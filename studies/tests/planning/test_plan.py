"""A whole plan: from the words of a command line to figures, a table, and advice."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline_studies.planning import probe
from paceline_studies.planning.choices import ChosenSizes
from paceline_studies.planning.figures import Figures, Step
from paceline_studies.planning.plan import Circumstances, Plan, Words, make_plan
from paceline_studies.planning.readers import ScriptReader, TaskReader
from paceline_studies.planning.text import print_plan
from tests.support.commands import paceline
from tests.support.tree import ROOT

SHAPES = '[["weights", [1000000]]]'


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    file = tmp_path / "shapes.json"
    file.write_text(SHAPES)
    return file


def planned(shapes: Path | None, asked: ChosenSizes | None = None, **given: Any) -> Plan:
    found = Circumstances(**{"shapes": shapes, "step": "20ms", "examples": 50_000, **given})
    return make_plan(Words(["run", "digits"]), asked or ChosenSizes(), TaskReader("digits", Flags()), found, print)


def times(plan: Plan) -> dict[tuple[str, int, int], float]:
    return {(row.choice.policy, row.choice.workers, row.choice.servers): row.seconds for row in plan.rows}


def test_more_workers_finish_sooner_until_the_links_are_full(shapes: Path) -> None:
    wide = times(planned(shapes, ChosenSizes.of("1,2,4", "1", "asp"), link="100Gbit"))
    narrow = planned(shapes, ChosenSizes.of("1,2,4", "1", "asp"), link="100Mbit")

    assert wide["asp", 1, 1] > 1.5 * wide["asp", 2, 1] > 2 * wide["asp", 4, 1]
    assert [row.full for row in narrow.rows] == ["", "links", "links"]
    for row in narrow.rows:
        assert row.ceiling is not None
        assert row.throughput <= 1.05 * row.ceiling


def test_a_slow_worker_makes_the_plan_advise_a_looser_policy(shapes: Path) -> None:
    alike = planned(shapes, ChosenSizes.of("4", "1", "bsp,asp"), link="100Gbit")
    slow = planned(shapes, ChosenSizes.of("4", "1", "bsp,asp"), link="100Gbit", speeds="HE1")

    assert alike.advice is not None
    assert slow.advice is not None
    assert (alike.advice.row.choice.policy, slow.advice.row.choice.policy) == ("bsp", "asp")
    assert slow.advice.why.startswith("nothing here is faster; under bsp workers wait")
    assert slow.command == "paceline run digits -w 4 -s 1 --policy asp"


def test_prices_say_what_each_way_costs(shapes: Path) -> None:
    plan = planned(shapes, ChosenSizes.of("1,4", "1", "asp"), price="worker=3600/h, server=0/h")

    for row in plan.rows:
        assert row.cost == pytest.approx(row.choice.workers * row.seconds)
    assert plan.advice is not None
    assert plan.advice.cheapest is not None
    assert plan.advice.cheapest.choice.workers == 1


def test_the_command_to_paste_starts_what_is_advised(shapes: Path) -> None:
    for row in (plan := planned(shapes, ChosenSizes.of("1,4", None, None))).rows:
        choice = row.choice
        policy = None if choice.is_own else choice.policy
        assert (
            read_config("digits", Flags(workers=choice.workers, servers=choice.servers, policy=policy)) == choice.config
        )
    assert plan.advice is not None
    assert plan.config is plan.advice.row.choice.config
    assert plan.sizes["elements"] == 1_000_000
    json.dumps(plan.plain())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"step": "120"}, r"--step: got '120' as a time; write it with its unit"),
        ({"step": "0ms"}, r"--step 0ms: a mini-batch that takes no time has no speed"),
        ({"examples": None}, r"--step needs --examples, too"),
        ({"step": None}, r"--examples goes with --step"),
        ({"link": "fast"}, r"--link: got 'fast' as a bandwidth"),
        ({"link": "1Gbit,5"}, r"--link: got '5' as a time"),
        ({"speeds": "HE9"}, r"--speeds: .*got 'HE9' as speeds; expected one of HO, HE0, HE1, HE2"),
        ({"speeds": "0x,1x,1x,1x"}, r"--speeds: .*has no speed; give a factor above 0"),
        ({"price": "worker=1"}, r"no unit of time"),
    ],
)
def test_what_can_not_be_understood_is_refused_before_anything_starts(
    given: dict[str, Any], said: str, shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "probed", None)

    with pytest.raises(UsageError, match=said):
        planned(shapes, **given)


def test_a_list_of_speeds_has_one_for_each_worker(shapes: Path) -> None:
    with pytest.raises(ConfigError, match=r"speeds: got 2 of them .* for 4 workers"):
        planned(shapes, ChosenSizes.of("4", "1", None), speeds="1x,10x")


def test_only_a_probe_knows_the_model_of_a_linear_task() -> None:
    read = TaskReader("svm", Flags())

    with pytest.raises(ConfigError, match=r"Only a probe says how large the model .* --shapes FILE"):
        make_plan(Words(["run", "svm"]), ChosenSizes(), read, Circumstances(step="1ms", examples=100), print)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["none.py"], 78, "none.py"),
        (["nothing"], 78, "nothing"),
        (["digits", "--", "--lr", "1"], 64, "only a script takes arguments"),
        (["digits", "--write-patch", __file__], 64, "the file exists"),
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(words: list[str], code: int, said: str) -> None:
    done = paceline("plan", *words, cwd=ROOT)

    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said in done.stderr


SCRIPT = """
import torch
import paceline

pairs = torch.utils.data.TensorDataset(torch.randn(960, 8), torch.randint(3, (960,)))
model = torch.nn.Linear(8, 3)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=0.01), model)
loader = paceline.loader(pairs, batch_size=24)
for epoch in paceline.epochs(500):
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
"""


@pytest.mark.nightly  # `make docs-blocks` makes plans, too; by day their figures are given
@pytest.mark.parametrize("kind", ["task", "script"])
def test_a_probe_measures_a_real_worker_and_a_real_server(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probe, "WARM", 0.1)
    monkeypatch.setattr(probe, "ENOUGH", 0.3)
    Path("train.py").write_text(SCRIPT)
    read = TaskReader("digits", Flags()) if kind == "task" else ScriptReader("train.py", (), Flags())
    words = Words(["run", "digits"]) if kind == "task" else Words(["launch"], ["train.py"])

    plan = make_plan(words, ChosenSizes.of("4", "1", "bsp"), read, Circumstances(), print)

    figures = plan.figures
    assert figures is not None
    (step,) = figures.steps
    wanted = (4810, 1257, 16, 10) if kind == "task" else (27, 960, 6, 500)
    assert (figures.values, figures.examples, step.batch, plan.config.epochs) == wanted
    assert min(step.seconds, step.cpu, figures.service) > 0
    assert figures.worker_memory is not None
    assert figures.worker_memory > 100 << 20
    (row,) = plan.rows
    assert row.seconds == pytest.approx(wanted[3] * wanted[1] / row.throughput)
    assert plan.command.split()[1] == words.before[0]
    assert not list(tmp_path.glob("runs"))
    print_plan(plan, Console(file=(text := StringIO()), width=100))
    assert "Advice: bsp with 4 workers and 1 server" in text.getvalue()


def test_a_probe_computes_as_one_of_many_workers_on_its_cores() -> None:
    config = Config(workers=8)

    assert (probe.OneWorker().workers_here(config), probe.OneWorker().workers_on_cores(config)) == (1, 8)


def test_where_a_script_counts_steps_each_worker_makes_all_of_them() -> None:
    counts = Figures(100, 1, [Step(1, 0.1, 0.1)], counts_steps=True)

    assert [counts.examples_of(Config(workers=workers)) for workers in (1, 4)] == [1, 4]
    assert Figures(100, 500, [Step(1, 0.1, 0.1)]).examples_of(Config(workers=4)) == 500


def test_a_run_that_can_not_begin_says_what_works_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object) -> None:
        raise ConfigError("The data set of task svm does not come with Paceline.")

    monkeypatch.setattr(probe, "probed", ends)

    with pytest.raises(ConfigError, match=r"(?s)svm does not come.*--no-probe tells.*; --step 120ms --examples"):
        make_plan(
            Words(["run", "svm"]), ChosenSizes.of("2", "1", None), TaskReader("svm", Flags()), Circumstances(), print
        )
