"""The broker's state as records of the log: its topics, groups and offsets are replicated and synced like messages."""
