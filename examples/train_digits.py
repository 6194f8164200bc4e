"""A training from Python: two workers and two servers, the model, its scores, and a file for use elsewhere.

python examples/train_digits.py [EPOCHS]
"""

import sys

import paceline

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
result = paceline.train("digits", workers=2, servers=2, policy="ssp:3", epochs=epochs)

print(f"{result.seconds:.1f} s of training; everything is in {result.folder}")
print("staleness:", ", ".join(f"{name} {value:.2f}" for name, value in result.staleness.items()))
for score in result.history:
    print(f"epoch {score.epoch}: validation accuracy {score.metrics['validation_accuracy']:.4f}")
print("TorchScript:", result.export(result.folder / "digits.pt"))
print(
    f"test accuracy {result.metrics['test_accuracy']:.4f} with {sum(p.numel() for p in result.model.parameters()):,} weights"
)
