"""The commit log: its files, group commit, the stream to a slave, and the search for damage."""
