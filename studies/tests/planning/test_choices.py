"""Which ways to run a plan looks at, and prices as people write them."""

from typing import Any

import pytest

from paceline.core.errors import ConfigError, UsageError
from paceline.settings.flags import Flags
from paceline_studies.planning.choices import ChosenSizes, choices, shorthand
from paceline_studies.planning.prices import read_prices
from paceline_studies.planning.readers import TaskReader


def found(
    what: str = "digits", asked: ChosenSizes | None = None, **words: Any
) -> tuple[list[tuple[str, int, int]], list[str]]:
    read = TaskReader(what, Flags(**words))
    asked = asked or ChosenSizes()
    ways, refused = choices(asked, asked.own(read), read)
    return [(way.policy, way.workers, way.servers) for way in ways], refused


def test_without_a_word_the_plan_looks_around_the_runs_own_settings() -> None:
    ways, refused = found()

    assert {way[1] for way in ways} == {1, 2, 4, 8}
    assert {way[2] for way in ways} == {1, 2}
    assert {way[0] for way in ways} == {"auto", "asp", "shat"}  # auto begins as bsp
    assert {way[0] for way in ways if way[1] == 1} == {"auto"}  # alone there is nobody to wait for
    assert not refused


def test_the_plan_looks_at_what_the_user_names_and_at_nothing_else() -> None:
    ways, _ = found(asked=ChosenSizes.of("2,4", "1", "bsp,ssp:3"))

    assert ways == [("bsp", 2, 1), ("ssp:3", 2, 1), ("bsp", 4, 1), ("ssp:3", 4, 1)]


def test_policies_without_servers_stand_next_to_those_with() -> None:
    ways, _ = found(asked=ChosenSizes.of("4", "2", "bsp,adpsgd"))

    assert ways == [("bsp", 4, 2), ("adpsgd", 4, 0)]


def test_without_servers_the_plan_looks_at_the_policies_that_need_none() -> None:
    ways, refused = found(asked=ChosenSizes.of("4", "0", None))

    assert ways == [("allreduce", 4, 0), ("adpsgd", 4, 0)]
    assert not refused


def test_a_way_that_can_not_run_is_left_out_with_its_reason() -> None:
    ways, refused = found(asked=ChosenSizes.of("1,4", "1", "backup:2"))

    assert ways == [("backup:2", 4, 1)]
    assert refused[0].startswith("backup:2 with 1 workers and 1 servers: ")


def test_where_nothing_can_run_the_reason_is_the_error() -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        found(asked=ChosenSizes.of(None, None, "nosuch"))


def test_the_policy_of_the_settings_is_told_in_its_short_form() -> None:
    flags = Flags(sets=["policy=local_sgd:8"])

    assert shorthand(TaskReader("digits", flags)(None, None, None)) == "local_sgd:8"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("0", None, None), r"--workers 0: expected whole numbers of 1 or more, like 4 or 2,4,8"),
        (("2,x", None, None), r"--workers 2,x"),
        ((None, "-1", None), r"--servers -1: expected whole numbers of 0 or more"),
        ((None, None, "bsp,,asp"), r"--policy bsp,,asp: expected one or more policies"),
    ],
)
def test_lists_that_can_not_be_read_are_refused(words: tuple[str | None, str | None, str | None], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ChosenSizes.of(*words)


def test_a_price_is_of_each_process_and_of_its_time() -> None:
    prices = read_prices("worker=0.36/h, server=0.072/h")

    assert prices.of(4, 2, 1800) == pytest.approx(4 * 0.18 + 2 * 0.036)


@pytest.mark.parametrize(
    ("text", "cost", "shown"),
    [
        ("worker=$36/h,server=0/h", 0.01, "0.01 $"),
        ("worker=36 EUR/h, server=0/h", 0.01, "0.01 EUR"),
        ("worker=0.6€/min, server=0€/s", 0.01, "0.01 €"),
        ("server=1/d, worker=36/h-60%", 0.004 + 1 / 86400, "0.004"),
        ("worker=7200/h, server=0/h", 2.0, "2.00"),
    ],
)
def test_a_price_may_have_a_currency_and_a_discount(text: str, cost: float, shown: str) -> None:
    prices = read_prices(text)

    assert prices.of(1, 1, 1) == pytest.approx(cost)
    assert prices.shown(prices.of(1, 1, 1)) == shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("worker=0.35, server=0.1/h", r"worker=0\.35: no unit of time; .* worker=0\.35/h \(s, min, h, d\)"),
        ("worker=0.35/month, server=0.1/h", r"/month is none"),
        ("worker=-1/h, server=0.1/h", r"worker=-1/h: expected a number"),
        ("worker=cheap/h, server=0.1/h", r"expected a number"),
        ("worker=0.35/h", r"none for a server\. Add server=0\.10/h, or server=0/h"),
        ("workers=0.35/h, server=0.1/h", r"--price workers=0\.35/h: expected one price for each of worker and server"),
        ("worker=1/h, worker=2/h, server=1/h", r"expected one price for each"),
        ("0.35/h", r"expected one price for each"),
        ("", r"none for a server"),
        ("worker=$1/h, server=1 EUR/h", r"two currencies \(\$, EUR\)"),
        ("worker=1/h-200%, server=1/h", r"at most 100%"),
    ],
)
def test_a_price_that_can_not_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_prices(text)
