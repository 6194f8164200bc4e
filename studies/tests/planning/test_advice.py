"""Which row a plan advises, and that its sentence says what the table says."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.settings.config import Config
from paceline_studies.planning.advice import ALIKE, LOOSER, advise
from paceline_studies.planning.choices import Choice
from paceline_studies.planning.rows import Row


def row(
    policy: str = "bsp",
    workers: int = 4,
    servers: int = 1,
    *,
    seconds: float = 100.0,
    staleness: float = 0.0,
    waiting: float = 0.0,
    cost: float | None = None,
    lacks: str = "",
) -> Row:
    config = Config.model_validate({"workers": workers, "servers": servers, "policy": {"name": policy}})
    choice = Choice(policy, False, config)
    return Row(choice, 1e5 / seconds, None, staleness, staleness, waiting, seconds, "", cost, lacks)


def test_of_rows_that_are_alike_the_fewest_workers_and_the_tightest_policy_are_advised() -> None:
    loose, more = row("asp", staleness=3.0, seconds=85), row(workers=8, seconds=83)
    rows = [loose, row(seconds=100), more, row(servers=2, seconds=99)]

    found = advise(rows)

    assert found is not None
    assert (found.row, found.fastest) == (rows[1], more)
    assert found.why == "bsp with 8 workers and 1 server is 1.20 times as fast; 8 workers are 1.20 times as fast"


def test_a_loose_policy_is_advised_where_the_tight_one_waits() -> None:
    slow, loose = row(seconds=300, waiting=0.6), row("asp", seconds=100, staleness=3.0)

    found = advise([slow, loose])

    assert found is not None
    assert found.row is loose
    assert "under bsp workers wait 60% of the time, and it takes 3 times as long" in found.why


def test_with_prices_the_time_that_more_workers_save_is_weighed_against_their_cost() -> None:
    one, four, eight = (
        row(workers=1, seconds=400, cost=4.0),
        row(seconds=110, cost=4.4),
        row(workers=8, seconds=100, cost=8.0),
    )

    found = advise([one, four, eight])

    assert found is not None
    assert (found.row, found.fastest, found.cheapest) == (four, eight, one)
    assert "it costs 1.10 times as much as bsp with 1 worker and 1 server, and is 3.64 times as fast" in found.why


def test_what_does_not_fit_on_the_machine_is_never_advised() -> None:
    fits = row(seconds=500)

    found = advise([row(workers=8, seconds=1, lacks="8 workers need 80 GiB of memory"), fits])

    assert found is not None
    assert found.row is found.fastest is fits
    assert advise([row(lacks="too much")]) is None


amounts = st.floats(1.0, 1e6)
rows_of_a_table = st.lists(
    st.builds(
        row,
        st.sampled_from(["bsp", "ssp", "asp", "shat"]),
        st.sampled_from([1, 2, 4, 8]),
        st.sampled_from([1, 2]),
        seconds=amounts,
        staleness=st.floats(0, 10),
        waiting=st.floats(0, 1),
        cost=amounts,
        lacks=st.sampled_from(["", "", "too much"]),
    ),
    min_size=1,
    max_size=12,
)


@given(rows_of_a_table, st.booleans())
def test_the_advice_never_contradicts_its_table(rows: list[Row], priced: bool) -> None:
    table = (
        rows
        if priced
        else [row(each.choice.policy, each.choice.workers, seconds=each.seconds, lacks=each.lacks) for each in rows]
    )
    able = [each for each in table if not each.lacks]

    found = advise(table)

    assert (found is None) == (not able)
    if found is None:
        return
    worth = [each.seconds * (each.cost or 1.0) for each in able]
    most = min(worth) * (1 + ALIKE) * (1 + LOOSER) * (1 + ALIKE)
    assert found.row.seconds * (found.row.cost or 1.0) <= most
    assert found.fastest.seconds == min(each.seconds for each in able)
    assert ("nothing here is faster" in found.why) == (found.row.seconds <= found.fastest.seconds * (1 + ALIKE))
    same = [each for each in able if each.choice.workers == found.row.choice.workers]
    for tighter in (each for each in same if round(each.staleness, 1) < round(found.row.staleness, 1)):
        assert tighter.seconds * (tighter.cost or 1.0) > min(worth) * (1 + ALIKE)
