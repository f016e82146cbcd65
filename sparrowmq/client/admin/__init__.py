"""What operators do with a cluster: topics, groups, offsets, messages that are looked for. `admin.py` has it all."""
