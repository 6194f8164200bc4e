"""[Survey] MLlib, experiment 2 (a): the time of logistic regression by executors, in memory and on disk."""

from paceline_papers.reproduce.mllib_runs import figure

RECIPE = figure(2, "lr", "a")
