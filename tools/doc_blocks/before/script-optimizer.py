"""The reader's model."""

import torch

import paceline

model = torch.nn.Linear(8, 2)
