"""Workers that train without servers: their loop, and what they send each other."""
