"""A small BERT with Hugging Face's transformers and Accelerate: do these words praise? Dict batches, two AdamW groups, a
linear schedule. Nothing is downloaded: the model is made from its configuration, the reviews are made up."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, random_split
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

WORDS, LENGTH = 50, 16
set_seed(args.seed)
generator = torch.Generator().manual_seed(0)
praise = torch.randn(WORDS, generator=generator)
reviews = torch.randint(WORDS, (4000, LENGTH), generator=generator)
rows = [{"input_ids": review, "labels": (praise[review].sum() > 0).long()} for review in reviews]
train, test = random_split(rows, [3000, 1000])
train_loader = DataLoader(train, batch_size=32, shuffle=True)
test_loader = DataLoader(test, batch_size=250)

config = BertConfig(
    vocab_size=WORDS,
    num_labels=2,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=LENGTH,
)
model = BertForSequenceClassification(config)
without = ("bias", "LayerNorm.weight")
named = list(model.named_parameters())
groups = [
    {"params": [weight for name, weight in named if not name.endswith(without)], "weight_decay": 0.01},
    {"params": [weight for name, weight in named if name.endswith(without)], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=2e-3)
scheduler = get_linear_schedule_with_warmup(optimizer, 50, args.epochs * len(train_loader))
accelerator = Accelerator(gradient_accumulation_steps=1)
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)

for epoch in range(args.epochs):
    model.train()
    for batch in train_loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        right = [model(**batch).logits.argmax(1) == batch["labels"] for batch in test_loader]
        accuracy = torch.cat(right).float().mean().item()
    accelerator.print(f"epoch {epoch + 1}: accuracy {accuracy:.4f}")
print(f"last {accuracy:.4f}")
