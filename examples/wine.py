"""A task of your own: which of three vineyards a wine comes from, by 13 measurements (bundled in scikit-learn).

paceline run examples/wine.py
"""

import numpy as np

from paceline.extend import Dataset, Labelled

SETTINGS = {"epochs": 30, "batch_size": 8, "workers": 2, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}


def data(path):
    """Where the examples come from; `path` is data.path of the config."""
    from sklearn.datasets import load_wine
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    features, labels = load_wine(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(features, labels, stratify=labels, random_state=0)
    scaler = StandardScaler().fit(train)
    return Dataset(
        train=Labelled(scaler.transform(train).astype(np.float32), train_labels),
        test=Labelled(scaler.transform(test).astype(np.float32), test_labels),
    )


def model():
    """Any torch.nn.Module; torch is imported here because the sharder calls data() without it."""
    from torch import nn

    return nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 3))
