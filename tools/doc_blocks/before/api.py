"""The reader's model, data sets and metric."""

import torch
from torch.nn import functional

features = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
dataset = train_set = torch.utils.data.TensorDataset(features[:400], (features[:400].sum(dim=1) > 0).long())
test_set = torch.utils.data.TensorDataset(features[400:], (features[400:].sum(dim=1) > 0).long())
train_loader, test_loader = (torch.utils.data.DataLoader(each, batch_size=16) for each in (train_set, test_set))
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
weight = torch.tensor([1.0, 2.0])


def f1(outputs, targets):
    from sklearn.metrics import f1_score

    return f1_score(targets, outputs.argmax(1))
