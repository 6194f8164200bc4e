"""Many runs: searched, compared, planned, simulated."""
