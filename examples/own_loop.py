"""The same training loop as a worker of Paceline: the task brings the data, the servers have the optimizer.

paceline run digits --loop examples/own_loop.py
"""

import torch
from torch.nn import functional

import paceline

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

with paceline.connect(model) as optimizer:
    for inputs, targets in optimizer.loader():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step(loss)
