"""[Survey] MLlib, experiment 1 (c): the time of naive Bayes by executors, in memory and on disk."""

from paceline_papers.reproduce.mllib_runs import figure

RECIPE = figure(1, "bayes", "c")
