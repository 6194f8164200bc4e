"""The reader's model and scores."""

import torch

import paceline

model = torch.nn.Linear(8, 2)
loss, right, count = 0.5, 1, 2
