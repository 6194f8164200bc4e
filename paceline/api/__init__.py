"""What Python users call; `paceline` names it."""
