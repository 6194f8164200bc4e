"""onehot: a feature for each frequent text of a column, and one for all others."""

from typing import Any

import numpy as np

from paceline_papers.baseline.encoding import (
    MOST,
    Encoding,
    assembled,
    columns,
    index_arrays,
    indexed,
    number_arrays,
    scaled,
)
from paceline_papers.baseline.split import Split


class Onehot(Encoding):
    """Sparse rows with a 1 for each column of texts; numbers are from 0 to 1."""

    def stages(self, split: Split) -> list[Any]:
        from pyspark.ml.feature import OneHotEncoder

        out = columns("onehot", split.texts)
        encoder = OneHotEncoder(inputCols=columns("index", split.texts), outputCols=out, dropLast=False)
        return [*indexed(split), *scaled(split), encoder, assembled(*out, *columns("scaled", split.numbers))]

    def arrays(self, split: Split) -> tuple[Any, Any]:
        from scipy.sparse import csr_array, hstack
        from sklearn.preprocessing import OneHotEncoder

        (train, test), numbers = index_arrays(split), number_arrays(split)
        encoder = OneHotEncoder(categories=[np.arange(MOST + 2)] * len(split.texts), dtype=np.float64).fit(train)
        own, other = (
            csr_array(hstack([encoder.transform(codes), scaled]))
            for codes, scaled in zip((train, test), numbers, strict=True)
        )
        return own, other
