"""The one look of all pages that Paceline writes: one file each, which opens without a network and runs no script."""
