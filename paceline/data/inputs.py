"""What a model was trained on, kept with it, so that `paceline predict` gives it examples of the same form."""

import math

import numpy as np
from pydantic import Field, ValidationError

from paceline.core.errors import DataError
from paceline.core.settings.config import Section
from paceline.core.stored_format import check_format
from paceline.data.columns import Columns
from paceline.data.dataset import Dataset, is_class_label, is_sparse, values_of
from paceline.data.manifest import Manifest

KEY = "inputs"
"""Where a model's file has them among its metadata (JSON)."""
FORMAT_KEY = "paceline_format"
"""Where it says the form of its metadata; its tensors are the model's own, which plain torch reads."""
FORMAT = 1


class Inputs(Section):
    """The form of the examples that a model learned from."""

    shape: tuple[int, ...] = Field(description="Of one example's features.")
    dtype: str = Field(description="numpy's name of the features' element type.")
    sparse: bool = Field(description="Whether features are sparse rows.")
    label_shape: tuple[int, ...] = Field((), description="Of one label; () where it is one number.")
    label_dtype: str = Field(description="numpy's name of the labels' element type.")
    classes: tuple[str, ...] | None = Field(
        None, description="What class 0, 1 and so on are called, where it is known."
    )
    columns: Columns | None = Field(None, description="Those of the table that the features are from.")

    @classmethod
    def of(cls, manifest: Manifest) -> "Inputs":
        """Of a model that is trained on these shards."""
        shard = manifest.shards[0]
        labels, features = shard.files["labels"], shard.files["features" if shard.columns is None else "values"]
        return cls(
            shape=features.shape[1:] if shard.columns is None else (shard.columns,),
            dtype=features.dtype,
            sparse=shard.columns is not None,
            label_shape=labels.shape[1:],
            label_dtype=labels.dtype,
            classes=manifest.classes,
            columns=manifest.columns,
        )

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> "Inputs":
        """Of a model that is trained on these examples themselves."""
        features, labels = dataset.train.features, dataset.train.labels
        return cls(
            shape=features.shape[1:],
            dtype=values_of(features).dtype.str,
            sparse=is_sparse(features),
            label_shape=labels.shape[1:],
            label_dtype=labels.dtype.str,
            classes=dataset.classes,
            columns=dataset.columns,
        )

    @classmethod
    def read(cls, facts: dict[str, str]) -> "Inputs | None":
        """Those in the metadata of a model's file; None where it has none. DataError where they can't be read, TooNew where a
        newer release wrote them."""
        number = facts.get(FORMAT_KEY, str(FORMAT))
        check_format(
            "The model's file",
            int(number) if number.isdecimal() else number,
            FORMAT,
            "read its tensors without Paceline (safetensors)",
        )
        try:
            return cls.model_validate_json(facts[KEY]) if KEY in facts else None
        except ValidationError as error:
            raise DataError(f"Can't read what the model's file says about its inputs: {facts[KEY]:.80}") from error

    @property
    def facts(self) -> dict[str, str]:
        """For the metadata of the model's file."""
        return {KEY: self.model_dump_json(exclude_defaults=True), FORMAT_KEY: str(FORMAT)}

    @property
    def size(self) -> int:
        """Numbers in one example."""
        return math.prod(self.shape)

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes and no numbers."""
        return is_class_label(np.empty((0, *self.label_shape), self.label_dtype))
