"""What every pipeline needs to run: its session, lock, state, loop, ending and report."""
