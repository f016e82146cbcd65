"""Election of a master among brokers of one name, through etcd. `broker/election.py` elects; the parts are here.

The group's state in etcd names the master (group_state.py) while its lease is alive (lease.py).
"""
