"""The settings of the codecs."""

from typing import Literal

from pydantic import Field

from paceline.core.codecs.codec import Codec, build_codec
from paceline.core.codecs.sparse_codec import SparseCodec
from paceline.core.extension import Named, Options, Section

Pushes = Literal["gradients", "differences", "weights"]
"""What the workers of a policy push: gradients, what their steps did to the model, or the model itself."""
FIRST_SHARE = 0.25
"""The share that a warm-up starts with, and its length with momentum [Lin et al. 2018] (ratio; epochs)."""
_WARMUP = 4.0


class CodecConfig(Section):
    """What travels instead of float32; lossy but for 'none' (see docs/choose/codecs.md)."""

    push: Named = Field(
        Options(name="none"), description="Codec of updates, worker to server: a name, or a name with options."
    )
    pull: Named = Field(
        Options(name="none"),
        description="Codec of weights, server to worker: one that keeps all values (see docs/choose/codecs.md).",
    )
    error_feedback: bool | None = Field(
        None,
        description="Whether a worker adds what a push left out to its next one; default: as the codec needs it.",
    )
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Momentum that each worker adds before the codec [DGC, Lin et al. 2018]; the servers then have "
        "none (ratio; 0: off).",
    )
    warmup_epochs: float | None = Field(
        None,
        ge=0,
        description="A worker's epochs in which the codec's share falls from 25 %; default: 4 with codec.momentum, or"
        " 0 (epochs).",
    )

    @property
    def push_codec(self) -> Codec:
        """The codec of updates; ConfigError if it is unknown or its options are wrong."""
        return build_codec(self.push, "codec.push")

    @property
    def pull_codec(self) -> Codec:
        """The codec of weights, with the same errors."""
        return build_codec(self.pull, "codec.pull")

    @property
    def has_feedback(self) -> bool:
        """Whether pushes go through error feedback."""
        codec = self.push_codec
        return not codec.lossless and (codec.biased if self.error_feedback is None else self.error_feedback)

    @property
    def warmup(self) -> float:
        """Epochs until the codec reaches its own share; 0 if it starts with it or has none."""
        if self.warmup_epochs is not None:
            return self.warmup_epochs
        return _WARMUP if self.momentum and can_warm_up(self.push_codec) else 0.0

    def push_codec_in(self, epoch: int) -> Codec:
        """The codec of updates in this epoch, from 0: with shares of 25, 6.25, 1.56, .39 % before .1 % [Lin et al. 2018]."""
        codec = self.push_codec
        if epoch >= self.warmup or not isinstance(codec, SparseCodec):
            return codec
        share = FIRST_SHARE * (codec.share / FIRST_SHARE) ** (epoch / self.warmup)
        return codec.model_copy(update={"share": share})


def can_warm_up(codec: Codec) -> bool:
    """Whether there is a share that a warm-up leads to."""
    return isinstance(codec, SparseCodec) and codec.goes_by_share and codec.share < FIRST_SHARE
