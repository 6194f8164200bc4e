"""A transformer that counts: which letter comes most often? Batches are dicts, padded by its own collate
function; AdamW has two groups, and the model gives its loss, as those of Hugging Face do."""

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, random_split

import paceline

LETTERS, LONGEST, PAD = 8, 24, 8

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()


def examples(number: int = 3000) -> list[dict[str, list[int] | int]]:
    """Words of 8 to 24 letters; of several letters that come most often, the first of the alphabet counts."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(8, LONGEST + 1, (number,), generator=generator).tolist()
    words = [torch.randint(LETTERS, (length,), generator=generator) for length in lengths]
    return [{"letters": word.tolist(), "label": int(word.bincount(minlength=LETTERS).argmax())} for word in words]


def collate(rows: list[dict]) -> dict[str, Tensor]:
    """Words of unequal length as one mini-batch."""
    words = [torch.tensor(row["letters"]) for row in rows]
    input_ids = nn.utils.rnn.pad_sequence(words, batch_first=True, padding_value=PAD)
    labels = torch.tensor([row["label"] for row in rows])
    return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}


@dataclass
class Output:
    loss: Tensor
    logits: Tensor


class Counts(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS + 1, width, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(LONGEST, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, LETTERS)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Output:
        hidden = self.letters(input_ids) + self.places[: input_ids.shape[1]]
        hidden = self.norm(self.layers(hidden, src_key_padding_mask=attention_mask == 0))
        mask = attention_mask.unsqueeze(2)
        logits = self.last((hidden * mask).sum(1) / mask.sum(1))
        return Output(functional.cross_entropy(logits, labels), logits)


torch.manual_seed(args.seed)
train, test = random_split(examples(), [2000, 1000])
train_loader = paceline.loader(train, batch_size=32, collate_fn=collate)
test_loader = DataLoader(test, batch_size=250, collate_fn=collate)

model = Counts()
matrices = [weight for weight in model.parameters() if weight.dim() > 1]
others = [weight for weight in model.parameters() if weight.dim() < 2]
groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = paceline.wrap(torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.98)), model)
warm, steps = 50, args.epochs * len(train_loader)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / warm, max(0, 1 - step / steps)))


@torch.no_grad()
def evaluate() -> dict[str, float]:
    model.eval()
    outputs = [(model(**batch), batch["labels"]) for batch in test_loader]
    right = sum((output.logits.argmax(1) == labels).sum().item() for output, labels in outputs)
    return {"loss": sum(output.loss.item() for output, _ in outputs) / len(outputs), "accuracy": right / len(test)}


paceline.evaluate(evaluate)
for epoch in paceline.epochs(args.epochs):
    model.train()
    for batch in train_loader:
        loss = model(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    reached = evaluate()
    print(f"epoch {epoch + 1}: loss {reached['loss']:.4f}, accuracy {reached['accuracy']:.4f}", flush=True)
print(f"last {reached['accuracy']:.4f}")
