"""What needs the standard library and core alone, and knows of no run: files, terminals, intervals, pictures."""
