"""A server's process: the calls on its slice, its snapshots and files; server 0 is the chief, too."""
