"""What is decided: policies, codecs, optimizers, members, a run's rules. It has no torch, socket, file, thread or clock."""

from paceline.core.earlier_names import install

install()
