"""How gradients and weights become bytes: what a codec is, error feedback, compiled loops."""
