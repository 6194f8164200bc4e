"""Every command and piece of code in README and docs is one that Paceline takes; `make docs-blocks` runs them, too, and
compares what they print with what the page says."""

from pathlib import Path

import pytest

from paceline.settings.own_extensions import OWN, OwnExtensions
from tools.doc_blocks.blocks import Mark, blocks
from tools.doc_blocks.checks import problems
from tools.doc_blocks.folder import fill
from tools.doc_blocks.printed import differs, text_behind
from tools.doc_blocks.running import runnable
from tools.doc_blocks.shell import commands
from tools.prose.pages import ROOT, Page, page_files, parse, read_page

FENCE = "```"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working folder of a page's blocks; what they load themselves is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    for name, value in vars(OwnExtensions()).items():
        monkeypatch.setattr(OWN, name, value)
    return tmp_path


def wrong(page: Page, folder: Path) -> list[str]:
    found = list(blocks(page))
    fill(folder, found)
    return [f"{block.location}: {said}" for block in found for said in problems(block, folder)]


def of_text(language: str, text: str, mark: str = "") -> Page:
    return parse("docs/x", f"{mark}\n{FENCE}{language}\n{text}\n{FENCE}\n")


@pytest.mark.parametrize("page", page_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_blocks_of_a_page_are_right(page: Path, folder: Path) -> None:
    found = wrong(read_page(page), folder)

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("", "make demo", "say what it is"),
        ("sh", "paceline run digits --polcy ssp", "No such option: --polcy"),
        ("sh", "true && .venv/bin/paceline run digits --set polivy=ssp  # it says", "Did you mean 'policy'"),
        ("sh", "paceline launch -w 2 nowhere.py", "no Python file nowhere.py"),
        ("sh", "paceline search digits --grid optimizer.lrr=1,2", "optimizer.lrr"),
        ("sh", "paceline set RUN policy.bond=5", "policy.bond"),
        ("console", "$ paceline rum digits\nsome output", "there is no command rum"),
        ("sh", "for i in 1 2; do", "syntax error"),
        ("sh", "make demos", "no target demos"),
        ("sh", "python -m paceline_papers.experiments.nowhere", "no module paceline_papers.experiments.nowhere"),
        ("yaml", "polivy: ssp", "polivy"),
        ("python", "import paceline\npaceline.train_it()", "no paceline.train_it"),
        ("python", "paceline.wrap(1, model, accumulated=4)", "takes no accumulated"),
        ("python", "for", "SyntaxError"),
        ("toml", "a = ", "TOMLDecodeError"),
        (
            "diff",
            "--- examples/scripts/cnn_plain.py\n+++ examples/scripts/cnn.py\n-import pandas",
            "its line is not in",
        ),
        ("dockerfile", "FROM scratch", "can't be run: say so"),
    ],
)
def test_what_is_wrong_is_found(language: str, text: str, words: str, folder: Path) -> None:
    (found, *_) = wrong(of_text(language, text), folder)

    assert words in found


def test_a_mark_says_why_in_more_than_a_word(folder: Path) -> None:
    assert wrong(of_text("sh", "true", "<!-- not run: no -->"), folder) == [
        "docs/x:2: a mark 'not run' gives no reason: 'no'"
    ]


def test_a_mark_names_a_word_that_is_there(folder: Path) -> None:
    assert wrong(of_text("sh", "true", "<!-- not run (cifar10): no such data -->"), folder) == [
        "docs/x:2: no line has 'cifar10', which a mark names"
    ]


def test_yaml_for_something_else_is_marked(folder: Path) -> None:
    assert wrong(of_text("yaml", "kind: Pod", "<!-- not run: a manifest for kubectl -->"), folder) == []


def test_lines_that_a_mark_names_are_left_out() -> None:
    mark = "<!-- not run (cifar10): no such data -->"
    (block,) = blocks(of_text("sh", "paceline run digits \\\n  -w 2\npaceline run cifar10", mark))

    assert block.marks == (Mark("cifar10", "no such data"),)
    assert runnable(block).split() == ["paceline", "run", "digits", "-w", "2"]


def test_a_mark_belongs_to_the_block_behind_it_alone() -> None:
    text = f"<!-- not run: a drawing -->\nWords.\n\n{FENCE}sh\ntrue\n{FENCE}\n\n<!-- not run: the next -->\n"

    (first, second) = blocks(parse("docs/x", text + f"\n{FENCE}sh\nfalse\n{FENCE}\n"))

    assert (first.why_not, second.why_not) == (None, "the next")


def test_commands_are_cut_at_what_separates_them() -> None:
    text = "# a comment\nA=1 paceline run 'x y' | tee out && make demo; srun paceline join  # c\nfor i in a; do echo $i; done"

    assert list(commands(text)) == [
        ["paceline", "run", "x y"],
        ["tee", "out"],
        ["make", "demo"],
        ["paceline", "join"],
        ["for", "i", "in", "a"],
        ["echo", "$i"],
        ["done"],
    ]


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
