"""Consume queues: their entries and files, dispatch into them, and reading through them."""
