"""Emulated slow workers: a pause after the computation of a step, so that policies can be tried on one machine."""

from collections.abc import Callable, Mapping

import numpy as np

from paceline.core.settings.slow import slowness


class Slowness:
    """Pauses (factor - 1) x a nominal step, always or at random steps; the same ones in every run of a seed."""

    def __init__(
        self, settings: Mapping[str, str], place: int, nominal: float, seed: int, pause: Callable[[float], object]
    ) -> None:
        mine = [(who, how) for who, how in settings.items() if who in ("all", str(place))]
        self._rules = [slowness(who, how) for who, how in mine]
        self._place = place
        self._nominal = nominal
        self._seed = seed
        self._pause = pause

    def delay(self, clock: int, share: float = 1.0) -> None:
        """Pauses where this step is a slow one; `share` of a whole mini-batch takes as much less."""
        chance = np.random.default_rng([self._seed, self._place, clock, 7]).random() if self._rules else 1.0
        seconds = sum((factor - 1) * self._nominal for factor, probability in self._rules if chance < probability)
        if seconds:
            self._pause(share * seconds)
