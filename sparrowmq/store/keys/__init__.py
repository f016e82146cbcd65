"""The hash index by message key."""
