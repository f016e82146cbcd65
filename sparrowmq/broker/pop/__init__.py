"""Pop consumption: the broker gives messages to any consumer, hides them for a time, and takes acknowledgements."""
