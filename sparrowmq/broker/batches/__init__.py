"""Batches of thousands of messages, and batches that were sent again."""
