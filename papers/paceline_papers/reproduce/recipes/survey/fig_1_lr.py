"""[Survey] MLlib, experiment 1 (a): the time of logistic regression by executors, in memory and on disk."""

from paceline_papers.reproduce.mllib_runs import figure

RECIPE = figure(1, "lr", "a")
