"""The chart of a recorded run (benchmarks/chart.py)."""

import pytest

from benchmarks.chart import draw, medians
from paceline.core.errors import UsageError

LOG = """# Benchmark results

## 2026-01-01 10:00 UTC

| contender | shape | median | min | n | CPU s/GB | faults/GB | remark |
| --- | --- | --- | --- | --- | --- | --- | --- |
| lane-asp | W2S1 | 0.159 | 0.141 | 10 | 0.72 | 17 |  |
| gloo | W2S1 | 0.253 | 0.119 | 10 | 0.65 | 678 |  |
| torch-rpc | W2S1 |  |  | 0 |  |  | ended: no port |
| gloo | W4S1 | 0.316 | 0.280 | 10 | 0.78 | 996 |  |

| # | measure (lower is better) | median | min | must | goal | reached |
| --- | --- | --- | --- | --- | --- | --- |
| 3 | fp32 W1S1 / torch RPC | 1.30 | 1.18 | 1.30 | 1.00 | must |

## 2026-01-02 10:00 UTC

| contender | shape | median |
| --- | --- | --- |
| ray | W2S1 | 0.100 |
"""


def test_the_medians_of_one_run_and_shape_are_read() -> None:
    assert medians(LOG, "2026-01-01 10:00 UTC", "W2S1") == {"Paceline, asp": 0.159, "Gloo allreduce": 0.253}


def test_a_run_that_is_not_in_the_log_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="2026-01-01 10:00 UTC, 2026-01-02 10:00 UTC"):
        medians(LOG, "yesterday", "W2S1")


def test_the_quickest_contender_is_on_top() -> None:
    axes = draw(medians(LOG, "2026-01-01 10:00 UTC", "W2S1")).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Paceline, asp", "Gloo allreduce"]
