"""`paceline reproduce` as a user types it."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.core.errors import DiskError, UsageError
from paceline.launch.this_machine import capacity
from paceline_papers.reproduce import artefacts
from paceline_papers.reproduce.recipes.sharding import fig_7
from paceline_papers.reproduce.recipes.shat import fig_6


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


def reproduce(*words: str) -> str:
    said = CliRunner().invoke(app, ["reproduce", *words])
    return f"{said.output}\nexit code {said.exit_code}"


def row(listed: str) -> list[str]:
    return next(line.split() for line in listed.splitlines() if line.startswith("sharding/fig-7"))


def test_without_a_name_all_are_listed_with_their_last_result() -> None:
    listed = reproduce()
    assert "shat/table-2" in listed
    assert "sharding/fig-7" in listed
    assert "exit code 0" in listed

    told = reproduce("sharding/fig-7", "--seeds", "8")
    assert "[Sharding] Fig. 7" in told
    assert "does not: half of a shard's classes have 200 to 215 examples: upper quartile" in told
    assert "The page is reproduction." in told
    assert len(row(listed)) == 2  # its name, and minutes
    assert sum(map(int, row(reproduce())[2:])) == 4  # sentences of the paper


def test_a_narrow_terminal_shows_the_names_whole_since_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = {line.split()[0] for line in reproduce().splitlines() if line.strip()}
    assert {artefact.name for artefact in artefacts.known()} <= listed


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can't have what one recipe needs."""
    lacking = replace(fig_6.RECIPE, lacks=lambda: "Can't emulate links: It takes root.")
    monkeypatch.setattr(fig_6, "RECIPE", lacking)


@pytest.mark.usefixtures("no_links")
def test_what_this_machine_cannot_make_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    told = reproduce("shat/fig-6")

    assert "shat/fig-6 can't be made here. Can't emulate links: It takes root." in told
    assert "exit code 64" in told
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_links")
def test_among_others_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [each for each in artefacts.known() if each.name in ("sharding/fig-7", "shat/fig-6")]
    monkeypatch.setattr(artefacts, "known", lambda: every)
    told = reproduce("all", "--seeds", "1")

    assert "shat/fig-6 is left out: Can't emulate links: It takes root." in told
    assert "table, picture and JSON are in reproduction/small/sharding/fig-7" in told
    assert "exit code 0" in told


def test_mistakes_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    assert "No table or figure is called 'table-9'" in reproduce("table-9")
    assert "has no --full size" in reproduce("sharding/fig-7", "--full")
    assert "exit code 64" in reproduce("sharding/fig-7", "--full")
    assert "exit code 0" not in reproduce("sharding/fig-7", "--seeds", "0")
    assert "--set epochs=1: settings are for --full" in reproduce("sharding/fig-7", "--set", "epochs=1")
    assert "shat/fig-4 --full needs --data, CIFAR-10: download cifar-10-binary" in reproduce("shat/fig-4", "--full")
    absent = " ".join(reproduce("shat/fig-4", "--full", "--data", "absent").split())
    assert "there is no absent. It needs CIFAR-10: download" in absent
    assert "Without --full it runs on what is here: The digits" in absent
    assert "--data x: data sets are for --full" in reproduce("shat/fig-4", "--data", "x")
    assert "--seeds, --data and --set are for making something" in reproduce("--seeds", "3")
    assert not list(tmp_path.iterdir())


def test_variables_that_would_change_a_recipe_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_EPOCHS", "3")
    told = reproduce("sharding/fig-7", "--seeds", "1")

    assert "PACELINE_EPOCHS is set, and would change what the recipes say. Unset it." in told
    assert "exit code 64" in told
    assert not list(tmp_path.iterdir())


def test_fewer_seeds_than_are_kept_say_what_the_page_says() -> None:
    more = reproduce("sharding/fig-7", "--seeds", "8").splitlines()
    fewer = reproduce("sharding/fig-7", "--seeds", "1").splitlines()

    assert [line for line in fewer if "agrees" in line or "cannot" in line] == [
        line for line in more if "agrees" in line or "cannot" in line
    ]


def test_of_a_paper_what_has_a_full_size_is_made_at_it_and_the_rest_is_named() -> None:
    told = " ".join(reproduce("sharding", "--full").split())

    assert "sharding/fig-7 is left out: it has no --full size." in told
    assert "CIFAR-10: sharding/fig-1, sharding/table-2, sharding/table-3; CIFAR-100: sharding/table-4" in told
    assert "shat/fig-4 --full needs --data, CIFAR-10" in " ".join(reproduce("shat", "--full").split())
    assert "sharding/fig-7" not in reproduce("--full")


def test_a_file_of_another_version_is_told_where_all_are_listed(tmp_path: Path) -> None:
    reproduce("sharding/fig-7", "--seeds", "1")
    (file,) = tmp_path.rglob("runs.jsonl")
    file.write_text(file.read_text().replace('"version": 1', '"version": 0', 1))

    assert "holds runs of format 1, artefact sharding/fig-7, size small, version 0; this command makes" in reproduce()
    assert "exit code 78" in reproduce("sharding/fig-7", "--seeds", "1")


def test_a_failing_one_does_not_keep_the_others_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(around: object, row: str, seed: int) -> None:
        raise DiskError("The disk is full.")

    (good,) = artefacts.wanted("sharding/fig-7")
    failing = replace(good, name="sharding/fig-0", recipe=replace(fig_7.RECIPE, run=fails))
    monkeypatch.setattr(artefacts, "known", lambda: [failing, good])
    told = " ".join(reproduce("all", "--seeds", "1").split())

    assert "sharding/fig-0 has failed, the others go on: DiskError: The disk is full." in told
    assert "table, picture and JSON are in reproduction/small/sharding/fig-7" in told
    assert "The page is reproduction." in told
    assert "sharding/fig-0 failed, as said above. Finished runs are kept; this makes the rest: paceline" in told
    assert "exit code 73" in told


def test_a_file_is_no_folder_of_results(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")

    told = reproduce("sharding/fig-7", "--out", "results")

    assert "--out results: this is a file. Give a folder for the results." in told
    assert "exit code 64" in told


def test_the_full_size_is_listed_without_minutes_that_nobody_has_measured() -> None:
    listed = reproduce("--full")

    assert "Make one: paceline reproduce NAME --full --data PATH" in " ".join(listed.split())
    (fig_4,) = (line.split() for line in listed.splitlines() if line.startswith("shat/fig-4"))
    assert fig_4 == ["shat/fig-4", "CIFAR-10"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_it_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> None:
    def ended(strategy: str, seed: int) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(fig_7, "counts", ended)
    before = signal.getsignal(signal.SIGTERM)

    told = reproduce("sharding/fig-7")

    assert "Ended early. Finished runs are kept; this goes on: paceline" in told
    assert f"exit code {code}" in told
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_full_run_says_what_it_computes_on_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("no room")

    monkeypatch.setattr(capacity, "refuse_too_many", refuse)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "images").mkdir()

    on_cpus = " ".join(reproduce("shat/fig-4", "--full", "--data", "images", "--seeds", "1").split())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    on_gpus = " ".join(reproduce("shat/fig-4", "--full", "--data", "images", "--seeds", "1").split())

    assert "8 of 8 runs are left. No GPU is visible (CUDA_VISIBLE_DEVICES is ''), so workers compute on" in on_cpus
    assert "expect it to take days or weeks" in on_cpus
    assert "Workers share 2 visible GPUs: 4, 6." in on_gpus
    assert "UsageError: no room" in on_gpus
