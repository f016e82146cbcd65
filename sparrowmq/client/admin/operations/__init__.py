"""The catalogue of operations: every request that an operator sends to a server is built here, and nowhere else."""
