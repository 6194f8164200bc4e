"""AlexNet in a form for 32x32 images."""

from torch import nn

from paceline.tasks.models.first_weights import start_convolutions


class AlexNet(nn.Sequential):
    """The five convolutions of Krizhevsky 2014 ("One weird trick", section 5: one column of 64, 192, 384, 256 and 256),
    pooled by 2 where the original pools by 3, which leaves one pixel; so one linear layer replaces the original's three.
     (examples, 3, 32, 32) to (examples, classes); 2,472,266 parameters with 10 classes."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__(
            nn.Conv2d(3, 64, 11, stride=4, padding=5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, classes),
        )
        start_convolutions(self)
