"""Broadcast: what has piled up beyond a threshold goes to everybody, and is applied on arrival; nobody waits."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from paceline.core.codecs.codec import Codec
from paceline.core.peers.peer_policy import Kind, Message, PeerPolicy
from paceline.core.values import Places, Vector


class Broadcast(PeerPolicy):
    """[Actors; Strom 2015]: residual += g; where |residual| >= tau it is sent to all, who take w <- w - lr * sent at once, at
    the sender's rate, and is taken off the residual. Strom's sender does as its receivers do, so that all have one model but
    for what is under way, and sends +-tau only (`quantised`); the sender of [Actors], by its authors' program, has taken its
    whole gradient."""

    kinds: ClassVar[frozenset[Kind]] = frozenset({"update"})
    usual_topology: ClassVar[str] = "complete"
    plain: ClassVar[bool] = True
    worker_momentum: ClassVar[bool] = True
    averages: ClassVar[bool] = False
    tau: float = Field(
        0.1, gt=0, allow_inf_nan=False, description="What must have piled up before it is sent (gradient units)."
    )
    quantised: bool = Field(False, description="Send +-tau, the rest stays; false sends all that has piled up.")
    own: Literal["message", "gradient"] = Field(
        "message", description="What the sender takes itself: message (Strom), or at once its whole gradient (Actors)."
    )
    _residual: Vector | None = PrivateAttr(None)

    def step_pushes(self, members: int) -> float:
        return 1.0

    def may_send(self, codec: Codec) -> bool:
        return codec.lossless  # it chooses itself what is left out

    def _push(self, gradient: Vector | None) -> list[Message]:
        from paceline.core import kernels

        if gradient is None:
            return []
        if self._residual is None:
            self._residual = np.zeros_like(self._own.local)
        kernels.add_scaled(self._residual, gradient, 1.0)
        tau = np.float32(self.tau)
        places = np.flatnonzero(np.abs(self._residual) >= tau)
        values = np.copysign(tau, self._residual[places]) if self.quantised else self._residual[places]
        self._residual[places] -= values
        if self.own == "gradient":
            kernels.plain_step(self._own.local, gradient, self._own.rate)
        else:
            self._apply(places, values, self._own.rate)
        sent = self._others() if len(places) else []
        about, rate = (self._group.view, self._round), float(self._own.rate)
        return [Message("update", self._rank, to, *about, values, rate, places=places) for to in sent]

    def _take(self, message: Message) -> list[Message]:
        assert message.places is not None
        self._apply(message.places, message.values, message.weight)
        return []

    def _apply(self, places: Places, values: Vector, rate: float) -> None:
        self._own.local[places] -= np.float32(rate) * values
