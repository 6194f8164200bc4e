"""A training loop in plain torch, before it is moved to Paceline: handwritten digits.

python examples/own_loop_plain.py
"""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
features, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor((features - 5) / 8, dtype=torch.float32), torch.tensor(labels))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, weight_decay=1e-4)

for _epoch in range(10):
    for inputs, targets in DataLoader(data, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
print(f"loss {loss:.4f}")
