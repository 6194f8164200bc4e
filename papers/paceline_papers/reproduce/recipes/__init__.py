"""The recipes of `paceline reproduce`: one table or figure a file, by paper."""
