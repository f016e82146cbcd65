"""A second copy of a broker's log: the master sends it (primary.py), and the slave follows it (replica.py)."""
