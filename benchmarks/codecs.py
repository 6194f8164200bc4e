"""What codecs cost against a copy of memory, and what they leave to send (target 8). Run: python -m benchmarks.codecs [N]"""

import sys
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.kernels import ELEMENTS, interleaved
from paceline.core.codecs.codec import Codec, build_codec
from paceline.core.codecs.error_feedback import Owed
from paceline.core.settings.config import Config, Options
from paceline.core.values import Vector
from paceline.rpc.transport import encoded_parts, room_for

CODECS: dict[str, dict[str, Any]] = {
    "none": {"name": "none"},
    "fp16": {"name": "fp16"},
    "bf16": {"name": "bf16"},
    "int8": {"name": "int8"},
    "sign": {"name": "sign"},
    "topk .01": {"name": "topk"},
    "topk .01 sampled": {"name": "topk", "threshold": "sampled"},
    "topk .001": {"name": "topk", "share": 0.001},
    "threshold .01": {"name": "threshold"},
    "threshold .01 quantised": {"name": "threshold", "form": "quantised"},
    "randomk .01": {"name": "randomk"},
    "powersgd rank 4": {"name": "powersgd"},
    "powersgd rank 1": {"name": "powersgd", "rank": 1},
}
"""Contenders by their names in the table."""


class Speed(NamedTuple):
    """One codec: GB of float32 a second, bytes on the wire, and times as ratios to a memcpy of the same round."""

    name: str
    encode: float
    decode: float
    bytes_per_value: float
    both: float
    """encode + decode / two memcpys: target 8."""
    with_feedback: float
    """encode through error feedback / memcpy."""


class Coded:
    """A vector on its way through one codec, cut into parts as a push is."""

    def __init__(self, codec: Codec, values: Vector, out: Vector) -> None:
        self._codec = codec
        self._values = values
        self._out = out
        self._part_bytes = int(Config().part_bytes)
        self._scratch = np.zeros(room_for(codec, self._part_bytes, len(values)), np.uint8)
        self._owed = Owed(np.zeros((2, 1, len(values)), np.float32), np.zeros((2, 2), np.int64))
        self.parts: list[tuple[int, memoryview]] = []
        self.encode()

    def encode(self) -> None:
        self.parts = list(encoded_parts(self._values, self._codec, self._part_bytes, self._scratch))

    def encode_with_feedback(self) -> None:
        feedback = self._owed.feedback(self._codec)
        self.parts = list(encoded_parts(self._values, self._codec, self._part_bytes, self._scratch, feedback))
        self._owed.sent(self._owed.clock + 1)

    def decode(self) -> None:
        for offset, data in self.parts:
            self._codec.decode(data, self._out[offset : offset + self._codec.elements_in(data)])

    @property
    def size(self) -> int:
        return sum(len(data) for _, data in self.parts)


def codec_speeds(n: int = ELEMENTS) -> tuple[float, list[Speed]]:
    """GB/s of memcpy and the codecs' speeds at `n` values on one thread, in interleaved rounds. The values are products of
    two normal ones, whose sizes differ as a gradient's do. Needs memory for 40 arrays of them."""
    random = np.random.default_rng(0)
    values = random.standard_normal(n, dtype=np.float32) * random.standard_normal(n, dtype=np.float32)
    out = np.zeros(n, np.float32)
    coded = {name: Coded(build_codec(Options(**options), "codec"), values, out) for name, options in CODECS.items()}
    loops: dict[str, Callable[[], object]] = {"memcpy": lambda: np.copyto(out, values)}
    for name, one in coded.items():
        loops |= {
            f"{name} encode": one.encode,
            f"{name} decode": one.decode,
            f"{name} feedback": one.encode_with_feedback,
        }
    sizes = {name: one.size / n for name, one in coded.items()}
    seconds = interleaved(loops)
    return 4e-9 * n / median(seconds["memcpy"]), [_speed(name, n, sizes[name], seconds) for name in coded]


def _speed(name: str, n: int, size: float, seconds: dict[str, list[float]]) -> Speed:
    copy, encode, decode = (seconds[loop] for loop in ("memcpy", f"{name} encode", f"{name} decode"))
    both = median((one + other) / (2 * base) for one, other, base in zip(encode, decode, copy, strict=True))
    feedback = median(time / base for time, base in zip(seconds[f"{name} feedback"], copy, strict=True))
    return Speed(name, 4e-9 * n / median(encode), 4e-9 * n / median(decode), size, both, feedback)


def main() -> None:
    """Prints the table of one run."""
    memcpy, speeds = codec_speeds(int(sys.argv[1]) if len(sys.argv) > 1 else ELEMENTS)
    print(f"memcpy {memcpy:.1f} GB/s; of GB of float32; ratios to memcpy: lower is better, target 8: 2.00, goal 1.30")
    heads = ("codec", "encode GB/s", "decode GB/s", "bytes/value", "both/2 memcpy", "encode+ef/memcpy")
    print(f"{heads[0]:24}" + "".join(f"{head:>17}" for head in heads[1:]))
    for one in speeds:
        figures = (f"{one.encode:.1f}", f"{one.decode:.1f}", f"{one.bytes_per_value:.4f}", f"{one.both:.2f}")
        feedback = "" if one.name == "none" else f"{one.with_feedback:.2f}"
        print(f"{one.name:24}" + "".join(f"{figure:>17}" for figure in (*figures, feedback)))


if __name__ == "__main__":
    main()
