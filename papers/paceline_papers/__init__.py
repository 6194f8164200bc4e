"""The papers behind Paceline: their tables made again, their baselines, and the experiments that chose the defaults."""
