"""What every process of a run begins and ends with: its command line, its exit code, a script's objects on their way to it."""
