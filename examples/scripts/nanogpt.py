"""A small GPT over letters, after nanoGPT: mini-batches from random places of one text, weight decay for
matrices only, a learning rate that the script sets, gradients summed over several mini-batches. The text is a module of
Python's."""

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import paceline

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--seed", type=int, default=1337)
args = parser.parse_args()

batch_size, block_size, accumulate = 8, 64, max(1, 4 // paceline.workers())
n_layer, n_head, n_embd = 2, 4, 64
learning_rate, min_lr, warmup, weight_decay, grad_clip = 3e-3, 3e-4, 20, 0.1, 1.0
eval_interval, eval_iters = 100, 20

torch.manual_seed(args.seed)
text = Path(argparse.__file__).read_text()
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text])
split = int(0.9 * len(data))
parts = {"train": data[:split], "val": data[split:]}


def get_batch(part: str) -> tuple[Tensor, Tensor]:
    places = torch.randint(len(parts[part]) - block_size, (batch_size,))
    x = torch.stack([parts[part][place : place + block_size] for place in places])
    y = torch.stack([parts[part][place + 1 : place + 1 + block_size] for place in places])
    return x, y


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attend, self.project = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.attend(self.ln_1(x)).view(b, t, 3, n_head, c // n_head).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(letters), n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, len(letters), bias=False)
        self.wte.weight = self.lm_head.weight  # tied
        self.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            h = block(h)
        logits = self.lm_head(self.ln_f(h))
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        decay = [weight for weight in self.parameters() if weight.dim() >= 2]
        no_decay = [weight for weight in self.parameters() if weight.dim() < 2]
        groups = [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95))


model = GPT()
optimizer = paceline.wrap(model.configure_optimizers(), model)


@torch.no_grad()
def estimate_loss() -> dict[str, float]:
    model.eval()
    losses = {part: sum(model(*get_batch(part))[1].item() for _ in range(eval_iters)) / eval_iters for part in parts}
    model.train()
    return losses


def get_lr(step: int) -> float:
    if step < warmup:
        return learning_rate * (step + 1) / (warmup + 1)
    done = min(1.0, (step - warmup) / (args.steps - warmup))
    return min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (learning_rate - min_lr)


for step in paceline.steps(args.steps):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(step)
    if step % eval_interval == 0 and paceline.rank() == 0:
        losses = estimate_loss()
        print(f"step {step}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}", flush=True)
    for _ in range(accumulate):
        _, loss = model(*get_batch("train"))
        (loss / accumulate).backward()
    nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"val loss {estimate_loss()['val']:.4f}")
