"""fire: calls to the fire department of San Francisco; the label is the group of the call [Survey, Experiment 2]."""

import numpy as np

from paceline_papers.baseline.table import MadeUp, Table, labelled, named, numbers, texts, zipf

CLASSES = ("Potentially Life-Threatening", "Alarm", "Non Life-threatening", "Fire")
SHARES = (0.5, 0.25, 0.2, 0.05)
UNITS = ("ENGINE", "MEDIC", "TRUCK", "CHIEF", "PRIVATE", "RESCUE CAPTAIN", "RESCUE SQUAD", "SUPPORT", "BLS")
DISPOSITIONS = 15
STATIONS, BOXES, PLACES, BATTALIONS = 45, 2_400, 40, 10
TOGETHER, ALONE = 2.0, 0.5
"""Spread of what unit and priority together add to a class's log odds, and what another column does alone. A sum over columns
can't say the first, so a tree finds more than a linear model, as in the paper."""


class Fire(Table):
    """Made-up rows: a box belongs to one station, a station to one battalion, so columns repeat each other."""

    texts = (
        "Unit Type",
        "Call Final Disposition",
        "Battalion",
        "Station Area",
        "Box",
        "Original Priority",
        "Final Priority",
        "Neighborhooods - Analysis Boundaries",
    )
    numbers = ("Number of Alarms", "Unit sequence in call dispatch")
    dates = ("Received DtTm",)
    date_form = "%m/%d/%Y %I:%M:%S %p"
    label = "Call Type Group"
    rows = 4_600_000

    def made_up(self, rows: int, rng: np.random.Generator) -> MadeUp:
        law = np.random.default_rng(1)  # the same in every made-up table
        unit, disposition = zipf(rng, rows, len(UNITS)), zipf(rng, rows, DISPOSITIONS)
        box = zipf(rng, rows, BOXES, 0.5)
        station, place = (box * 3) % STATIONS, (box * 7) % PLACES
        battalion = station % BATTALIONS
        priority = zipf(rng, rows, 4)
        final = np.where(rng.random(rows) < 0.9, priority, rng.integers(4, size=rows))
        minutes = rng.integers(0, 18 * 365 * 24 * 60, size=rows)
        hour = (minutes // 60) % 24
        sequence, alarms = rng.geometric(0.5, rows), rng.geometric(0.98, rows)
        pulls = law.normal(0, TOGETHER, (len(UNITS), 4, len(CLASSES)))[unit, final]
        pulls = pulls + sum(
            law.normal(0, ALONE, (kinds, len(CLASSES)))[own]
            for kinds, own in ((DISPOSITIONS, disposition), (STATIONS, station), (4, hour // 6))
        )
        pulls = pulls + np.outer(sequence > 2, (0.0, 0.0, 0.0, 2.0))
        drawn, best = labelled(rng, pulls, SHARES)
        received = np.datetime64("2000-04-12T00:00") + minutes.astype("timedelta64[m]")
        columns = {
            self.label: named(drawn, CLASSES),
            "Unit Type": named(unit, UNITS, rng),
            "Call Final Disposition": texts(disposition, "Disposition"),
            "Battalion": texts(battalion, "B"),
            "Station Area": texts(station, "Station", rng),
            "Box": texts(box, "Box", rng),
            "Original Priority": texts(priority, "Priority", rng),
            "Final Priority": texts(final, "Priority"),
            "Neighborhooods - Analysis Boundaries": texts(place, "Neighbourhood"),
            "Number of Alarms": numbers(alarms.astype(np.float64)),
            "Unit sequence in call dispatch": numbers(sequence.astype(np.float64), rng),
            "Received DtTm": received.astype("datetime64[s]"),
        }
        return MadeUp(columns, best)
