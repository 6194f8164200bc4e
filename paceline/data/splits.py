"""Which examples train, which choose (validation) and which judge (test): seeded, with equal shares of each class."""

from dataclasses import dataclass

import numpy as np

from paceline.base.extras import needing
from paceline.core.errors import DataError
from paceline.data.classes import if_numbers
from paceline.data.dataset import Dataset, Labelled, PartName, Rows, Selection


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The examples to train on, and those kept from training, by name."""

    train: Selection
    kept: dict[PartName, Selection]


def split(
    dataset: Dataset,
    validation: float,
    test: float,
    seed: int,
    fold: tuple[int, int] | None = None,
    key: str = "data.validation",
) -> Split:
    """Sets that the data brings are kept as they are; missing ones are cut from its training rows, `validation` and
    `test` being shares of those (0: no such part). With a `fold` (i, K) the test part is part i of K equal ones of the
    training rows instead, and a test set that the data brings is left alone. Classes keep their shares; labels that are
    no classes are cut at random. `key`: the setting that `validation` is. DataError where a class has too few examples
    for that."""
    rows: Rows = np.arange(len(dataset.train), dtype=np.int64)
    kept: dict[PartName, Selection] = {}
    next_id = len(dataset.train)
    wanted: tuple[tuple[PartName, Labelled | None, float], ...] = (
        ("test", dataset.test, test),
        ("validation", dataset.validation, validation),
    )
    for name, own, share in wanted:
        if name == "test" and fold is not None:
            rows, cut = _fold(dataset.train, *fold, seed)
            kept[name] = Selection(dataset.train, cut)
        elif own is not None:
            kept[name] = Selection(own, np.arange(len(own), dtype=np.int64), next_id)
        elif share > 0:
            count = max(1, round(share * len(dataset.train)))
            rows, cut = _cut(dataset.train, rows, count, seed, key if name == "validation" else "data.test")
            kept[name] = Selection(dataset.train, cut)
        next_id += 0 if own is None else len(own)
    return Split(Selection(dataset.train, rows), kept)


def _fold(train: Labelled, part: int, parts: int, seed: int) -> tuple[Rows, Rows]:
    """The rows outside of part number `part` of `parts` equal ones, and those in it, both in rising order."""
    strata = train.classes
    found, sizes = (None, np.array([len(train)])) if strata is None else np.unique(strata, return_counts=True)
    if sizes.min() < parts:
        who = "The training set has" if found is None else f"Class {found[sizes.argmin()]} has"
        raise DataError(
            f"{who} only {sizes.min()} examples, but each of {parts} folds needs one. Use fewer folds (data.fold), or "
            f"give more data.{'' if strata is None else if_numbers(strata)}"
        )
    with needing("Cutting folds"):
        from sklearn import model_selection as selection
    kind = selection.KFold if strata is None else selection.StratifiedKFold
    state = int(np.random.default_rng(seed).integers(2**32))
    cuts = list(kind(parts, shuffle=True, random_state=state).split(np.zeros(len(train)), strata))
    stay, kept = cuts[part]
    return stay.astype(np.int64), kept.astype(np.int64)


def _cut(train: Labelled, rows: Rows, count: int, seed: int, key: str) -> tuple[Rows, Rows]:
    """The rows that stay, and `count` rows that are kept as the setting `key` says, both in rising order."""
    strata = None if train.classes is None else train.classes[rows]
    _check_room(strata, len(rows), count, key)
    state = int(np.random.default_rng(seed).integers(2**32))
    kept = cut_off(strata, len(rows), count, state)
    return np.delete(rows, kept), rows[kept]


def _check_room(strata: Rows | None, rows: int, count: int, key: str) -> None:
    """DataError where a stratified cut is impossible: each class must be able to reach both sides."""
    least = 1
    if strata is not None:
        found, sizes = np.unique(strata, return_counts=True)
        least = len(found)
        if sizes.min() < 2:
            raise DataError(
                f"Class {found[sizes.argmin()]} has only {sizes.min()} example left when the "
                f"{key.partition('.')[2]} set is taken from it, but both parts need one. Add examples, remove the "
                f"class, or set {key} to 0.{if_numbers(strata)}"
            )
    if count < least or rows - count < least:
        raise DataError(
            f"{key} asks for {count} of {rows} examples, but both parts need at least {least} (one for each class). "
            f"Change {key}, or give more data.{'' if strata is None else if_numbers(strata)}"
        )


def cut_off(strata: Rows | None, rows: int, count: int, state: int) -> Rows:
    """`count` of the positions 0 to `rows` - 1 in rising order: as many of each class of `strata` (rows,) as keep its share, or
    any where there are no classes. `state`: scikit-learn's random_state. They are the very rows of its `train_test_split`,
    whose import takes longer than most runs need to write their shards."""
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
