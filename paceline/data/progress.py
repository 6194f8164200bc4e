"""What long work on many examples tells while it goes on."""


class Progress:
    """Hears how far the work is; this one keeps it to itself. Called from one thread."""

    def stage(self, name: str, total: int) -> None:
        """A new part of the work begins, over `total` examples."""

    def advance(self, count: int) -> None:
        """This many more examples are done."""

    def shard(self, number: int, examples: int) -> None:
        """A shard is known to get this many examples."""

    def say(self, line: str) -> None:
        """Something that people should read."""


SILENT = Progress()
