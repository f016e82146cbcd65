"""Many records at once, as Arrow columns: a million rows in a second is no work for a loop over messages."""
