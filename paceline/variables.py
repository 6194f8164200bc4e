"""The variables of the environment that are ours, by name. Light, for it is wanted before any settings are read."""

PREFIX = "PACELINE_"
CONNECT = PREFIX + "CONNECT"
"""What a launcher tells a training script of one's own in (JSON)."""
TLS = PREFIX + "TLS"
"""The folder of keys. Like `CONNECT` no setting of the config."""
KEY = PREFIX + "KEY"
"""The key of a run that `paceline join` takes, where it shall not stand on a command line."""
