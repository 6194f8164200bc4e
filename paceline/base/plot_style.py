"""How all pictures look. Colours are Okabe and Ito's, which colour-blind people can tell apart. Needs matplotlib."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
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
    "boxplot.whiskerprops.color": INK,
    "boxplot.capprops.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
DPI = 150
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
_ONLY_IN_FILES = re.compile(r' xmlns(:\w+)?="[^"]*"|(?<=<g) id="[^"]*"|<!--.*?-->\n?', re.DOTALL)
"""What a page's own SVG does not need; the ids of groups are the same ones in each figure."""


@contextmanager
def styled(size: float = 11.0) -> Iterator[None]:
    """In this block figures look like ours, with letters of this size (points), and letters that their font lacks are no
    warning: the page around a picture has them."""
    with mpl.rc_context(STYLE | {"font.size": size}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


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


def svg(figure: Figure) -> str:
    """The figure as a part of a page (`paceline.base.html`), whose colours of text and paper it takes."""
    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "paceline"}):  # equal figures are equal texts
        figure.savefig(stream, format="svg", transparent=True, bbox_inches="tight", metadata=_NO_METADATA)
    drawn = stream.getvalue()
    drawn = _ONLY_IN_FILES.sub("", drawn[drawn.index("<svg") :])
    return drawn.replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")


class Drawn(NamedTuple):
    """One figure twice: as a file by itself, and as a part of a page."""

    png: bytes
    svg: str


def drawn(figure: Figure) -> Drawn:
    """The figure in both forms."""
    return Drawn(png(figure), svg(figure))
