"""How all pictures look. Colours are Okabe and Ito's, which colour-blind people can tell apart. Needs matplotlib."""

import io
from typing import Any

from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
MARKERS = ("o", "s", "^", "D", "v", "P")
"""Used with the colours, so that colour is not all that tells lines apart."""
INK, FAINT = "#222222", "#8a8a8a"
STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # names are data: a dollar sign in one starts no formula
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
}
DPI = 150


def colour_of(number: int) -> str:
    """The colour of the line, set or policy of that number, in every picture."""
    return COLOURS[number % len(COLOURS)]


def marker_of(number: int) -> str:
    """Its marker."""
    return MARKERS[number % len(MARKERS)]


def png(figure: Figure) -> bytes:
    """The figure as the content of a file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DPI, facecolor="white", bbox_inches="tight")  # or labels may be cut
    return stream.getvalue()
