"""The reading side of the Spark source: plans, ranges, pulls and rows."""
