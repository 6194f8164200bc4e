"""[Survey] MLlib, experiment 2 (b): the time of decision tree by executors, in memory and on disk."""

from paceline_papers.reproduce.mllib_runs import figure

RECIPE = figure(2, "tree", "b")
