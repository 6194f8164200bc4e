"""Nine clouds of points, told apart: what is here until your own script is."""

import argparse

import torch
from torch import nn

import paceline

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--steps", type=int, default=600)
told = parser.parse_args()

centres = torch.randn(9, 16)


def draw(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(9, (count,), generator=generator)
    return centres[labels] + 0.7 * torch.randn(count, 16, generator=generator), labels


model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 9))
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=told.lr, momentum=0.9), model)
inputs, labels = draw(2000, seed=1)


def score() -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        return {"accuracy": float((model(inputs).argmax(1) == labels).float().mean())}


paceline.evaluate(score, every=100)
for step in paceline.steps(told.steps):
    points, targets = draw(64, seed=1000 * step + 10 + paceline.rank())
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(points), targets).backward()
    optimizer.step()
