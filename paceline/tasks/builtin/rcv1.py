"""A linear SVM on RCV1 as its authors publish it: 23,149 news articles, is it about corporate news (CCAT) or not? [Hogwild]"""

from paceline.data.dataset import Dataset
from paceline.data.rcv1 import read_rcv1
from paceline.tasks.builtin import svm
from paceline.tasks.data_path import users_own

WHERE = (
    "get lyrl2004_vectors_train.dat, lyrl2004_vectors_test_pt0.dat to pt3.dat and rcv1-v2.topics.qrels (each may be .gz) from "
    "the page of Lewis et al. 2004 into one folder, and give the folder"
)
SETTINGS = {**svm.SETTINGS, "policy": {"name": "bsp"}}
"""As those of task svm, in lock-step; [Hogwild]'s own are the preset hogwild."""


def data(path: str, positive: str | None = None) -> Dataset:
    """Sparse float32 rows of 47,236 features; label 1 where the document has the topic `positive`, by default CCAT,
    otherwise 0."""
    return read_rcv1(users_own(path, "RCV1", WHERE), positive or "CCAT")
