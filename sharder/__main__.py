"""Entry point of `python -m paceline.sharder` (writes shards), `python -m paceline.sharder serve` (streams them as well) and
`python -m paceline.sharder assign` (deals examples that arrive later)."""

import paceline.base.first_process  # noqa: F401  # isort: skip

import sys


def main() -> None:
    """One of the three commands."""
    if sys.argv[1:2] == ["serve"]:
        from paceline.processes.exits import run_command
        from paceline.sharder.serve import main as serve

        sys.argv[:2] = [f"{sys.argv[0]} serve"]
        run_command(serve)
    elif sys.argv[1:2] == ["assign"]:
        from paceline.sharder.assigning import main as assign

        sys.argv[:2] = [f"{sys.argv[0]} assign"]
        assign()
    else:
        from paceline.sharder.sharding import main as shard

        shard()


if __name__ == "__main__":
    main()
