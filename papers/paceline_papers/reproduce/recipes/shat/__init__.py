"""The tables and figures of [SHAT]."""
