"""Header blocks that a connection remembers say what hpack's own say."""

import hpack
from hypothesis import given
from hypothesis import strategies as st

from paceline.rpc.lane import frames
from paceline.rpc.lane.headers import Decoder, Encoder

NAMES = st.sampled_from([":path", ":status", "te", "grpc-status", "authorization", "x-a", "x-b"])
FIELDS = st.lists(
    st.tuples(NAMES, st.sampled_from(["", "0", "200", "trailers", "a" * 70, "/Push", "/Pull"])), min_size=1
)


@given(st.lists(st.one_of(FIELDS, st.integers(0, 300)), max_size=30))
def test_blocks_say_the_same_however_often_they_come_and_whatever_the_tables_size_becomes(
    steps: list[list[tuple[str, str]] | int],
) -> None:
    ours, decoder, reader = Encoder(), Decoder(), hpack.Decoder()
    for step in steps:
        if isinstance(step, int):
            ours.resize(step)
            continue
        for _ in range(2):
            block = b"".join(
                each[frames.HEADER_BYTES :] for each in ours.frames(1, step, end=False, most=frames.DEFAULT_FRAME)
            )
            assert decoder.fields(block) == [(str(name), str(value)) for name, value in reader.decode(block)] == step
