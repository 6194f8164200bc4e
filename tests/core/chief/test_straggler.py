"""Who holds the others up is the slowest worker, where it is far behind."""

from paceline.core.chief.straggler import slow_workers, straggler


def test_the_slowest_of_uneven_workers_is_the_straggler_with_its_reason() -> None:
    found = straggler({"a": 0.01, "b": 0.08, "c": 0.012, "d": 0.01}, {"a": 3.0, "b": 0.1})

    assert found is not None
    assert str(found) == ("straggler: b is 8.0 times slower (80 ms a step, the others 10 ms); the others wait for it")


def test_nobody_need_wait_for_a_straggler() -> None:
    found = straggler({"a": 0.01, "b": 0.08}, {"a": 0.0, "b": 0.0})

    assert found is not None
    assert "wait" not in str(found)


def test_even_workers_one_worker_and_no_figures_have_no_straggler() -> None:
    assert straggler({"a": 0.01, "b": 0.014}, {}) is None
    assert straggler({"a": 1.0}, {}) is None
    assert straggler({"a": 0.0, "b": 1.0}, {}) is None
    assert straggler({}, {}) is None


def test_slow_is_who_takes_half_as_long_again_as_the_median() -> None:
    steps = {"a": 0.010, "b": 0.014, "c": 0.021, "d": 0.028, "e": 0.012}

    assert slow_workers(steps) == ["c", "d"]
    assert slow_workers(steps, factor=2.0) == ["d"]
    assert str(straggler(steps, {})).startswith("straggler: d ")
