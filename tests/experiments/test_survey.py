"""[Survey]'s experiment: which runs it makes, its tables and figures, and a tiny real one."""

from pathlib import Path
from typing import Any

import pytest

from experiments import survey
from experiments.cluster import Outcome
from experiments.codecs import chosen_of
from experiments.processes import Ran, Worked, run
from experiments.survey import (
    Cell,
    by_epoch,
    by_time,
    config_of,
    first_with,
    main,
    planned,
    rates,
    row,
    scored,
    speed_up,
)
from experiments.survey_pictures import accuracies, speed_ups
from paceline.core.errors import TryAgain, UsageError
from paceline.core.run.scoring import Score
from paceline.core.settings.config import Config
from paceline.reproduce.network import UNLIMITED, Traffic, missing

PNG = b"\x89PNG"
HISTORY = [
    Score(0, 0.0, [0], {"test_accuracy": 0.1}),
    Score(1, 2.5, [9], {"test_accuracy": 0.8}),
    Score(3, 7.5, [27], {"test_accuracy": 0.93}),
    Score(4, 10.0, [36], {"test_accuracy": 0.92}, final=True),
]


def ran(seconds: float = 10.0, workers: int = 2, traffic: Traffic | None = None) -> Ran:
    """All workers but the last one are idle for a fifth of their time, it for four fifths."""
    equal = [Worked(100, 10.0, 2.0, traffic)] * (workers - 1)
    return Ran(Outcome({"test_accuracy": 0.92}, seconds, 1.0, 0.0, HISTORY), [*equal, Worked(50, 10.0, 8.0, traffic)])


def test_the_first_cluster_has_every_number_of_workers_and_the_others_have_the_largest() -> None:
    assert planned(["ho", "he1"], ["bsp", "asp"], [1, 4]) == [
        Cell("ho", "bsp", 1),
        Cell("ho", "bsp", 4),
        Cell("ho", "asp", 1),
        Cell("ho", "asp", 4),
        Cell("he1", "bsp", 4),
        Cell("he1", "asp", 4),
    ]


def test_the_slow_link_is_the_last_workers_alone() -> None:
    assert rates(Cell("slow-link", "bsp", 3), 1e6) == {
        "servers": UNLIMITED,
        "worker-0": UNLIMITED,
        "worker-1": UNLIMITED,
        "worker-2": 1e6,
    }
    assert set(rates(Cell("he1", "bsp", 3), 1e6).values()) == {UNLIMITED}


def test_under_a_slow_link_all_compute_alike_and_under_he1_one_is_slower() -> None:
    slow = config_of(Cell("slow-link", "dpsgd", 4), "digits", 2, 0.05, ["seed=3", "batch_size=8"])
    he1 = config_of(Cell("he1", "bsp", 4), "digits", 2, 0.05, [])
    assert (slow.slow, slow.servers, slow.seed, slow.batch_size) == ({"all": "2x"}, 0, 3, 8)
    assert (he1.slow, he1.servers) == ({"all": "2x", "3": "10x"}, 2)
    assert (slow.schedule.lr_scale, he1.schedule.lr_scale) == ("auto", "auto")


def test_a_row_has_the_speed_up_over_one_worker_and_the_last_worker_apart() -> None:
    one, two = Cell("ho", "bsp", 1), Cell("ho", "bsp", 2)
    found = {one: ran(25.0, 1), two: ran(10.0, 2, Traffic(1_000_000, 2_000_000))}

    assert row(two, found, 0.9) == ["HO", "bsp", "2", "10.0", "2.50", "0.9200", "7.5", "3", "20 %", "80 %", "30", "60"]
    assert row(one, found, 0.95) == ["HO", "bsp", "1", "25.0", "1.00", "0.9200", "", "", "", "80 %", "", ""]
    assert speed_up(Cell("he1", "bsp", 2), found | {Cell("he1", "bsp", 2): ran()}) is None


def test_accuracy_by_epoch_leaves_out_what_was_not_scored() -> None:
    assert by_epoch(HISTORY, 4) == ["0.800", "", "0.930", "0.920"]
    assert first_with(HISTORY, 0.9) is HISTORY[2]
    assert first_with(HISTORY, 0.99) is None
    assert scored(ran()) == HISTORY[1:]


def test_accuracy_by_time_is_the_newest_and_says_when_the_run_was_over() -> None:
    assert [by_time(HISTORY, seconds) for seconds in (2, 5, 8, 10, 40)] == [
        "0.100",
        "0.800",
        "0.930",
        "0.920.",
        "0.920.",
    ]


def test_the_figures_are_drawn_also_where_one_worker_was_not_run() -> None:
    curves = {("ho", "bsp"): HISTORY, ("ho", "asp"): HISTORY, ("he1", "bsp"): HISTORY}
    assert accuracies(curves, survey.CLUSTERS).startswith(PNG)
    assert speed_ups({("bsp", 1): 1.0, ("bsp", 8): 6.5, ("asp", 8): None}).startswith(PNG)


@pytest.mark.parametrize(
    ("option", "given", "told"),
    [
        ("clusters", "ho,he9", "--clusters: got 'he9'; expected some of ho, he1, slow-link"),
        ("workers", "1,two", "--workers: got '1,two'; expected numbers from 1 to 64"),
        ("workers", "0", "--workers: got '0'; expected numbers from 1 to 64"),
        ("link", 0.0, "--link: got 0 Mbit/s"),
        ("policies", "bps", "bps"),
    ],
)
def test_an_option_that_can_not_be_read_is_refused(
    tmp_path: Path, capsys: Any, option: str, given: Any, told: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(**{"out": tmp_path, option: given})
    assert ended.value.code not in (0, 1, 70)
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_namespaces_the_slow_link_is_left_out_and_nothing_is_counted(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "missing", lambda: "there are none here")
    asked: list[object] = []

    def run(config: Config, links: object) -> Ran:
        asked.append(links)
        return ran(workers=config.workers)

    monkeypatch.setattr(survey, "run", run)

    main("bsp", "ho,slow-link", "2", out=tmp_path)

    told = capsys.readouterr()
    assert asked == [None]
    assert "No slow link and no count of bytes: there are none here" in told.err
    assert "SLOW-LINK" not in told.out
    with pytest.raises(SystemExit) as ended:
        main("bsp", "slow-link", "2", out=tmp_path)
    assert ended.value.code == UsageError.exit_code


@pytest.mark.parametrize("policy", ["bsp", "adpsgd"])
def test_a_run_in_processes_trains_on_loopback_too(policy: str) -> None:
    found = run(config_of(Cell("ho", policy, 2), "digits", 1, 0.0, []))
    assert len(found.workers) == 2
    assert found.outcome.history[-1].final
    assert all(worked.steps > 0 and 0 < worked.idle < worked.seconds for worked in found.workers)
    assert [worked.traffic for worked in found.workers] == [None, None]


def test_a_process_that_fails_ends_the_run_with_its_name() -> None:
    config = config_of(Cell("ho", "bsp", 2), "digits", 1, 0.0, [])
    with pytest.raises(TryAgain, match="worker-0 ended early; its own message is above"):
        run(config.model_copy(update={"batch_size": 100_000}))


@pytest.mark.timeout(240)
def test_the_command_compares_clusters_for_real(tmp_path: Path, capsys: Any) -> None:
    if why := missing():
        pytest.skip(why)

    main("bsp,adpsgd", "ho,slow-link", "2", epochs=1, step=0.01, link=0.5, accuracy=0.5, out=tmp_path)

    head, _, names, _, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith(
        "task digits, 2 servers, where the policy has some, 1 epochs, rate 0.05, seed 0, step 10 ms, slow link 0.5"
    )
    rows = [dict(zip(names.strip("| ").split(" | "), line.strip("| ").split(" | "), strict=True)) for line in lines[:4]]
    assert [(one["cluster"], one["policy"]) for one in rows] == [
        ("HO", "bsp"),
        ("HO", "adpsgd"),
        ("SLOW-LINK", "bsp"),
        ("SLOW-LINK", "adpsgd"),
    ]
    assert float(rows[2]["seconds"]) > 1.5 * float(rows[0]["seconds"])
    assert all(float(one["KB a step, last worker"]) > 19 for one in rows)
    assert (tmp_path / "accuracy.png").read_bytes().startswith(PNG)
    assert (tmp_path / "speed-up.png").read_bytes().startswith(PNG)


def test_lines_of_the_codecs_table_are_chosen_by_their_names() -> None:
    assert chosen_of(["push int8", "push none"]) == [{"push": "int8"}, {"push": "none"}]
    assert {"push": "sign"} in chosen_of(None)
    with pytest.raises(UsageError, match="There is no line 'push int9'; expected some of: push none; "):
        chosen_of(["push int9"])
