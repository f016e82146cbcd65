"""An operator's view of a cluster. `admin.py` has every call; `operations.py` builds the requests."""
