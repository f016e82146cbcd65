"""Who of the brokers of one name is the master: etcd has it (group_state.py), while its lease lives (lease.py)."""
