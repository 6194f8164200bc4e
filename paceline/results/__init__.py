"""What a finished run gave: its model, its report, answers by it."""
