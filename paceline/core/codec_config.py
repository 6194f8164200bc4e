"""The settings of the codecs, and which of them go together with the rest of a run."""

from typing import Literal

from pydantic import Field

from paceline.core.codec import Codec, build_codec
from paceline.core.errors import ConfigError
from paceline.core.options import Named, Options, Section

Pushes = Literal["gradients", "differences", "weights"]
"""What the workers of a policy push: gradients, what their steps did to the model, or the model itself."""


class CodecConfig(Section):
    """What travels instead of float32; lossy but for 'none' (see codecs.md)."""

    push: Named = Field(
        Options(name="none"), description="Codec of updates, worker to server: a name, or a name with options."
    )
    pull: Named = Field(Options(name="none"), description="Codec of weights, server to worker: none, fp16, bf16, int8.")
    error_feedback: bool | None = Field(
        None,
        description="Whether a worker keeps what a push left out and adds it to its next one; default: where the codec "
        "leaves out or rounds off so much that training needs it.",
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

    def check(self, policy: str, pushes: Pushes, updates: str, lr_scale: str) -> None:
        """ConfigError where the codecs can't be right for weights, for this policy, for sparse updates, or for AdaScale."""
        push, pull = self.push_codec, self.pull_codec
        if not pull.keeps_all:
            raise ConfigError(
                f"codec.pull is {pull.name}, which leaves values out, but a weight can't be left out. Use none, fp16, bf16 "
                "or int8 there; codec.push takes any."
            )
        if updates == "sparse" and (push.biased or self.error_feedback):
            raise ConfigError(
                f"codec.push is {push.name}, with error feedback {'on' if self.has_feedback else 'off'}, but sparse updates "
                "are small already and keep no residual. Use none, fp16 or bf16 and leave codec.error_feedback out."
            )
        if pushes != "gradients" and not push.keeps_all:
            raise ConfigError(
                f"codec.push is {push.name}, which leaves values out, but workers of policy {policy} push "
                f"{'their weights' if pushes == 'weights' else 'differences of weights'}. Use none, fp16, bf16 or int8, or a "
                "policy that pushes gradients, like bsp, ssp or asp."
            )
        if pushes == "weights" and self.has_feedback:
            raise ConfigError(
                f"codec.push is {push.name} with error feedback, but workers of policy {policy} push their weights, to which "
                "what an earlier push left out must not be added. Set codec.error_feedback: false, or use none, fp16 or bf16."
            )
        if lr_scale == "adascale" and not push.keeps_all:
            raise ConfigError(
                f"schedule.lr_scale: adascale measures how much gradients differ, but codec.push is {push.name}, which leaves "
                "most of them out. Use none, fp16, bf16 or int8, or another lr_scale."
            )
