"""Paceline's variables of the environment, by name. It imports nothing, because it is needed before settings are read."""

PREFIX = "PACELINE_"
CONNECT = PREFIX + "CONNECT"
"""How your training script finds its run; `paceline launch` sets it (JSON)."""
TLS = PREFIX + "TLS"
"""The folder with TLS keys, like `--tls`."""
KEY = PREFIX + "KEY"
"""The key for `paceline join`, to keep it off the command line."""
