"""Policies on one task: what is refused before anything starts, what is trained, what is kept, and what a Ctrl-C leaves."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline_studies.commands.compare import Trained, reader
from paceline_studies.comparison.compare_policies import Manner, compare_policies, points_of, read_policies
from paceline_studies.comparison.simulated import REAL, Simulator
from paceline_studies.simulator.limits import refuse_unlike
from paceline_studies.simulator.scene import Scene

OUT = Path("both")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def go(
    policies: tuple[str, ...] = ("bsp", "asp"),
    seeds: int = 1,
    scene: Scene | None = None,
    fresh: bool = False,
    as_json: bool = False,
    **options: Any,
) -> int:
    trained = Trained(workers=2, servers=1, epochs=1, **options)
    manner = Manner(scene or Scene())
    read = reader("digits", trained)
    return compare_policies(policies, seeds, read, manner, by=None, out=OUT, fresh=fresh, as_json=as_json)


def test_a_list_of_policies_has_two_or_more_different_ones() -> None:
    assert read_policies("bsp, ssp:3,./mine.py") == ["bsp", "ssp:3", "./mine.py"]
    with pytest.raises(UsageError, match="--policies bsp: expected two or more"):
        read_policies("bsp")
    with pytest.raises(UsageError, match="asp is in the list twice"):
        read_policies("asp,bsp,asp")


def test_each_seed_is_trained_under_all_policies_before_the_next_one() -> None:
    points = points_of(["bsp", "ssp:3"], 2, reader("digits", Trained(sets=["seed=7"])))

    assert [(point.values["policy"], point.values["seed"]) for point in points] == [
        ("bsp", 7),
        ("ssp:3", 7),
        ("bsp", 8),
        ("ssp:3", 8),
    ]
    assert [point.configs[0].run for point in points] == ["bsp-1", "ssp-3-1", "bsp-2", "ssp-3-2"]


def test_a_policy_without_servers_has_none_unless_somebody_says_how_many() -> None:
    read = reader("digits", Trained())

    assert (read("adpsgd").servers, read("bsp").servers) == (0, 2)


def test_less_than_one_seed_and_unknown_policies_are_refused() -> None:
    with pytest.raises(UsageError, match="--seeds 0: expected 1 or more"):
        go(seeds=0)
    with pytest.raises(ConfigError, match=r"There is no 'bps' among the policies.*Did you mean 'bsp'"):
        go(("bsp", "bps"))
    assert not OUT.exists()


@pytest.mark.parametrize(
    ("task", "settings", "said"),
    [
        ("digits", ["codec.push=int8"], "what a codec leaves out"),
        ("digits", ["overlap=true", "policy=asp"], "a push during the next gradient"),
        ("rcv1", [], "a linear model over sparse rows"),
        ("chars", [], r"task chars has its own loss\(\)"),
    ],
)
def test_what_would_not_be_simulated_as_it_is_is_refused(task: str, settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"{said}.* Train it for real: --real"):
        refuse_unlike(read_config(task, Flags(sets=settings)), True, REAL)


def test_policies_are_simulated_compared_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert go(seeds=3, scene=Scene(speeds="HE1")) == 0
    said = capsys.readouterr().out
    assert "6 runs of digits (2 policies, 3 seeds each), simulated: real gradients, virtual time" in said
    assert "Against bsp, seed by seed" in said

    assert go(seeds=3, scene=Scene(speeds="HE1"), as_json=True) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert "6 of 6 runs are finished already" in captured.err
    bsp, asp = found["sides"]
    assert found["seconds_are"] == "virtual"
    assert asp["name"] == "asp"
    assert asp["figures"]["seconds"]["difference"]["verdict"] == "better"
    assert asp["figures"]["waited"]["mean"] < bsp["figures"]["waited"]["mean"]
    assert bsp["figures"]["staleness"]["mean"] == 0 < asp["figures"]["staleness"]["mean"]
    assert bsp["figures"]["validation_accuracy"]["mean"] > 0.7


def test_other_settings_are_refused_and_more_policies_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert go() == 0
    assert "With less than 3 seeds the runs can't tell a difference from noise." in capsys.readouterr().out

    with pytest.raises(ConfigError, match=r"The comparison in both was started with other settings:\n    scene.speeds"):
        go(scene=Scene(speeds="HE1"))
    assert go(("bsp", "asp", "shat")) == 0
    assert "2 of 3 runs are finished already" in capsys.readouterr().out


def test_a_ctrl_c_keeps_what_is_finished_and_says_what_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = Simulator.train

    def interrupted(self: Simulator, config: Config, folder: RunFolder) -> None:
        if config.run == "asp-1":
            raise KeyboardInterrupt
        train(self, config, folder)

    monkeypatch.setattr(Simulator, "train", interrupted)

    assert go() == 130
    assert capsys.readouterr().out.endswith(
        "1 of 2 runs are finished and kept. The same command goes on with --out both\n"
    )
