"""Entry point of `python -m paceline.sharder` (writes shards) and `python -m paceline.sharder serve` (streams them as well)."""

import paceline.first_process  # noqa: F401  # isort: skip

import sys


def main() -> None:
    """One of the two commands."""
    if sys.argv[1:2] == ["serve"]:
        from paceline.load_settings import run_command
        from paceline.sharder.serve import main as serve

        sys.argv[:2] = [f"{sys.argv[0]} serve"]
        run_command(serve)
    else:
        from paceline.sharder.sharding import main as shard

        shard()


if __name__ == "__main__":
    main()
