"""An operator's view of a cluster. `admin.py` has every call; `catalogue.py` builds the requests."""
