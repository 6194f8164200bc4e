"""The table of link speed and codec: its plan, its figures, and one tiny real run."""

from typing import Any

import pytest

from benchmarks.links import Cell, LinkResult, judged, main, planned, rates, seconds_per_step, seconds_to, settings
from paceline.core.chief.scoring import Score
from paceline.core.errors import UsageError
from paceline_papers.reproduce.network import UNLIMITED, Traffic, missing
from paceline_papers.reproduce.processes import Outcome, Ran, Worked

FAST, SLOW = 1e9, 5e7


def test_every_codec_is_planned_at_every_speed() -> None:
    codecs, speeds = (("none", "none"), ("sign", "int8")), (SLOW, UNLIMITED)
    assert planned("none,sign:int8", "0.05,unlimited") == [Cell(*codec, speed) for speed in speeds for codec in codecs]


@pytest.mark.parametrize("speed", ["0", "-1", "fast", "nan", ""])
def test_a_speed_that_is_none_is_refused(speed: str) -> None:
    with pytest.raises(UsageError, match=r"--speeds: got .*; expected Gbit/s above 0, or 'unlimited', with commas"):
        planned("none", speed)


def test_a_wrong_option_of_the_command_ends_with_the_usage_code(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(speeds="0.1,much")
    assert ended.value.code == UsageError.exit_code
    assert "got 'much'" in capsys.readouterr().err


def test_the_workers_links_have_the_speed_and_the_servers_link_has_none() -> None:
    assert rates(SLOW, 2) == {"servers": UNLIMITED, "worker-0": SLOW, "worker-1": SLOW}


def test_a_cell_is_a_run_in_lock_step_with_its_codecs() -> None:
    config = settings(Cell("topk", "int8", FAST), "digits", 2, 3, 8)
    assert (config.policy.name, config.epochs, config.batch_size) == ("bsp", 3, 8)
    assert (config.codec.push.name, config.codec.pull.name) == ("topk", "int8")


def found(step: float, reached: float | None, megabytes: float = 9.0) -> LinkResult:
    return LinkResult(step, megabytes, reached, 0.95)


def test_ratios_are_to_the_first_codec_at_the_same_speed() -> None:
    none, sign = (("none", "none"), ("sign", "int8"))
    cells = {
        Cell(*none, SLOW): found(1.0, 20.0),
        Cell(*sign, SLOW): found(0.25, 5.0, 1.3),
        Cell(*none, FAST): found(0.1, 2.0),
        Cell(*sign, FAST): found(0.15, 4.0, 1.3),
    }

    assert seconds_per_step(cells) == (
        ["seconds per step", "MB a step", "0.05 Gbit/s", "1 Gbit/s"],
        [
            ["none", "9.00", "1.000 (1.00)", "0.100 (1.00)"],
            ["sign, pull int8", "1.30", "0.250 (0.25)", "0.150 (1.50)"],
        ],
    )
    assert seconds_to(cells, 0.9) == (
        ["seconds to 0.9", "0.05 Gbit/s", "1 Gbit/s", "accuracy at the end"],
        [
            ["none", "20.0 (1.00)", "2.0 (1.00)", "0.9500"],
            ["sign, pull int8", "5.0 (0.25)", "4.0 (2.00)", "0.9500"],
        ],
    )


def test_an_accuracy_that_was_not_reached_has_no_time_and_is_no_base() -> None:
    cells = {Cell("none", "none", FAST): found(1, None), Cell("topk", "none", FAST): found(1, 3.0)}
    assert [row[1] for row in seconds_to(cells, 0.9)[1]] == ["not reached", "3.0"]


def test_a_runs_figures_are_means_over_all_steps() -> None:
    reached = ((1, 0.5), (2, 0.9), (3, 0.8))
    scores = [Score(epoch, epoch * 2.0, [0], {"test_accuracy": accuracy}) for epoch, accuracy in reached]
    workers = [
        Worked(30, 6.0, 1.0, Traffic(30_000_000, 60_000_000), []),
        Worked(10, 6.0, 5.0, Traffic(10_000_000, 20_000_000), []),
    ]
    ran = Ran(Outcome({"test_accuracy": 0.8}, 6.0, scores), workers)
    assert judged(ran, 0.9) == LinkResult(0.3, 3.0, 4.0, 0.8)
    assert judged(ran, 0.95).reached is None


@pytest.mark.nightly  # real exchanges over slow links, for a benchmark that nothing else starts
def test_a_codec_shrinks_what_goes_over_a_slow_link(capsys: Any) -> None:
    if why := missing():
        pytest.skip(why)
    main(speeds="0.002", codecs="none,sign:int8", epochs=1, batch=128, task="digits", accuracy=0.0)

    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    none, sign = lines[2:4]
    assert lines[0] == ["seconds per step", "MB a step", "0.002 Gbit/s"]
    assert [none[0], sign[0]] == ["none", "sign, pull int8"]
    assert float(none[1]) > 2 * float(sign[1]) > 0, "the start is in it too, which has no codec"
    assert float(none[2].split()[0]) > 2 * 19240 * 8 / 2e6 * 0.8, "a push and a pull of 19 KB at 2 Mbit/s"
    assert float(sign[2].split()[0]) > 0
