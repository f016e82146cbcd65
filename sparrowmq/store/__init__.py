"""Bytes on disk: the commit log, and what is derived from it. `message_store` is the door, `layout` the map."""
