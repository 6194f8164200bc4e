"""`paceline reproduce`: the papers' tables and figures, made again, with the papers' numbers next to ours.

`recipe` says what a table or figure is, `claims` and `rule` how its sentences are judged, `kept` holds what was measured,
`page` tells it. Each file in `recipes` is one table or figure; `paceline_studies.simulator` trains in virtual time."""
