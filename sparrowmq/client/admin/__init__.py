"""An operator's view of a cluster. `admin.py` has every call; `operations/` builds the requests."""
