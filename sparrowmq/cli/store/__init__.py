"""Commands for a message store without its broker."""
