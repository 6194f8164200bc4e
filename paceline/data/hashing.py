"""Texts as places among a power of 2 of features, by their hash [Weinberger et al. 2009]: the same everywhere, and nothing is
fitted. Those of scikit-learn's `FeatureHasher(input_type="string", alternate_sign=False)` for "column=text"."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from paceline.data.dataset import Array, Rows

MISSING = "(none)"
"""The text of an empty cell."""
DATE_PARTS = ("month", "weekday", "hour")
"""What a date becomes, each a text."""


def feature_index(column: str, text: str, bits: int) -> int:
    """Of the text among 2**bits features. Thread-safe."""
    from sklearn.utils import murmurhash3_32

    return abs(int(murmurhash3_32(f"{column}={text}"))) % (1 << bits)


def places(column: str, texts: Any, bits: int) -> Rows:
    """Of each cell of an Arrow array of texts (N,); an empty one is `MISSING`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    found = pc.fill_null(whole, MISSING).dictionary_encode()
    own = np.array([feature_index(column, text, bits) for text in found.dictionary.to_pylist()], np.int64)
    return np.asarray(own[found.indices.to_numpy()], np.int64)


def parts_of_dates(column: str, dates: Any) -> dict[str, Any]:
    """Month, weekday and hour of an Arrow array of dates, as texts by the name 'column, part'; an empty one is `MISSING`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    made = (pc.month(dates), pc.day_of_week(dates), pc.hour(dates))
    return {
        f"{column}, {part}": pc.fill_null(values.cast(pa.string()), MISSING)
        for part, values in zip(DATE_PARTS, made, strict=True)
    }


def hashed_rows(each: Iterable[Rows], bits: int, numbers: Array) -> Any:
    """Sparse rows (N, 2**bits + numbers), a csr_array of float64: how often each place occurs among a row's places, and behind
    them its `numbers` (N, numbers). `each`: the places of one column after the other, (N,) each."""
    from scipy.sparse import csr_array

    together = np.column_stack(list(each))
    behind = np.broadcast_to((1 << bits) + np.arange(numbers.shape[1]), numbers.shape)
    values, together = np.hstack([np.ones(together.shape), numbers]), np.hstack([together, behind])
    rows, columns = together.shape
    shape = (rows, (1 << bits) + numbers.shape[1])
    found = csr_array((values.ravel(), together.ravel(), np.arange(rows + 1) * columns), shape)
    found.sum_duplicates()
    found.eliminate_zeros()
    return found
