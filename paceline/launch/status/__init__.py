"""Where a run is, as the chief answers it; the table on a terminal."""
