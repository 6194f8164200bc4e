"""What a page says that a command prints is compared with what it printed."""

import pytest

from tools.doc_blocks.blocks import blocks
from tools.doc_blocks.printed import differs, text_behind
from tools.prose.pages import parse

FENCE = "```"
PRINTED = """starting run digits-ssp-20261123-130650 in runs/x: digits, ssp, workers 4
  0.0 s  writing shards
 10.0 s  starting 4 workers
training 0%, elapsed 450 ms, ssp
finished 100%, elapsed 4.5 s, 2,822 examples/s, \x1b[1mloss 0.0367\x1b[0m
test accuracy 0.9630
"""


@pytest.mark.parametrize(
    "shown",
    [
        PRINTED,
        "starting run digits-ssp-20270101-000000 in runs/x:\n  digits, ssp, workers 2\n  0.1 s  writing shards",
        "  0.0 s  writing shards\n...\ntest accuracy 0.95",
        "training 3%, elapsed 2.5 min, ...\nfinished 100%, ...",
        "finished 100%, elapsed 12 s, 1,000,000 examples/s, loss 1",
    ],
)
def test_numbers_line_breaks_and_what_dots_stand_for_are_free(shown: str) -> None:
    assert differs(shown, PRINTED) is None


def test_lines_of_grpcs_own_log_are_left_out() -> None:
    log = "I1123 22:17:30.901090   13478 chttp2_transport.cc:1403] ipv4:127.0.0.1:1: Got goaway [2]\n"

    assert differs(PRINTED, PRINTED.replace("training", log + "training")) is None


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("test precision 0.9630", "test precision"),
        ("  0.0 s  writing shards\ntest accuracy 0.9630", "0 s writing shards test"),
        ("test accuracy 0.9630\n...\n  0.0 s  writing shards", "0"),
        ("test accuracy 0.9630 after 4 s", "test accuracy 0 after"),
        ("starting run digits-bsp-20261123-130650", "starting run digits-bsp-0-0"),
    ],
)
def test_other_words_other_orders_and_lines_left_out_silently_are_found(shown: str, told: str) -> None:
    assert differs(shown, PRINTED) == told


@pytest.mark.parametrize(
    ("between", "language", "is_compared"),
    [
        ("It prints:", "text", True),
        ("<!-- not run: another model -->", "text", False),
        ("And:", "sh", False),
        (f"{FENCE}yaml\na: 1\n{FENCE}", "text", False),
    ],
)
def test_the_next_block_is_compared_where_it_is_text_without_a_mark(
    between: str, language: str, is_compared: bool
) -> None:
    page = parse("docs/x", f"{FENCE}sh\ntrue\n{FENCE}\n\n{between}\n\n{FENCE}{language}\ndone\n{FENCE}\n")
    first, *_, last = found = list(blocks(page))

    assert text_behind(found, first) == (last if is_compared else None)
