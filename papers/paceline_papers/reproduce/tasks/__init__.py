"""Tasks that stand for the papers' data and models at the small size."""
