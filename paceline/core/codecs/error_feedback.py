"""Error feedback: what a codec leaves out of one push is added to the next, so that nothing is lost, only late."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.core.codecs.codec import Buffer, Codec, bytes_of
from paceline.core.codecs.sparse_codec import SparseCodec
from paceline.core.errors import BadPush
from paceline.core.values import Vector

State = npt.NDArray[np.float32]
"""The residual, and with momentum the velocity: one row each, as long as each vector that is given."""
Stamps = npt.NDArray[np.int64]
"""For each of two states the clock that it holds after, and a number that grows with each; number 0: it is not whole."""
_CLOCK, _NUMBER = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class ErrorFeedback:
    """Any codec, encoding one vector after the other [Seide et al. 2014; Karimireddy et al. 2019]: residual += given, send
    the residual, residual -= sent. So sum(sent) + residual = sum(given), to the rounding of float32. With momentum DGC's
    correction [Lin et al. 2018, algorithm 4]: velocity = momentum * velocity + given; residual += velocity; and velocity = 0
    where something was sent (momentum factor masking). Not thread-safe."""

    codec: Codec
    before: State
    after: State
    """What `before` becomes; it may be the same memory."""
    momentum: float = 0.0
    """Above 0 only with a `SparseCodec`, or with one that leaves nothing out, and states of two rows."""

    def part(self, start: int, stop: int, codec: Codec) -> "ErrorFeedback":
        """The same for a range of the vector's elements, with the codec of that part."""
        before, after = self.before[:, start:stop], self.after[:, start:stop]
        return ErrorFeedback(codec, before, after, self.momentum)

    def encode(self, values: Vector, out: Buffer) -> int:
        """As `Codec.encode`, of the values and all that is owed. BadPush where what is left would not be finite."""
        from paceline.core import kernels

        gather(values, self.before, self.after, self.momentum)
        residual = self.after[0]
        try:
            size = self.codec.encode(residual, out)
            self.codec.add(bytes_of(out)[:size], residual, -1.0)
        except BadPush as error:
            raise self._refused() from error
        if self.momentum and self.codec.lossless:
            self.after[1] = 0
        elif self.momentum:
            assert isinstance(self.codec, SparseCodec)
            self.after[1, self.codec.places_in(bytes_of(out)[:size], len(values))] = 0
        if not kernels.all_finite(residual):
            raise self._refused()
        return size

    def _refused(self) -> BadPush:
        return BadPush(
            f"An update can't be sent as {self.codec.name} with error feedback: it has NaN or infinity, or a "
            "value too large for the codec. Lower optimizer.lr, set clip.norm, or take bf16 or int8."
        )


def gather(values: Vector, before: State, after: State, momentum: float) -> None:
    """Adds what is given to what is owed, of which nothing is sent."""
    given = values
    if momentum:
        given = after[1]
        np.multiply(before[1], np.float32(momentum), out=given)
        given += values
    np.add(before[0], given, out=after[0])


class Owed:
    """What one worker owes one slice: the state after its last push, and the one before it. So what is owed is known whether
    that push was counted, dropped or lost, or the worker died while sending it: nothing is sent twice.
    Its arrays may lie in memory that outlives the worker (see worker/exchange/residuals.py). Not thread-safe."""

    def __init__(self, states: npt.NDArray[np.float32], stamps: Stamps, momentum: float = 0.0) -> None:
        """Two states and their stamps: zeros, or what another `Owed` has left behind."""
        self._states = states
        self._stamps = stamps
        self._momentum = momentum
        self._now = int(stamps[:, _NUMBER].argmax())

    @property
    def clock(self) -> int:
        """The clock after which what is owed now holds."""
        return int(self._stamps[self._now, _CLOCK])

    @property
    def residual(self) -> Vector:
        """What was given and not sent yet."""
        found: Vector = self._states[self._now, 0]
        return found

    @property
    def velocity(self) -> Vector:
        """Where there is momentum: what the next gradient is added to."""
        found: Vector = self._states[self._now, 1]
        return found

    def go_on_after(self, clock: int) -> bool:
        """Takes what was owed after this clock, the last that the slice has counted; where that is not known nothing is owed,
        and False is returned."""
        fits = (self._stamps[:, _CLOCK] == clock) & (self._stamps[:, _NUMBER] > 0)
        if fits.any():
            self._now = int(np.where(fits, self._stamps[:, _NUMBER], 0).argmax())
            return True
        self._stamps[:, _NUMBER] = 0
        self._states[self._now] = 0
        self._stamp(self._now, clock)
        return False

    def feedback(self, codec: Codec) -> ErrorFeedback:
        """What encodes the next push; `sent` must follow before the push leaves."""
        return ErrorFeedback(codec, self._states[self._now], self._other(), self._momentum)

    def sent(self, clock: int) -> None:
        """All of this clock's push is encoded: from now on it counts as sent."""
        self._stamp(1 - self._now, clock)

    def take_back(self, values: Vector) -> None:
        """The last push, to which these values were given, has not been used: all of it is owed again."""
        clock, before = self.clock, self._other()
        gather(values, before, before, self._momentum)
        self._stamp(1 - self._now, clock)

    def skip(self, clock: int) -> None:
        """This clock's push is empty."""
        np.copyto(self._other(), self._states[self._now])
        self._stamp(1 - self._now, clock)

    def clear(self) -> None:
        """Nothing is owed any more, after the same clock."""
        clock = self.clock
        self._other()[:] = 0
        self._stamp(1 - self._now, clock)

    def _other(self) -> State:
        """The state that is not in use, to be written."""
        self._stamps[1 - self._now, _NUMBER] = 0
        state: State = self._states[1 - self._now]
        return state

    def _stamp(self, which: int, clock: int) -> None:
        """This state is whole now, and the one in use."""
        number = self._stamps[:, _NUMBER].max() + 1
        self._stamps[which, _CLOCK] = clock
        self._stamps[which, _NUMBER] = number
        self._now = which
