"""Whether a notebook's kernel runs this, where `paceline launch` starts nothing."""

import sys

ALONE = (
    "paceline: this notebook trains alone, in plain torch. For several workers put these lines into a function and call "
    "paceline.launch(function, workers=2); or write paceline.train(model, train=data, ...) instead of the loop."
)


def in_notebook() -> bool:
    """Whether this process is the kernel of one."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "ipykernel" in sys.modules
