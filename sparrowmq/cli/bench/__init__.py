"""The command that measures a cluster."""
