"""Prices as people write them."""

import pytest

from paceline.core.errors import UsageError
from paceline.studies.planning.prices import read_prices


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
