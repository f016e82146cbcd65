"""The runner of all pipelines, with their session, locks, state, signals and report."""
