"""Staged batches: messages that appear once or not at all."""
