"""A user's live objects on their way to the processes of a run."""
