"""The tables and figures of [Hogwild]."""
