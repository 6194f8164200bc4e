"""Which worker waits for which: clocks, and the policy in force on servers and workers."""
