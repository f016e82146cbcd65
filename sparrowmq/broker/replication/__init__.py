"""A broker's log on a second machine: the master ships it (primary.py), the slave follows it (replica.py)."""
