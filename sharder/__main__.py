"""Entry point of `python -m sharder`."""

from sharder.app import main

if __name__ == "__main__":
    main()
