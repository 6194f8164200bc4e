"""All recipes: the papers' own numbering, what their sentences ask for, and that each can be drawn and told."""

import json
import re
import shutil
from math import inf, nan
from pathlib import Path
from random import Random
from typing import Any

import pytest

from paceline.base.plot_style import png
from paceline.core.errors import ConfigError, UsageError
from paceline.data.shards import open_shards
from paceline_papers.reproduce import hogwild_races, page
from paceline_papers.reproduce.artefacts import PAPERS, Artefact, known, wanted
from paceline_papers.reproduce.claims import Above
from paceline_papers.reproduce.kept import RunStore
from paceline_papers.reproduce.making import Making, check_full, makings, write_page
from paceline_papers.reproduce.recipe import Around, Runs
from paceline_papers.reproduce.recipes.actors import fig_3
from paceline_papers.reproduce.recipes.sharding import fig_7, table_2
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.sharding_methods import config_of, sparse_of
from paceline_papers.reproduce.tasks import classes_in_classes
from paceline_studies.simulator.problem import problem_of
from tests.support.nights import some
from tests.support.tree import ROOT

NUMBERED = {
    "sharding": {"fig-1", "table-2", "table-3", "table-4", "table-5", "fig-7", "fig-8"},
    "shat": {"table-2", "fig-4", "fig-5", "fig-6"},
    "survey": {
        "dssp",
        "ad-psgd",
        "table",
        *(f"fig-{experiment}-{model}" for experiment in (1, 2) for model in ("lr", "tree", "bayes")),
    },
    "hogwild": {"table-1", "table-2", "fig-1", "fig-2", "fig-3"},
    "actors": {"table", "fig-3", "fig-4"},
}
"""The quantitative tables and figures of the five papers, by their own numbering. [Survey] has no numbers: its comparisons in
words, its six figures and its table."""


def test_there_are_28_tables_and_figures_and_each_has_a_recipe() -> None:
    found: dict[str, set[str]] = {}
    for artefact in known():
        found.setdefault(artefact.paper, set()).add(artefact.name.partition("/")[2])

    assert sum(map(len, NUMBERED.values())) == 28
    for paper, numbered in NUMBERED.items():
        assert found.get(paper, set()) == numbered, paper


@pytest.mark.parametrize("artefact", known(), ids=lambda artefact: artefact.name)
def test_every_sentence_names_rows_and_figures_that_the_runs_have(artefact: Artefact) -> None:
    recipe = artefact.recipe
    runs = MadeUp(artefact)

    for claim in recipe.claims:
        assert claim.verdict(runs, recipe.paper) in Verdict
    assert set(recipe.paper) <= set(recipe.rows)
    assert {name for row in recipe.paper.values() for name in row} <= set(recipe.columns)
    assert len({claim.says for claim in recipe.claims}) == len(recipe.claims)
    for claim in recipe.claims:
        if isinstance(claim, Above) and (theirs := claim.paper(recipe.paper)) is not None:
            assert theirs > 0, f"{claim.says}: the paper's numbers say the opposite"
    assert len(page.table(runs)) == 2 + len(recipe.rows)


class MadeUp(Runs):
    """Numbers drawn for every row and figure."""

    def __init__(self, artefact: Artefact, seeds: int = 3) -> None:
        super().__init__(artefact.recipe, seeds, {})

    def of(self, row: str, column: str) -> list[Any]:
        assert row in self.recipe.rows, row
        draw = Random(f"{row} {column}")
        return [draw.uniform(0.5, 1) for _ in range(self.seeds)]


@pytest.mark.parametrize(
    ("name", "row"),
    some(  # each is trained twice; `paceline reproduce all --small` makes all of their rows, too
        [
            ("shat/table-2", "SHAT, n = 4"),
            ("shat/fig-4", "ASP, n = 4"),
            ("shat/fig-5", "VGG-16, HE1"),
            ("sharding/fig-7", "random"),
            ("ours/clipping", "deep, clip.norm 1"),
            ("ours/without-servers", "sgp, HO"),
            ("ours/policies", "local_sgd, dynamic, HE1"),
            ("ours/hidden-strata", "distribution_aware, 8 rare"),
        ],
        [("sharding/fig-7", "random")],
    ),
)
def test_a_run_gives_its_figures_and_gives_them_again(name: str, row: str, tmp_path: Path) -> None:
    (artefact,) = wanted(name)
    first, again = (artefact.recipe.run(Around(tmp_path), row, 1) for _ in range(2))

    assert set(artefact.recipe.columns) <= set(first)
    assert json.loads(json.dumps(first)) == json.loads(json.dumps(again))


@pytest.mark.nightly  # `make nightly PARTS=reproduce` runs it
def test_a_race_of_real_processes_gives_the_figures_of_all_who_draw_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hogwild_races, "EXAMPLES", 320)

    found = hogwild_races.raced(Around(tmp_path), "asynchronous, 2 workers", 1)

    for name in ("hogwild/fig-1", "hogwild/fig-2", "hogwild/fig-3"):
        (artefact,) = wanted(name)
        assert set(artefact.recipe.columns) <= set(found)
    assert found["epochs"] >= len(found["training"]) == len(found["validation"]) > 1
    assert found["last_validation"] < found["validation"][0]
    assert found["seconds"] > 0
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("task", "model", "path"), [(table_2.TASK, None, "bundled"), (str(classes_in_classes.__file__), "fine", "fine")]
)
def test_a_seed_of_sharding_draws_dealing_and_weights_but_not_the_split(
    task: str, model: str | None, path: str, tmp_path: Path
) -> None:
    configs = [config_of(task, model, path, {"name": "random"}, seed, 1) for seed in (0, 1)]
    first, second = (problem_of(config, tmp_path / str(config.seed)) for config in configs)

    for part in ("train", "test"):
        for one, other in zip(getattr(first, part), getattr(second, part), strict=True):
            assert sorted(map(bytes, one)) == sorted(map(bytes, other))
    assert any((one[1] != other[1]).any() for one, other in zip(first.shards, second.shards, strict=True))
    assert (first.first != second.first).any()


def test_a_run_without_sparse_neighbourhoods_has_no_mean_size_of_them(tmp_path: Path) -> None:
    problem_of(config_of(table_2.TASK, None, "bundled", {"name": "random"}, 0, 1), tmp_path)

    assert sparse_of(open_shards(tmp_path).manifest) == pytest.approx({"sparse": 0, "size": nan}, nan_ok=True)


def quick() -> Artefact:
    (artefact,) = wanted("sharding/fig-7")
    return artefact


def test_what_is_finished_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Making(quick(), tmp_path, seeds=2)
    trained = whole.train()
    assert next(trained) == "random, seed 0"
    del trained  # as by Ctrl-C

    again = Making(quick(), tmp_path, seeds=2)
    assert again.missing == [("stratified", 0), ("random", 1), ("stratified", 1)]
    assert list(again.train()) == ["stratified, seed 0", "random, seed 1", "stratified, seed 1"]
    monkeypatch.setattr(fig_7, "counts", None)
    assert list(Making(quick(), tmp_path, seeds=2).train()) == []


def test_half_a_line_of_a_killed_command_is_left_out(tmp_path: Path) -> None:
    list(Making(quick(), tmp_path, seeds=1).train())
    (file,) = tmp_path.rglob("runs.jsonl")
    whole = file.read_text()
    file.write_text(whole + '{"row": "random", "se')

    again = Making(quick(), tmp_path, seeds=2)
    assert again.missing == [(row, 1) for row in fig_7.ROWS]
    list(again.train())
    assert file.read_text().startswith(whole)
    assert len(Making(quick(), tmp_path, seeds=2).kept.figures) == 4


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            '"version": 1',
            '"version": 7',
            "holds runs of format 1, artefact sharding/fig-7, size small, version 7; this ",
        ),
        ('"format": 1', '"format": 9', "holds runs of format 9"),
        ('{"format"', '["format"', "can't be read"),
        ('{"row"', '{}\n{"row"', "can't be read (KeyError: 'row')"),
        ('{"row"', '7\n{"row"', "can't be read (TypeError"),
    ],
)
def test_results_of_another_version_are_refused(tmp_path: Path, before: str, after: str, told: str) -> None:
    list(Making(quick(), tmp_path, seeds=1).train())
    (file,) = tmp_path.rglob("runs.jsonl")
    file.write_text(file.read_text().replace(before, after, 1))

    found = Making(quick(), tmp_path)
    with pytest.raises(ConfigError, match=re.escape(told)):
        found.kept.check()
    with pytest.raises(ConfigError, match=re.escape(told)):
        list(found.train())
    assert len(found.missing) == len(found.keys)
    (line,) = (line for line in write_page(tmp_path).read_text().splitlines() if line.startswith("| `sharding/fig-7`"))
    assert "can't be used: see `paceline reproduce`" in line


def test_a_second_command_that_makes_the_same_runs_is_refused(tmp_path: Path) -> None:
    first = Making(quick(), tmp_path, seeds=2).train()
    next(first)

    with pytest.raises(ConfigError, match=r"Another command is making the runs in .*fig-7; wait for its end"):
        next(Making(quick(), tmp_path, seeds=2).train())


def test_a_table_has_the_seeds_that_all_its_rows_have(tmp_path: Path) -> None:
    making = Making(quick(), tmp_path, seeds=2)
    list(making.train())
    making.kept.add(("stratified", 2), making.kept.figures["stratified", 1], 1.0)  # of a longer run, or one that shares

    (found,) = (each for each in makings(tmp_path) if each.artefact.name == "sharding/fig-7")
    assert (found.seeds, found.missing) == (2, [])
    making.write()
    list(Making(quick(), tmp_path, seeds=4).train())
    write_page(tmp_path)
    assert json.loads((making.folder / "result.json").read_text())["seeds"] == 4, "as the page has"


@pytest.mark.parametrize("name", [".", "run.1", "README"])
def test_the_page_never_takes_another_files_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here" / "README.md").write_text("mine")

    if name == "README":
        with pytest.raises(UsageError, match=r"--out README: the page would be README\.md, which is another file"):
            write_page(Path(name))
        assert Path("README.md").read_text() == "mine"
    else:
        assert write_page(Path(name)).stem == {".": "here", "run.1": "run.1"}[name]


def test_two_artefacts_that_show_the_same_runs_share_them(tmp_path: Path) -> None:
    third, fourth = (wanted(f"actors/fig-{number}")[0] for number in (3, 4))
    made, beside = Making(third, tmp_path, seeds=1), Making(fourth, tmp_path, seeds=1)
    for row in fig_3.ROWS:
        made.kept.add((row, 0), {"error": 0.1, "updates": 5.0}, 1.0)

    assert not Making(fourth, tmp_path, seeds=1).missing
    assert not beside.missing, "one that was begun before, as all are in `reproduce all`"


def test_an_unknown_name_is_refused_with_what_is_near() -> None:
    with pytest.raises(UsageError, match=r"called 'shat/tabel-2'. Did you mean shat/table-2"):
        wanted("shat/tabel-2")
    with pytest.raises(UsageError, match="See them all: paceline reproduce"):
        wanted("xyzzy")


def test_a_paper_and_all_are_many() -> None:
    assert {each.paper for each in wanted("shat")} == {"shat"}
    assert len(wanted("all")) == len(known())


def test_the_full_size_without_its_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"sharding/fig-7 has no --full size: .* Leave out --full"):
        check_full([quick()], None)
    with pytest.raises(UsageError, match="None of these has a --full size"):
        check_full([], None)


def test_one_data_set_is_never_taken_for_another() -> None:
    both = [wanted(name)[0] for name in ("sharding/table-2", "sharding/table-4", "sharding/table-5")]

    with pytest.raises(
        UsageError, match=r"CIFAR-10: sharding/table-2; CIFAR-100: sharding/table-4, sharding/table-5\."
    ):
        check_full(both, ".")
    check_full(both[1:], ".")


def test_table_picture_json_and_page_are_written(tmp_path: Path) -> None:
    out = tmp_path / "results"
    making = Making(quick(), out, seeds=3)
    list(making.train())
    making.write()
    path = write_page(out)

    folder = out / "small" / "sharding" / "fig-7"
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "table.txt").read_text().startswith("| | median of a shard |")
    told = json.loads((folder / "result.json").read_text())
    assert told["seeds"] == 3
    assert [claim["verdict"] for claim in told["claims"]] == making.verdicts()
    text = path.read_text()
    assert "(results/small/sharding/fig-7/picture.png)" in text
    assert "| `sharding/fig-7` | [Sharding] Fig. 7 |" in text
    assert "| `shat/table-2` | [SHAT] Table 2 | accuracy by method, model and number of workers | none yet |" in text
    assert sum(making.artefact.name == "sharding/fig-7" and not making.missing for making in makings(out)) == 1


ONE_OF_EACH_PAPER = {artefact.paper: artefact.name for artefact in known()}.values()


@pytest.mark.parametrize(
    "artefact",
    [
        pytest.param(each, marks=() if each.name in ONE_OF_EACH_PAPER else pytest.mark.nightly, id=each.name)
        for each in known()  # matplotlib takes a third of a second for each
    ],
)
def test_every_picture_can_be_drawn(artefact: Artefact) -> None:
    stored = ROOT / "papers" / "docs" / "reproduction"
    making = next(each for each in makings(stored) if each.artefact.name == artefact.name)
    if making.missing:
        pytest.skip("no stored runs")

    assert png(artefact.recipe.draw(making.runs)).startswith(b"\x89PNG")


@pytest.mark.nightly  # runs of the simulator
def test_the_page_of_the_guide_is_what_its_runs_give(tmp_path: Path) -> None:
    stored = ROOT / "papers" / "docs" / "reproduction"
    shutil.copytree(stored, tmp_path / "reproduction")

    assert write_page(tmp_path / "reproduction").read_text() == stored.with_suffix(".md").read_text()


def test_every_verdict_of_the_guide_has_its_sentence_why() -> None:
    for making in makings(ROOT / "papers" / "docs" / "reproduction"):
        if not making.missing:
            for claim, verdict in zip(making.recipe.claims, making.verdicts(), strict=True):
                assert claim.why.get(verdict), f"{making.artefact.name}: {claim.says}: {verdict}"


def test_the_sentence_why_is_about_the_runs_that_are_made(tmp_path: Path) -> None:
    def whys(seeds: int) -> list[str]:
        making = Making(quick(), tmp_path / str(seeds), seeds=seeds)
        list(making.train())
        making.write()
        lines = write_page(tmp_path / str(seeds)).read_text().splitlines()
        return [line.rsplit("| ", 1)[1] for line in lines if "**" in line and line.startswith("| ")]

    of_recipe, of_four, of_two = whys(fig_7.RECIPE.seeds), whys(4), whys(2)

    assert len(of_recipe) == len(fig_7.RECIPE.claims)
    assert not any("interval of" in why for why in of_recipe)
    assert all("interval of 4 runs" in why for why in of_four)
    assert set(of_two) == {"Fewer than three runs tell nothing. |"}


def test_runs_without_a_figure_are_counted_and_break_nothing(tmp_path: Path) -> None:
    making = Making(wanted("shat/fig-5")[0], tmp_path, 3)
    for row, seed in making.keys:
        time = inf if row.startswith("VGG") != row.endswith("HO") else 8.0  # one net equal, the other one slow
        making.kept.add((row, seed), {"time": time, "last": 0.9, "times": [1.0], "scores": [0.9]}, 1.0)
    making.write()

    assert set(making.verdicts()) == {Verdict.CANNOT}
    assert "not in 3 of 3 runs" in write_page(tmp_path).read_text()
    told = json.loads((making.folder / "result.json").read_text(), parse_constant=pytest.fail)
    assert None in told["rows"]["VGG-16, HE0"]["time"]["values"]


def test_what_is_lost_of_a_result_is_written_again(tmp_path: Path) -> None:
    making = Making(quick(), tmp_path, seeds=1)
    list(making.train())
    making.write()
    for name in ("picture.png", "table.txt", "result.json"):
        (making.folder / name).unlink()
        write_page(tmp_path)
        assert (making.folder / name).exists()


def test_papers_are_in_the_order_of_the_sources_page() -> None:
    assert list(PAPERS)[:5] == ["sharding", "shat", "survey", "hogwild", "actors"]


def test_two_who_add_to_one_file_lose_nothing(tmp_path: Path) -> None:
    what = {"artefact": "a", "size": "small", "version": 1}
    one, other = (RunStore(tmp_path / "runs.jsonl", what) for _ in range(2))
    for seed in range(2):
        for name, kept in (("one", one), ("other", other)):
            kept.add((name, seed), {"figure": 1.0}, 0.5)

    assert set(RunStore(tmp_path / "runs.jsonl", what).figures) == {
        (name, seed) for name in ("one", "other") for seed in range(2)
    }


def test_a_file_of_runs_says_what_it_is_of(tmp_path: Path) -> None:
    kept = RunStore(tmp_path / "runs.jsonl", {"artefact": "a", "size": "small", "version": 1})
    assert kept.about == {}
    kept.add(("row", 0), {"figure": 1.0}, 0.5)

    first = json.loads((tmp_path / "runs.jsonl").read_text().splitlines()[0])
    assert first == kept.about
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", first["date"])
