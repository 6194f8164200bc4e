"""What an hour of a worker and of a server costs, as people write it: "worker=0.35/h, server=0.10/h"."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.core.errors import UsageError

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of what a price is for."""
_CURRENCY = r"[A-Za-z]{1,4}|[^\w\s.,=/%-]"
_PRICE = re.compile(
    rf"(?P<before>{_CURRENCY})?\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<after>{_CURRENCY})?(?:/(?P<unit>\w+))?(?:-(?P<off>\d+)%)?"
)
_EXAMPLE = '"worker=0.35/h, server=0.10/h"'


@dataclass(frozen=True, slots=True)
class Prices:
    """What each process costs while it trains."""

    worker: float
    """In `currency` a second, as `server`."""
    server: float
    currency: str
    """As the user writes it; '' where nobody said."""

    def of(self, workers: int, servers: int, seconds: float) -> float:
        """What that many processes cost in that time."""
        return (workers * self.worker + servers * self.server) * seconds

    def shown(self, cost: float) -> str:
        """For people: two digits behind the point, more of small sums."""
        digits = f"{cost:,.2f}" if cost >= 1 else f"{cost:.2g}"
        return f"{digits} {self.currency}".rstrip()


def read_prices(text: str) -> Prices:
    """The prices of '--price'. UsageError: what was seen, and what to write."""
    found: dict[str, tuple[float, str]] = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        who, equals, price = (part.strip() for part in entry.partition("="))
        if not equals or who not in ("worker", "server") or who in found:
            raise UsageError(f"--price {entry}: expected one price for each of worker and server, like {_EXAMPLE}.")
        found[who] = _price(who, price)
    if missing := {"worker", "server"} - found.keys():
        (name, *_) = sorted(missing)
        raise UsageError(f"--price gives none for a {name}. Add {name}=0.10/h, or {name}=0/h where it costs nothing.")
    return Prices(found["worker"][0], found["server"][0], _currency(found))


def _price(who: str, text: str) -> tuple[float, str]:
    """Price of a second, and its currency."""
    match = _PRICE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--price {who}={text}: expected a number and a unit of time, like {who}=0.35/h; a discount comes behind it: "
            f"{who}=0.35/h-60%."
        )
    if match["unit"] not in UNITS:
        seen = f"/{match['unit']} is none" if match["unit"] else "no unit of time"
        raise UsageError(
            f"--price {who}={text}: {seen}; write what the price is for, like {who}={match['number']}/h ({', '.join(UNITS)})."
        )
    off = int(match["off"] or 0)
    if off > 100:
        raise UsageError(f"--price {who}={text}: a discount is at most 100%.")
    price = float(match["number"]) * (1 - off / 100) / UNITS[match["unit"]]
    return price, match["before"] or match["after"] or ""


def _currency(found: Mapping[str, tuple[float, str]]) -> str:
    """The one that all prices share; those of 0 have none."""
    named = {currency for price, currency in found.values() if price and currency}
    if len(named) > 1:
        raise UsageError(f"--price has two currencies ({', '.join(sorted(named))}); write both prices in one.")
    return next(iter(named), "")
