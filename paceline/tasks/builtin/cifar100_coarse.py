"""CIFAR-100 by its 20 coarse classes [Sharding IV-D]: the files of `cifar100`, five classes of which make one."""

from paceline.data.cifar import read_cifar100
from paceline.data.dataset import Dataset
from paceline.tasks import cifar
from paceline.tasks.builtin import cifar100
from paceline.tasks.data_path import users_own

SETTINGS = cifar.RESNET_SETTINGS
MODELS = cifar.models(classes=20)
MODEL_SETTINGS = cifar.MODEL_SETTINGS
prepare = cifar100.prepare


def data(path: str) -> Dataset:
    """uint8 images and labels 0 to 19 from the official binary files, in the order of `cifar100`."""
    return read_cifar100(users_own(path, "CIFAR-100", cifar100.WHERE), "coarse")
