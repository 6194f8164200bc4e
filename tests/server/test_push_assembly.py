"""Parts of a push: in order, without gaps, finite, or refused."""

import numpy as np
import pytest

from paceline.core.codecs.codec import load_codec
from paceline.core.errors import BadPush
from paceline.server.push_assembly import Assembly

WHOLE = np.arange(6, dtype=np.float32)


def assembly(codec: str = "none") -> Assembly:
    return Assembly("worker-0", np.empty(6, np.float32), load_codec(codec))


def test_parts_in_order_make_up_the_whole():
    push = assembly()

    for first in (0, 2, 4):
        push.take(first, WHOLE[first : first + 2].data.cast("B"))
    push.check_complete()

    assert np.array_equal(push.values, WHOLE)


def test_a_part_that_is_not_coded_may_be_received_where_it_belongs():
    push = assembly()

    place = push.place(0, 24)
    assert place is not None
    place[:] = WHOLE.data.cast("B")
    push.take(0, place)

    push.check_complete()
    assert np.array_equal(push.values, WHOLE)


def test_a_coded_part_has_no_place_before_it_is_decoded():
    assert assembly("fp16").place(0, 12) is None


@pytest.mark.parametrize(
    ("offset", "values", "words"),
    [
        (2, WHOLE[2:4], r"worker-0 sent 8 bytes for element 2 of 6; expected whole elements, at most 6, from 0 on"),
        (0, np.zeros(7, np.float32), r"worker-0 sent 28 bytes for element 0 of 6"),
        (0, np.array([1, np.nan], np.float32), r"worker-0 pushed NaN or infinity near element 0\. Nothing was changed"),
    ],
)
def test_a_part_that_does_not_fit_or_is_not_finite_is_refused(offset, values, words):
    with pytest.raises(BadPush, match=words):
        assembly().take(offset, values.data.cast("B"))


def test_a_push_that_lacks_parts_is_refused():
    push = assembly()
    push.take(0, WHOLE[:4].data.cast("B"))

    with pytest.raises(BadPush, match=r"worker-0 sent 4 of 6 values\. Nothing was changed"):
        push.check_complete()
