"""Handwritten digits with a CNN: bf16, a cosine schedule, clipping, validation, the best checkpoint kept."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, random_split

import paceline

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pixels, labels = load_digits(return_X_y=True)
images = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
train, test = random_split(TensorDataset(images, torch.tensor(labels)), [1437, 360])
train_loader = paceline.loader(train, batch_size=32, num_workers=2, persistent_workers=True)
test_loader = DataLoader(test, batch_size=360)

model = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
    *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 10)),
).to(device)
optimizer = paceline.wrap(torch.optim.Adam(model.parameters(), lr=1e-3), model)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)


@torch.no_grad()
def accuracy() -> float:
    model.eval()
    answers = [model(inputs.to(device)).argmax(1) == targets.to(device) for inputs, targets in test_loader]
    return torch.cat(answers).float().mean().item()


paceline.evaluate(lambda: {"accuracy": accuracy()})
best = 0.0
for epoch in paceline.epochs(args.epochs):
    model.train()
    for inputs, targets in train_loader:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    scheduler.step()
    reached = accuracy()
    print(f"epoch {epoch + 1}: loss {loss.item():.4f}, accuracy {reached:.4f}", flush=True)
    if reached > best and paceline.rank() == 0:
        best = reached
        torch.save({"model": model.state_dict(), "epoch": epoch + 1}, "cnn.pt")
print(f"last {reached:.4f}, best {best:.4f}")
