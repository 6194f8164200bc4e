"""A model and a data set of your own, trained by two workers: the same in a cell of a notebook.

python examples/train_live.py [EPOCHS]
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import paceline

features, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor((features - 5) / 8, dtype=torch.float32), torch.tensor(labels))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

result = paceline.train(
    model,
    digits,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    workers=2,
    epochs=int(sys.argv[1]) if len(sys.argv) > 1 else 10,
)

print(f"test accuracy {result.accuracy:.4f}; the weights are in the model: {model[0].weight.norm():.2f}")
