"""The reader's data set, models and stream."""

import torch
from torch.utils.data import IterableDataset, TensorDataset, WeightedRandomSampler

import paceline

features = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
dataset = TensorDataset(features, (features.sum(dim=1) > 0).long())
weights = torch.ones(512)
model, critic, generator = (torch.nn.Linear(8, 2) for _ in range(3))
collate = torch.utils.data.default_collate


class Stream(IterableDataset):
    def __iter__(self):
        return iter(dataset)


stream = Stream()
