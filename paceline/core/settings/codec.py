"""The settings of the codecs, and which of them go together with the rest of a run."""

from typing import Literal

from pydantic import Field

from paceline.core.coding.codec import Codec, build_codec, codecs_that
from paceline.core.coding.sparse_codec import SparseCodec
from paceline.core.errors import ConfigError
from paceline.core.extension import Named, Options, Section

Pushes = Literal["gradients", "differences", "weights"]
"""What the workers of a policy push: gradients, what their steps did to the model, or the model itself."""
_FIRST_SHARE = 0.25
"""What a warm-up begins with, and how long it takes with momentum [Lin et al. 2018] (ratio; epochs)."""
_WARMUP = 4.0


class CodecConfig(Section):
    """What travels instead of float32; lossy but for 'none' (see codecs.md)."""

    push: Named = Field(
        Options(name="none"), description="Codec of updates, worker to server: a name, or a name with options."
    )
    pull: Named = Field(
        Options(name="none"),
        description="Codec of weights, server to worker: one that keeps all values (see codecs.md).",
    )
    error_feedback: bool | None = Field(
        None,
        description="Whether a worker keeps what a push left out and adds it to its next one; default: where the codec "
        "leaves out or rounds off so much that training needs it.",
    )
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="DGC [Lin et al. 2018]: momentum that each worker adds before the codec selects; the servers must then "
        "have none (ratio; 0: off).",
    )
    warmup_epochs: float | None = Field(
        None,
        ge=0,
        description="The codec's share falls from 25 % to its own in so many of a worker's epochs, in equal ratios; default: 4 "
        "with codec.momentum, else 0 (epochs).",
    )

    @property
    def push_codec(self) -> Codec:
        """The codec of updates; ConfigError where it is unknown or its options are wrong."""
        return build_codec(self.push, "codec.push")

    @property
    def pull_codec(self) -> Codec:
        """The codec of weights, in the same way."""
        return build_codec(self.pull, "codec.pull")

    @property
    def has_feedback(self) -> bool:
        """Whether pushes go through error feedback."""
        codec = self.push_codec
        return not codec.lossless and (codec.biased if self.error_feedback is None else self.error_feedback)

    @property
    def warmup(self) -> float:
        """Epochs until the codec has its own share; 0 where it begins with it, or does not go by one."""
        if self.warmup_epochs is not None:
            return self.warmup_epochs
        return _WARMUP if self.momentum and _can_warm_up(self.push_codec) else 0.0

    def push_codec_in(self, epoch: int) -> Codec:
        """The codec of updates in this epoch, from 0: with shares of 25, 6.25, 1.56, .39 % before .1 % [Lin et al. 2018]."""
        codec = self.push_codec
        if epoch >= self.warmup or not isinstance(codec, SparseCodec):
            return codec
        share = _FIRST_SHARE * (codec.share / _FIRST_SHARE) ** (epoch / self.warmup)
        return codec.model_copy(update={"share": share})

    def check(self, policy: str, pushes: Pushes, updates: str, lr_scale: str, epochs: int) -> None:
        """ConfigError where the codecs can't be right for weights, for this policy, for sparse updates, for AdaScale, or for
        a run of so many epochs."""
        push, pull = self.push_codec, self.pull_codec
        if not pull.keeps_all:
            raise ConfigError(
                f"codec.pull is {pull.name}, which leaves values out, but a weight can't be left out. Use "
                f"{codecs_that(_keeps_all)} there; codec.push takes any."
            )
        if updates == "sparse" and (push.biased or self.error_feedback):
            raise ConfigError(
                f"codec.push is {push.name}, with error feedback {'on' if self.has_feedback else 'off'}, but sparse updates "
                f"are small already and keep no residual. Use {codecs_that(_needs_no_feedback)} and leave "
                "codec.error_feedback out."
            )
        if pushes != "gradients" and not push.keeps_all:
            raise ConfigError(
                f"codec.push is {push.name}, which leaves values out, but workers of policy {policy} push "
                f"{'their weights' if pushes == 'weights' else 'differences of weights'}. Use "
                f"{codecs_that(_keeps_all)}, or a policy that pushes gradients, like bsp, ssp or asp."
            )
        if pushes == "weights" and self.has_feedback:
            raise ConfigError(
                f"codec.push is {push.name} with error feedback, but workers of policy {policy} push their weights, to which "
                "what an earlier push left out must not be added. Set codec.error_feedback: false, or use "
                f"{codecs_that(_needs_no_feedback)}."
            )
        if lr_scale == "adascale" and not push.keeps_all:
            raise ConfigError(
                f"schedule.lr_scale: adascale measures how much gradients differ, but codec.push is {push.name}, which leaves "
                f"most of them out. Use {codecs_that(_keeps_all)}, or another lr_scale."
            )
        self._check_dgc(push, epochs)

    def _check_dgc(self, push: Codec, epochs: int) -> None:
        """ConfigError where momentum or a warm-up don't go with the codec, or with a run of so many epochs."""
        if self.momentum and not (isinstance(push, SparseCodec) and self.has_feedback):
            raise ConfigError(
                f"codec.momentum is {self.momentum:g}, but codec.push is {push.name}, with error feedback "
                f"{'on' if self.has_feedback else 'off'}. It corrects what waits in a residual until it is sent: use "
                f"{codecs_that(_leaves_out)} with error feedback, or leave codec.momentum out."
            )
        if self.warmup and not _can_warm_up(push):
            raise ConfigError(
                f"codec.warmup_epochs is {self.warmup:g}, but codec.push is {push!r}. What is sent must go by a share, and one "
                f"below {_FIRST_SHARE:g}, where a warm-up begins: use {codecs_that(_can_warm_up)} with default options, or "
                "leave codec.warmup_epochs out."
            )
        if self.warmup >= epochs:
            raise ConfigError(
                f"codec.warmup_epochs ({self.warmup:g}) must be below epochs ({epochs}), or the codec never comes to its own "
                "share. Set it lower; 0: no warm-up."
            )


def _keeps_all(codec: Codec) -> bool:
    return codec.keeps_all


def _needs_no_feedback(codec: Codec) -> bool:
    return codec.keeps_all and not codec.biased


def _leaves_out(codec: Codec) -> bool:
    """Whether what it does not send can be told from what it sends."""
    return isinstance(codec, SparseCodec)


def _can_warm_up(codec: Codec) -> bool:
    """Whether there is a share that a warm-up leads to."""
    return isinstance(codec, SparseCodec) and codec.goes_by_share and codec.share < _FIRST_SHARE
