"""Push-sum: models carry weights, so that one-way messages keep the mean of all models, however often each member sends."""

from dataclasses import replace

from pydantic import PrivateAttr

from paceline.core.peers.peer_policy import Message, PeerPolicy


class PushSum(PeerPolicy):
    """[Kempe et al. 2003]: a message takes half of the sender's weight with it; the receiver's next model is the weighted mean
    of its model and the one that came, and has both weights. So sum(w) and sum(w x) over members and messages under way do not
    change. (SGP's biased x is w x here.) A joiner begins with a weight of 1, as the founders did. A member that leaves, or a
    message that is lost, takes its weight away: the mean is then that of what is left."""

    _weight: float = PrivateAttr(1.0)

    def _half(self, to: int) -> Message:
        """My model with half of my weight."""
        self._weight /= 2
        return replace(self._message("model", to, self._own.local.copy()), weight=self._weight)

    def _mix(self, message: Message) -> None:
        from paceline.core import kernels

        if message.weight:
            self._weight += message.weight
            kernels.mix(self._own.local, message.values, message.weight / self._weight)
