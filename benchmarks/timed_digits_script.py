"""What benchmarks/timed_digits.py trains, as a script with its own loop: paceline launch benchmarks/timed_digits_script.py

It draws its mini-batches as the task's worker does, from arrays, so that the loop alone is what differs."""

import argparse

import numpy as np
import torch
from torch.nn import functional

import paceline
from benchmarks.timed_digits import data, model, prepare

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--batch", type=int, default=64)
args = parser.parse_args()

features, labels = data("bundled").train.features, data("bundled").train.labels
network = model()
optimizer = paceline.wrap(torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4), network)
rng = np.random.default_rng(paceline.rank())
for _ in paceline.steps(args.steps):
    rows = rng.choice(len(labels), args.batch, replace=False)
    inputs, targets = prepare(features[rows], labels[rows], None)
    optimizer.zero_grad()
    functional.cross_entropy(network(inputs), targets).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
