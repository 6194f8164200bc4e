"""Compares what a script leaves untrained: each worker computes on its own copy, which nobody sends."""

import numpy as np
from torch import Tensor

_LOOKED_AT = 1 << 16
"""Most elements of a parameter that are looked at: another seed or another file changes all of them."""


def sketch(parameters: list[Tensor]) -> tuple[float, float]:
    """Returns the norm of the parameters, and their product with fixed random signs: alike but for rounding where they are
    alike, on any device; 0 and 0 without any."""
    total = product = 0.0
    for number, parameter in enumerate(parameters):
        flat = parameter.detach().flatten()
        values = flat[:: -(-len(flat) // _LOOKED_AT) or 1].double().cpu().numpy()
        signs = np.random.default_rng(number).choice((-1.0, 1.0), len(values))
        total += float(values @ values)
        product += float(values @ signs)
    return float(np.sqrt(total)), product
