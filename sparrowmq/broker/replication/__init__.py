"""A second copy of a broker's log: the master sends it (ha_master.py), and the slave follows it (ha_slave.py)."""
