"""Election of a master among brokers of one name, through etcd. `broker/member.py` elects; its parts are here.

The group's state in etcd (group_state.py) names the master while the master's lease is alive (group_keys.py).
"""
