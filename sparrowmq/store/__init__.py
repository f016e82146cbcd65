"""The files on disk: the commit log, and the files derived from it. Read `message_store` and `layout` first."""
