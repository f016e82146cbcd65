"""Topics as tables without a broker: read from the files of a commit log, at the speed of the disk."""
