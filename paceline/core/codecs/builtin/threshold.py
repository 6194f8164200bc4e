"""Strom's codec: what has grown to a threshold is sent, all else waits in the residual until it has."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from paceline.core.codecs.codec import Bytes, numbers_at
from paceline.core.codecs.sparse_codec import Places, SparseCodec, distances, wanted
from paceline.core.extension import SettingsRule
from paceline.core.values import Vector

_DENSE, _FULL, _QUANTISED = range(3)
"""The second uint32 of a part."""


class Threshold(SparseCodec):
    """[Strom 2015; Actors 2.3]: sends x_k where |x_k| >= tau. `full` [Actors] sends x_k itself, about 5 bytes each, or all
    values where that is not longer; `quantised` [Strom] sends +-tau, 1 to 2 bytes each, and the residual keeps the rest."""

    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda codec, config: codec.tau is not None and "share" in codec.model_fields_set,
            "{key}: tau is {own.tau:g} and share is {own.share:g}; the threshold follows one of them: set one.",
        ),
    )
    tau: float | None = Field(
        None, gt=1e-30, lt=1e30, description="The threshold, in gradient units; default: the one that makes `share`."
    )
    form: Literal["full", "quantised"] = Field(
        "full", description="full: the values themselves; quantised: only their signs, each stands for tau."
    )

    @property
    def goes_by_share(self) -> bool:
        return self.tau is None

    def most_bytes(self, elements: int) -> int:
        return 12 + 4 * elements if self.form == "full" else 16 + elements

    def _encode(self, values: Vector, out: Bytes) -> int:
        from paceline.core.codecs import codec_loops as loops

        tau = self._least(values) if self.tau is None else loops.bits_of(self.tau)
        places, found = loops.reaching(values, tau)
        head, body = numbers_at(out, 0, np.uint32, 2), out[8:]
        if self.form == "quantised":
            head[:] = len(values), _QUANTISED
            return 8 + self._write_signs(places, found, tau, body)
        if 5 * len(places) + len(values) // 128 < 4 * len(values):  # the most that places and values may take
            head[:] = len(values), _FULL
            return 8 + self._write_pairs(places, found, body)
        head[:] = len(values), _DENSE
        numbers_at(body, 0, np.float32, len(values))[:] = values
        return 8 + 4 * len(values)

    def _least(self, values: Vector) -> int:
        """Bit pattern of the magnitude that gives the share. It is above 0: if most values are 0, a bound of 0 would send them
        all."""
        from paceline.core.codecs import codec_loops as loops

        if found := loops.sampled_magnitude(values, self.share):
            return found
        _, largest = loops.largest(values, wanted(self.share, len(values)))
        return loops.bits_of(np.abs(largest).min()) if len(largest) else 1

    def _write_signs(self, places: np.ndarray, chosen: Vector, tau: int, out: Bytes) -> int:
        """How many (uint32), tau (float32), and for each the distance to its place, doubled, plus 1 where it is negative."""
        from paceline.core import kernels
        from paceline.core.codecs import codec_loops as loops

        numbers_at(out, 0, np.uint32, 2)[:] = len(places), tau if kernels.all_finite(chosen) else loops.NAN
        codes: np.ndarray = distances(places) << 1 | np.signbit(chosen)
        return 8 + loops.write_varints(codes, out[8:])

    def _read(self, data: Bytes, elements: int) -> tuple[Places, Vector]:
        form, body = self._number(data, 1), data[8:]
        if form == _FULL:
            return self._read_pairs(body, elements)
        if form == _QUANTISED:
            return self._read_signs(body, elements)
        if form == _DENSE and len(body) == 4 * elements:
            return slice(None), self._finite(numbers_at(body, 0, np.float32, elements))
        raise self._broken(f"its form is {form}, with {len(body):,} bytes for {elements:,} values")

    def _read_signs(self, data: Bytes, elements: int) -> tuple[Places, Vector]:
        count, bits = self._number(data), self._number(data, 1)
        tau = self._finite(np.array([bits], np.uint32).view(np.float32))
        codes = self._codes(data[8:], count)
        return self._places(codes >> 1, elements), np.where(codes & 1, -tau, tau)
