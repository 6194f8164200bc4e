"""How the values of a slice travel: coded, but for those at its end that are no gradients and no weights."""

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.core.codecs.codec import Codec, Cut, Run, load_codec

_SMALL = 64 << 10
"""Of a part of statistics (bytes): no transport cuts it once more, which it would do as its codec says."""


@dataclass(frozen=True, slots=True)
class SliceCodec:
    """A codec for the slice's values up to `exact_from`. Behind it running statistics travel as float32: they are thousands of
    times as large as gradients, so that they would take a block's scale for themselves, or become infinite. No part has
    values of both kinds. Sender and receiver know `exact_from` by the plan and the run's optimizer
    (docs/understand/protocol.md)."""

    codec: Codec
    exact_from: int

    def fitted(self, runs: tuple[Run, ...]) -> "SliceCodec":
        """Returns the same for a slice that is made of these runs."""
        first, left = list[Run](), self.exact_from
        for run in runs:
            first += [Run(min(run.length, left), run.columns)] if left else []
            left -= min(run.length, left)
        return SliceCodec(self.codec.fitted(tuple(first)), self.exact_from)

    @property
    def lossless(self) -> bool:
        return self.codec.lossless

    def at(self, element: int) -> Codec:
        """Returns the codec of a part that begins with this element."""
        return self.codec if element < self.exact_from else load_codec("none")

    def cuts(self, elements: int, part_bytes: int) -> Iterator[Cut]:
        """Cuts as `Codec.cuts` does; `elements`: of the whole slice."""
        if self.lossless:
            yield from self.codec.cuts(elements, part_bytes)
            return
        yield from self.codec.cuts(self.exact_from, part_bytes)
        most = min(part_bytes, _SMALL)
        for cut in load_codec("none").cuts(elements - self.exact_from, most):
            yield Cut(cut.start + self.exact_from, cut.stop + self.exact_from, cut.codec, is_exact=True)

    def most_bytes(self, elements: int) -> int:
        """Returns the most bytes that the whole slice can take; `elements`: its length."""
        return self.codec.most_bytes(self.exact_from) + 4 * (elements - self.exact_from)
