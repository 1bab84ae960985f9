"""One file per output; each takes the Report alone (the overlay also copies the trace file)."""
