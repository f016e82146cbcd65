"""Sizes in an index file, and in the columns of keys on their way there; store/index.py draws the file."""

KEY_BYTES = 24  # hash, offset, store timestamp: int64 each
SLOT_BYTES = 4
ENTRY_BYTES = 20
PART_BITS = 14  # so many slots are written at once: 64 KiB
