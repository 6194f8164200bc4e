"""The examples of hidden_strata.py with their strata as labels, 0 to 6, of which 6 is the rare kind: to see in a report how
evenly shards spread them, or to deal by them (data.strategy.by).

paceline report shards/random shards/stratified --by hidden_strata_groups.py
"""

import runpy
from pathlib import Path

from paceline.extend import Dataset, Labelled

hidden_strata = runpy.run_path(str(Path(__file__).with_name("hidden_strata.py")))
model = hidden_strata["model"]


def data(path: str) -> Dataset:
    """The same features; labels 0 to 6."""
    train, validation, test = (Labelled(*examples) for examples in hidden_strata["made"](path))
    return Dataset(train=train, validation=validation, test=test)
