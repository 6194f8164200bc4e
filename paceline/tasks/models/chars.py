"""A recurrent model of texts, small enough for a laptop."""

from torch import Tensor, nn

BYTES = 256


class NextByte(nn.Module):
    """A GRU over bytes that scores the next one at every place: (examples, places) to (examples, places, 256)."""

    def __init__(self, width: int = 64, units: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, width)
        self.gru = nn.GRU(width, units, batch_first=True)
        self.linear = nn.Linear(units, BYTES)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(x))
        scores: Tensor = self.linear(states)
        return scores
