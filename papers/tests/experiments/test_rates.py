"""rates.py: the line of each training, with the settings that it had."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from paceline_papers.experiments.rates import main


def test_each_rate_of_the_grid_is_trained_by_plain_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main("digits", "0.1,1e-9", momenta="0.9", epochs=2, out=tmp_path)

    good, none = capsys.readouterr().out.splitlines()
    assert good.startswith("digits rate 0.1 momentum 0.9 seed 0: ")
    assert none.startswith("digits rate 1e-9 momentum 0.9 seed 0: ")
    assert float(good.rpartition(" ")[2]) > 0.5 > float(none.rpartition(" ")[2])
