"""What a step is: optimizers, schedules, clipping, rate and momentum for n workers."""
