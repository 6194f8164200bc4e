"""The contenders: one program each, run as `python -m benchmarks.peers.NAME --elements N ...`."""
