"""Cuts some rows off at random so that each class keeps its share: the very rows of scikit-learn's `train_test_split`, whose
import takes longer than most runs need to write their shards."""

import numpy as np

from paceline.data.dataset import Rows


def cut_off(strata: Rows | None, rows: int, count: int, state: int) -> Rows:
    """`count` of the positions 0 to `rows` - 1 in rising order: as many of each class of `strata` (rows,) as keep its share, or
    any where there are no classes. `state`: scikit-learn's random_state."""
    rng = np.random.RandomState(state)  # the generator that scikit-learn draws from
    if strata is None:
        return np.sort(rng.permutation(rows)[:count])
    _, which, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(which, kind="stable"), np.cumsum(sizes)[:-1])
    staying = _shares(sizes, rows - count, rng)
    leaving = _shares(sizes - staying, count, rng)
    kept = [
        mine[rng.permutation(len(mine))][stay : stay + leave]
        for mine, stay, leave in zip(members, staying, leaving, strict=True)
    ]
    found: Rows = np.sort(np.concatenate(kept))
    return found


def _shares(sizes: Rows, draws: int, rng: np.random.RandomState) -> Rows:
    """How many of each class to draw so that all together are `draws`: rounded down, and then one more where most is left over;
    of classes with as much left over `rng` draws."""
    exact = sizes / sizes.sum() * draws
    found = np.floor(exact)
    left = int(draws - found.sum())
    over = exact - found
    for value in np.unique(over)[::-1]:
        if left <= 0:
            break
        (tied,) = np.nonzero(over == value)
        more = min(len(tied), left)
        found[rng.choice(tied, more, replace=False)] += 1
        left -= more
    whole: Rows = found.astype(np.int64)
    return whole
