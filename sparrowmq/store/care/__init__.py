"""Care of a store: check, inspect, repair, back up."""
