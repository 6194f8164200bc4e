"""What a run will need and give, before it is started: a short probe or given numbers, and trainings in virtual time."""
