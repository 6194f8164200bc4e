"""Where data is dealt: in this process, or on Spark."""
