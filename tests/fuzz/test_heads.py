"""Heads and requests with anything in their fields end no server, and make no number NaN."""

import random

import pytest

from tests.fuzz.cases import scratch
from tests.fuzz.heads import HEADS, run

CASES = 400
"""On each transport; `make chaos` sends more."""


@pytest.mark.parametrize("name", HEADS)
def test_no_head_ends_a_server_or_makes_a_number_nan(name: str) -> None:
    with scratch() as folder:
        spent = run(HEADS[name], CASES, random.Random(7), folder)
    assert spent.said["BadPush"] > CASES // 4
    assert spent.said[""] > CASES // 10, "some are taken"
