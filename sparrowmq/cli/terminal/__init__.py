"""What all commands share: options of a cluster, output, progress, times."""
