"""The benchmark of small exchanges, with real servers and hardly any exchanges."""

from benchmarks.exchange import GRPC, LANE, STOCK, measure, rows


def test_all_contenders_exchange_and_are_compared() -> None:
    seconds = measure(3, 2, 100)
    assert {name: len(taken) for name, taken in seconds.items()} == {LANE: 6, GRPC: 6, STOCK: 6}
    assert [(row.must, row.goal) for row in rows(seconds)] == [(0.5, 0.33), (None, None)]


def test_a_ratio_is_of_the_medians() -> None:
    found = rows({LANE: [1.0, 9.0, 2.0], GRPC: [8.0, 8.0, 1.0], STOCK: [4.0, 1.0, 9.0]})
    assert [row.value for row in found] == [0.5, 0.25]
