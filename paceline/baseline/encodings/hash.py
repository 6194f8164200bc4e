"""hash: every text of a column, however rare, has one of 4,096 places [Weinberger et al. 2009]; some share one."""

from typing import Any

import numpy as np

from paceline.baseline.encoding import Encoding, assembled, columns, number_arrays, scaled
from paceline.baseline.split import Split

WIDTH = 4096


class Hash(Encoding):
    """Sparse rows; nothing of the texts is fitted. MLlib and scikit-learn hash differently."""

    def stages(self, split: Split) -> list[Any]:
        from pyspark.ml.feature import FeatureHasher

        hasher = FeatureHasher(inputCols=list(split.texts), outputCol="hashed", numFeatures=WIDTH)
        return [hasher, *scaled(split), assembled("hashed", *columns("scaled", split.numbers))]

    def arrays(self, split: Split) -> tuple[Any, Any]:
        from scipy.sparse import csr_array, hstack
        from sklearn.feature_extraction import FeatureHasher

        hasher = FeatureHasher(WIDTH, input_type="string", alternate_sign=False, dtype=np.float64)

        def hashed(part: str) -> Any:
            columns = split.columns(part).select(list(split.texts)).to_pydict()
            named = [[f"{name}={text}" for text in texts] for name, texts in columns.items()]
            return hasher.transform(zip(*named, strict=True))

        own, other = (
            csr_array(hstack([hashed(part), scaled]))
            for part, scaled in zip(("train", "test"), number_arrays(split), strict=True)
        )
        return own, other
