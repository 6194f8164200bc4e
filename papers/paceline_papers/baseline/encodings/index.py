"""index: a text is the number of its place by frequency, as [Survey]'s pipeline has it ("uses indexes"). A tree tells such
numbers apart one by one; linear models and naive Bayes take them for amounts."""

from typing import Any

import numpy as np

from paceline_papers.baseline.encoding import Encoding, assembled, columns, index_arrays, indexed, number_arrays, scaled
from paceline_papers.baseline.split import Split


class Index(Encoding):
    """One feature for each column."""

    def stages(self, split: Split) -> list[Any]:
        made = assembled(*columns("index", split.texts), *columns("scaled", split.numbers))
        return [*indexed(split), *scaled(split), made]

    def arrays(self, split: Split) -> tuple[Any, Any]:
        train, test = map(np.hstack, zip(index_arrays(split), number_arrays(split), strict=True))
        return train, test
