"""Kills a query that copies a topic: its driver, its executors, and the broker; then counts what is there."""
