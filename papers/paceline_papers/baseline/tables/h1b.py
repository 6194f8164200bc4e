"""h1b: petitions for H-1B visas of 2011 to 2016; the label is what became of them [Survey, Experiment 1]."""

import numpy as np

from paceline_papers.baseline.table import MadeUp, Table, labelled, named, numbers, texts, zipf

CLASSES = ("CERTIFIED", "CERTIFIED-WITHDRAWN", "DENIED", "WITHDRAWN")
SHARES = (0.87, 0.07, 0.03, 0.03)
"""Chosen after the paper's accuracy, which a model that always says the first class has, too."""
EMPLOYERS, TITLES, OCCUPATIONS, PLACES, STATES = 60_000, 40_000, 800, 10_000, 50
SIGNAL = 1.0
"""Spread of what a column adds to a class's log odds."""


class H1b(Table):
    """Made-up rows: a title belongs to one occupation and a place to one state, so columns repeat each other."""

    texts = ("EMPLOYER_NAME", "SOC_NAME", "JOB_TITLE", "FULL_TIME_POSITION", "YEAR", "WORKSITE")
    numbers = ("PREVAILING_WAGE", "lon", "lat")
    label = "CASE_STATUS"
    rows = 3_000_000

    def made_up(self, rows: int, rng: np.random.Generator) -> MadeUp:
        law = np.random.default_rng(0)  # the same in every made-up table
        employer, title, place = (zipf(rng, rows, kinds) for kinds in (EMPLOYERS, TITLES, PLACES))
        occupation = (title * 7) % OCCUPATIONS
        state = (place * 3) % STATES
        year, full_time = rng.integers(6, size=rows), rng.random(rows) < 0.86
        wage = np.exp(rng.normal(11, 0.4, rows) + 0.2 * np.sin(occupation))
        pulls = sum(
            law.normal(0, SIGNAL, (kinds, len(CLASSES)))[own]
            for kinds, own in ((OCCUPATIONS, occupation), (STATES, state), (6, year), (2, full_time.astype(np.int64)))
        )
        pulls = pulls + law.normal(0, SIGNAL, (100, len(CLASSES)))[np.minimum(employer, 99)]
        pulls = pulls + np.outer(wage < 45_000, (0.0, 0.0, 3.0, 1.0))
        drawn, best = labelled(rng, pulls, SHARES)
        columns = {
            self.label: named(drawn, CLASSES),
            "EMPLOYER_NAME": texts(employer, "EMPLOYER", rng),
            "SOC_NAME": texts(occupation, "OCCUPATION", rng),
            "JOB_TITLE": texts(title, "TITLE"),
            "FULL_TIME_POSITION": named(full_time.astype(np.int64), "NY"),
            "YEAR": named(year, [str(2011 + number) for number in range(6)]),
            "WORKSITE": texts(place, "PLACE"),
            "PREVAILING_WAGE": numbers(wage.round(2), rng),
            "lon": numbers(-70.0 - state, rng),
            "lat": numbers(30.0 + (state * 11) % 17, rng),
        }
        return MadeUp(columns, best)
