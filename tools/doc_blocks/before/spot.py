"""The reader's model and mini-batches."""

import torch

import paceline

model = torch.nn.Linear(4, 2)
loss_function = torch.nn.CrossEntropyLoss()
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
loader = [(torch.randn(8, 4), torch.randint(0, 2, (8,)))]
