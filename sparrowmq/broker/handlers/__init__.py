"""The requests that a broker serves: one small class for each kind of request."""
