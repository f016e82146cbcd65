"""Parts of all commands: options of a cluster, output, progress, times."""
