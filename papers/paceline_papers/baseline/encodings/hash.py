"""hash: every text of a column, however rare, has one of 4,096 places [Weinberger et al. 2009]; some share one."""

from typing import Any

import numpy as np

from paceline.data.hashing import hashed_rows, places
from paceline_papers.baseline.encoding import Encoding, assembled, columns, number_arrays, scaled
from paceline_papers.baseline.split import Split

BITS = 12


class Hash(Encoding):
    """Sparse rows; nothing of the texts is fitted. All engines have the same places, those of the sharder's tables."""

    def stages(self, split: Split) -> list[Any]:
        from paceline_papers.baseline.stages.hashed import Hashed

        return [
            Hashed(split.texts, "hashed", BITS),
            *scaled(split),
            assembled("hashed", *columns("scaled", split.numbers)),
        ]

    def arrays(self, split: Split) -> tuple[Any, Any]:
        def rows(part: str, numbers: Any) -> Any:
            table = split.columns(part)
            return hashed_rows((places(name, table[name], BITS) for name in split.texts), BITS, np.asarray(numbers))

        own, other = number_arrays(split)
        return rows("train", own), rows("test", other)
