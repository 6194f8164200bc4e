"""given: the features as a folder of shards has them."""

from typing import Any

import numpy as np

from paceline_papers.baseline.encoding import Encoding
from paceline_papers.baseline.split import INDICES, VALUES, Split


class GivenRows(Encoding):
    """Sparse rows; nothing is fitted."""

    def stages(self, split: Split) -> list[Any]:
        from paceline_papers.baseline.stages.vectors import Vectors

        return [Vectors(split.width)]

    def arrays(self, split: Split) -> tuple[Any, Any]:
        from scipy.sparse import csr_array

        def rows(part: str) -> Any:
            table = split.columns(part).combine_chunks()
            indices, values = (table[name].combine_chunks() for name in (INDICES, VALUES))
            starts = np.asarray(indices.offsets)
            own = np.asarray(values.flatten()), np.asarray(indices.flatten()), starts - starts[0]
            return csr_array(own, shape=(len(table), split.width))

        return rows("train"), rows("test")
