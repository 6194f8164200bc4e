"""The chief's run: its members, phases, budget, scores, warnings and end."""
