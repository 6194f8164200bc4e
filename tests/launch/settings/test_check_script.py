"""A training script is looked through before a run: what is certainly wrong is reported, what may be right is left alone."""

from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.launch.settings.read_config import check_script

GOOD = [
    "from math import *\nprint(sqrt(2), whatever)\n",
    "import a.b as c\n\ndef f(x, *y):\n    global z\n    z = [i for i in y if c]\n    return g(x)\n\ndef g(x):\n    return z\n",
    "try:\n    x\nexcept NameError:\n    x = 1\n",
    "class A:\n    one = 1\n    two = one + 1\n    def f(self):\n        return __class__, __file__, super().f()\n",
    "globals()['later'] = 3\nprint(later)\n",
    "for i, (j, k) in []:\n    del i\nwith open(__file__) as f, f as (g, h):\n    print(f, g, h, j, k)\n",
    "if (n := 3) > 2:\n    print(n)\nmatch n:\n    case [a, *b]:\n        print(a, b)\n",
    "def outer():\n    x = 1\n    def inner():\n        nonlocal x\n        x += 1\n    return inner\n",
]


@pytest.mark.parametrize("text", GOOD)
def test_a_script_that_may_run_passes(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)

    check_script(tmp_path / "train.py")


BAD = [
    ("x = 1\nfor i in range(3)\n    pass\n", r"script: .*train.py, line 2 is not Python: expected ':'"),
    (
        "optimizer = 1\n\ndef f():\n    optimiser.step()\n",
        r"line 4: there is no name 'optimiser'\. Did you mean 'optimizer'\?",
    ),
    ("x = 1\nprint(x, y)\n", r"line 2: there is no name 'y'"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "train.py").write_text(text)

    with pytest.raises(ConfigError, match=sentence):
        check_script(tmp_path / "train.py")
