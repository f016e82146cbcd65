"""The event loop of a server: its turns, its clock, its background tasks, and waiting for what is safe on disk."""
