"""The report on one run: what its folder tells, as one page that opens without a network."""
