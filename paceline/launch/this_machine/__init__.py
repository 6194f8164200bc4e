"""What this machine has, and what a process is to it."""
