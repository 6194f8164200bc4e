"""Error feedback: what a codec leaves out of one push is added to the next, so that nothing is lost, only late."""

from dataclasses import dataclass

from paceline.core.codec import Buffer, Codec, bytes_of
from paceline.core.errors import BadPush
from paceline.core.values import Vector


@dataclass(frozen=True, slots=True, eq=False)
class ErrorFeedback:
    """Any codec, encoding one vector after the other [Seide et al. 2014; Karimireddy et al. 2019]: residual += given, send
    the residual, residual -= sent. So sum(sent) + residual = sum(given), to the rounding of float32. Not thread-safe."""

    codec: Codec
    residual: Vector
    """What was given and not sent yet; as long as each vector, and changed in place."""

    def most_bytes(self, elements: int) -> int:
        return self.codec.most_bytes(elements)

    def encode(self, values: Vector, out: Buffer) -> int:
        """As `Codec.encode`, of the values and all that is owed. BadPush where what is left would not be finite."""
        from paceline.core import kernels

        kernels.add_scaled(self.residual, values, 1.0)
        size = self.codec.encode(self.residual, out)
        self.codec.add(bytes_of(out)[:size], self.residual, -1.0)
        if not kernels.all_finite(self.residual):
            raise BadPush(
                f"An update can't be sent as {self.codec.name} with error feedback: it is NaN or infinite, or larger than the "
                "codec can say. Lower optimizer.lr, set clip.norm, or take bf16 or int8."
            )
        return size

    def take_back(self, data: Buffer) -> None:
        """What was sent has not been used: it is owed again."""
        self.codec.add(data, self.residual, 1.0)
