"""Handwritten digits, moved from DistributedDataParallel: paceline launch -w 2 --policy bsp examples/coming_from/ddp.py"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import paceline

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
loader = paceline.loader(data, batch_size=64)
for _epoch in paceline.epochs(10):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
if paceline.rank() == 0:
    print(f"accuracy {(model(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean():.4f}")
