"""Linear models over sparse rows: steps, rows, scores, when to stop."""
